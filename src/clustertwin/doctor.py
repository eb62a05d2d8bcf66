"""Look at this machine: what is installed, readable and reachable -> a list of findings."""

from __future__ import annotations

import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from importlib import metadata
from pathlib import Path

from clustertwin import __version__
from clustertwin.core.formatting import visible

#: How long a server may take to answer.
ANSWER_S = 2.0
#: extra -> (the distribution that stands for it, what it gives)
EXTRAS: dict[str, tuple[str, str]] = {
    "cli": ("typer", "every command but the exporter"),
    "telemetry": ("numba", "recordings, live sources, the simulated cluster"),
    "workload": ("gymnasium", "job logs, generators, the scheduling simulator"),
    "arrow": ("pyarrow", "Parquet and Arrow"),
    "models": ("torch", "autoencoders and other networks"),
    "plots": ("matplotlib", "figures and reports"),
    "pandas": ("pandas", "job logs as DataFrames"),
    "xarray": ("xarray", "traces as labelled arrays"),
    "service": ("fastapi", "the live service and its pages"),
    "notify": ("apprise", "mail and webhooks where there is no Alertmanager"),
    "remote-write": ("cramjam", "samples that Prometheus pushes"),
    "learn": ("mlflow", "the registry of the nightly duel"),
    "study": ("pyod", "detectors to measure ours beside"),
    "umap": ("umap-learn", "another picture of embeddings"),
    "campaign": ("mpi4py", "labelled MPI jobs"),
    "generate": ("scikit-learn", "generators and fidelity scores"),
    "sb3": ("sb3-contrib", "MaskablePPO beside our own"),
    "ray": ("ray", "work on many machines"),
    "evidence": ("py-spy", "Python stacks of a job's processes"),
    "notebooks": ("ipykernel", "what the notebooks of the documentation use"),
    "privacy": ("opacus", "logs to publish, with differential privacy"),
    "sdv": ("sdv", "CTGAN, TVAE, CopulaGAN (licence BUSL-1.1)"),
    "realtabformer": ("realtabformer", "the transformer generator"),
}

#: program -> what it is for
PROGRAMS: dict[str, str] = {
    "prometheus": "stores metrics",
    "promtool": "checks metrics and rules",
    "prometheus-alertmanager": "delivers alarms",
    "chromium": "tests of the pages",
    "prometheus-node-exporter": "a source a site may have already",
    "victoria-metrics": "stores metrics too",
    "mpiexec": "MPI jobs of campaigns",
    "sbatch": "campaigns through Slurm",
    "sacct": "job logs and labels from Slurm",
}


@dataclass(frozen=True, slots=True)
class Inspected:
    """One thing looked at. `needed` ones decide whether the machine is fit at all."""

    subject: str
    name: str
    ok: bool
    detail: str
    needed: bool = False


def examine(root: Path = Path("/"), urls: tuple[str, ...] = ()) -> list[Inspected]:
    """Everything worth knowing before a first run; `urls` are servers that should answer."""
    return [*_python(), *_kernel(root), *_extras(), *_programs(), *map(_reach, urls)]


def _python() -> Iterator[Inspected]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Inspected("python", "python", sys.version_info >= (3, 11), version, needed=True)
    yield Inspected("python", "clustertwin", True, __version__, needed=True)


def _kernel(root: Path) -> Iterator[Inspected]:
    stat = root / "proc/stat"
    threads = sum(line.startswith("cpu") for line in _text(stat).splitlines()) - 1
    yield Inspected("kernel", "/proc/stat", threads > 0, f"{max(threads, 0)} hardware threads", needed=True)
    pressure = bool(_text(root / "proc/pressure/cpu"))
    yield Inspected(
        "kernel", "/proc/pressure", pressure, "pressure stalls" if pressure else "no PSI: CONFIG_PSI, psi=1"
    )
    cgroup = root / "sys/fs/cgroup"
    if (cgroup / "cgroup.controllers").exists():
        yield Inspected("kernel", "cgroup", True, "v2: jobs join to threads through their cpuset")
    elif (cgroup / "unified/cgroup.controllers").exists():
        yield Inspected("kernel", "cgroup", True, "hybrid: v1 controllers beside a v2 tree")
    else:
        yield Inspected("kernel", "cgroup", (cgroup / "cpuset").exists(), "v1" if cgroup.exists() else "none found")
    free = shutil.disk_usage(os.getcwd()).free / 1e9
    yield Inspected("kernel", "disk", free > 1, f"{free:.0f} GB free here")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _extras() -> Iterator[Inspected]:
    for extra, (distribution, gives) in EXTRAS.items():
        try:
            yield Inspected("extra", extra, True, f"{distribution} {metadata.version(distribution)}: {gives}")
        except metadata.PackageNotFoundError:
            yield Inspected("extra", extra, False, f"{gives}: pip install 'clustertwin[{extra}]'")


def _programs() -> Iterator[Inspected]:
    beside_python = str(Path(sys.executable).parent)
    search = os.pathsep.join([beside_python, os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    for program, purpose in PROGRAMS.items():
        found = shutil.which(program, path=search)
        yield Inspected("program", program, found is not None, f"{purpose}{'' if found else ': not found'}")


def _reach(url: str) -> Inspected:
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            return Inspected("server", url, True, f"answers {answer.status}", needed=True)
    except urllib.error.HTTPError as refusal:
        return Inspected("server", url, False, f"answers {refusal.code} {visible(refusal.reason)}", needed=True)
    except (OSError, ValueError, HTTPException) as failure:
        return Inspected("server", url, False, visible(str(failure)) or type(failure).__name__, needed=True)
