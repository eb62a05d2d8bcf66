"""clustertwin: a digital twin of a compute cluster.

    import clustertwin as ct

    log = ct.read_log("theta.swf")                    # a job log
    synthetic = ct.generate(log, seed=1)              # a log on which a scheduler behaves as on the real one
    ct.simulate(synthetic, policy="sjf").metrics()    # waits and slowdowns under a policy
    cluster = ct.simulate_cluster(fault="hung-rank")  # telemetry of every thread
    ct.load_detector().events(cluster)                # what is wrong with which job

Each of the names in `dir(ct)` has help with an example: `help(ct.simulate)`. A name is imported when you first use it.
"""

from __future__ import annotations

from clustertwin import gymnasium_hook  # `import clustertwin` loads neither numpy nor torch, and not even `typing`

__version__ = "0.1.0"

_JOB_LOGS, _TELEMETRY = "clustertwin.api.job_logs", "clustertwin.api.thread_telemetry"

#: name -> the module that defines it
_MODULES = {
    "read_log": _JOB_LOGS,
    "write_log": _JOB_LOGS,
    "generate": _JOB_LOGS,
    "compare": _JOB_LOGS,
    "simulate": _JOB_LOGS,
    "train_policy": _JOB_LOGS,
    "simulate_site": _JOB_LOGS,
    "example_log": "clustertwin.workload.example_log",
    "Jobs": "clustertwin.workload.jobs",
    "WorkloadChange": "clustertwin.workload.generators",
    "ClusterTraces": "clustertwin.core.cluster_traces",
    "simulate_cluster": _TELEMETRY,
    "record_host": _TELEMETRY,
    "open_recording": _TELEMETRY,
    "load_detector": _TELEMETRY,
    "plot": "clustertwin.api.plots",
    "TwinError": "clustertwin.core.errors",
}

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        from difflib import get_close_matches

        near = [] if name.startswith("_") else get_close_matches(name, _MODULES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module 'clustertwin' has no attribute {name!r}{hint}")
    from importlib import import_module

    try:
        value = getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as missing:
        from clustertwin.core.extras import explain

        explained = explain(missing, "workload" if _MODULES[name] == _JOB_LOGS else "models")
        if explained is None:
            raise
        raise explained from missing
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


gymnasium_hook.install()
