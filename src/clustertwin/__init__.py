"""clustertwin: a digital twin of a compute cluster.

    import clustertwin as ct

    log = ct.read_log("theta.swf")                    # a job log
    synthetic = ct.generate(log, seed=1)              # one that a scheduler experiences alike
    ct.simulate(synthetic, policy="sjf").metrics()    # and schedule
    cluster = ct.simulate_cluster(fault="hung-rank")  # telemetry of every thread
    ct.load_detector().events(cluster)                # what is wrong with which job

A name is imported when you use it: `import clustertwin` loads neither numpy nor torch, and not even `typing`.
`__init__.pyi` tells type checkers the same names.
"""

from __future__ import annotations

from clustertwin import gymnasium_hook

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
        raise AttributeError(f"module 'clustertwin' has no attribute {name!r}")
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
    return sorted({*globals(), *_MODULES})


gymnasium_hook.install()
