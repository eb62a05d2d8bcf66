"""The table of job types: name -> description, commands, and the expected mean of each CPU channel."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clustertwin.core.errors import MissingExtra, SettingsError

Command = list[str]


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job to run: its type, CPUs, length and seed, and the onset of its anomaly."""

    type: str
    cpus: tuple[int, ...]
    seconds: float
    seed: int
    scratch: Path
    onset_s: float = 0.0  # after the start
    ranks: int = 0  # 0: one per CPU


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected range of a channel's mean over the job's threads, on a quiet host with a real disk."""

    channel: str
    least: float = 0.0
    most: float = 1.0

    def met(self, mean: float) -> bool:
        return self.least <= mean <= self.most

    def __str__(self) -> str:
        least = f"≥ {self.least:g}" if self.least > 0 else ""
        most = f"≤ {self.most:g}" if self.most < 1 else ""
        return f"{self.channel} {' and '.join(filter(None, (least, most)))}"


@dataclass(frozen=True, slots=True)
class JobType:
    """A row of the table. An anomalous type is a variant of a normal one, which `job_type` names."""

    about: str
    commands: Callable[[JobSpec], list[Command]]
    expectations: tuple[Expectation, ...]
    job_type: str = ""  # in the labels; empty: the name itself
    anomaly: str = ""
    one_thread: bool = False  # only the job's last CPU, or rank, is anomalous
    peers_wait: bool = False  # the other ranks wait for it, and are labelled as peers
    peer_expectations: tuple[Expectation, ...] = ()
    has_onset: bool = False  # the job starts normally, and the anomaly begins later
    mpi: bool = False


def program(module: str, job: JobSpec, *more: str, cpus: tuple[int, ...] | None = None) -> list[Command]:
    """The command that runs a program on some CPUs of the job, by default on all; none for an empty selection."""
    chosen = job.cpus if cpus is None else cpus
    if not chosen:
        return []
    name = f"{__package__}.jobs.{module}"
    common = [
        "--cpus",
        ",".join(map(str, chosen)),
        "--scratch",
        str(job.scratch / f"{module}-{chosen[0]}"),
        "--seed",
        str(job.seed),
    ]
    return [[sys.executable, "-m", name, *common, *more]]


def mpi_program(job: JobSpec, *more: str) -> list[Command]:
    """One rank per CPU of the job, started by `mpiexec`."""
    installed = Path(sys.executable).with_name("mpiexec")
    launcher = str(installed) if installed.exists() else shutil.which("mpiexec")
    if launcher is None:
        raise MissingExtra("mpiexec", "campaign")
    return [[launcher, "-n", str(last_rank(job) + 1), *program("mpi", job, *more)[0]]]


def last_rank(job: JobSpec) -> int:
    return (job.ranks or len(job.cpus)) - 1


def _throttled(job: JobSpec) -> list[Command]:
    *_, last = program("np_fit", job, cpus=job.cpus[-1:])
    throttled = [sys.executable, "-m", f"{__package__}.jobs.throttle", "--share", "0.7", "--", *last]
    return [*program("np_fit", job, cpus=job.cpus[:-1]), throttled]


def _straggler(factor: float, user: float, peers_system: float) -> JobType:
    """MPI with one slow rank: its least part of user time, and that of system time of the ranks that wait for it."""
    return JobType(
        f"mpi with one rank that needs {factor:g} times as long",
        lambda job: mpi_program(job, "--slow-rank", str(last_rank(job)), "--factor", str(factor)),
        (Expectation("user", least=user),),
        peer_expectations=(Expectation("system", least=peers_system),),
        job_type="mpi-N",
        anomaly=f"straggler-x{factor:g}",
        one_thread=True,
        peers_wait=True,
        mpi=True,
    )


_COMPUTES = Expectation("user", least=0.9)
_DISTURBED = Expectation("user", most=0.97)

#: `mpi-N` stands for N ranks, where N is any number up to the host's threads.
JOB_TYPES: dict[str, JobType] = {
    "np": JobType("partial-wave fits", lambda job: program("np_fit", job), (_COMPUTES,)),
    "good-io": JobType(
        "one buffered writer per thread",
        lambda job: program("good_io", job),
        (Expectation("user", least=0.3), Expectation("system", least=0.05), Expectation("iowait", most=0.2)),
    ),
    "bad-io": JobType(
        "one writer per thread that seeks and flushes after every write",
        lambda job: program("bad_io", job),
        (Expectation("iowait", least=0.5),),
        anomaly="bad-io",
    ),
    "mpi-N": JobType(
        "ranks that compute for a random time and then call Allreduce",
        mpi_program,
        (Expectation("user", least=0.6), Expectation("system", least=0.01)),
        mpi=True,
    ),
    "idle": JobType("no job", lambda job: [], (Expectation("other", least=0.9),)),
    "throttled": JobType(
        "np whose last CPU runs 70 % of the time",
        _throttled,
        (Expectation("user", least=0.5, most=0.85),),
        job_type="np",
        anomaly="throttled",
        one_thread=True,
    ),
    "straggler-x2": _straggler(2.0, user=0.85, peers_system=0.1),
    "straggler-x1.5": _straggler(1.5, user=0.8, peers_system=0.05),
    "hung-rank": JobType(
        "mpi whose last rank stops while the others wait for it",
        lambda job: mpi_program(job, "--hang-rank", str(last_rank(job)), "--hang-after-s", str(job.onset_s)),
        (Expectation("other", least=0.5),),
        peer_expectations=(Expectation("system", least=0.2),),
        job_type="mpi-N",
        anomaly="hung-rank",
        one_thread=True,
        peers_wait=True,
        has_onset=True,
        mpi=True,
    ),
    "hung-job": JobType(
        "np that stops in the middle of its work",
        lambda job: program("np_fit", job, "--hang-after-s", str(job.onset_s)),
        (Expectation("other", least=0.5),),
        job_type="np",
        anomaly="hung-job",
        has_onset=True,
    ),
    "swap-bursts": JobType(
        "np on a node with bursts of page faults",
        lambda job: program("np_fit", job) + program("swap_bursts", job),
        (Expectation("system", least=0.05), _DISTURBED),
        job_type="np",
        anomaly="swap-bursts",
    ),
    "slow-io": JobType(
        "computes and writes, with growing waits for the disk",
        lambda job: program("slow_io", job, "--seconds", str(job.seconds)),
        (Expectation("iowait", least=0.15), Expectation("user", least=0.3)),
        job_type="np",
        anomaly="slow-io",
    ),
    "misbound": JobType(
        "mpi with all ranks on one CPU",
        lambda job: mpi_program(job, "--misbound"),
        (Expectation("other", least=0.4),),
        job_type="mpi-N",
        anomaly="misbound",
        mpi=True,
    ),
    "noisy-neighbour": JobType(
        "np with another program on its last CPU",
        lambda job: program("np_fit", job) + program("neighbour", job, cpus=job.cpus[-1:]),
        (_DISTURBED,),
        job_type="np",
        anomaly="noisy-neighbour",
        one_thread=True,
    ),
    "memory-leak": JobType(
        "computes and allocates more and more memory, up to 512 MB",
        lambda job: program("leak", job, "--seconds", str(job.seconds)),
        (Expectation("user", least=0.8),),
        job_type="np",
        anomaly="memory-leak",
    ),
}

DEFAULT_TYPES = ("np", "good-io", "bad-io", "mpi-N", "idle")
ANOMALOUS_TYPES = tuple(name for name in JOB_TYPES if name not in DEFAULT_TYPES)


def find_type(name: str) -> JobType:
    """The row of a job type; `mpi-4` has the row of `mpi-N`."""
    row = "mpi-N" if re.fullmatch(r"mpi-[1-9]\d*", name) else name
    if row not in JOB_TYPES:
        raise SettingsError(f"unknown job type {name!r}; available types: {', '.join(JOB_TYPES)}")
    return JOB_TYPES[row]


def label_of(name: str, threads: int) -> str:
    """The job type in the labels: `np` for a throttled np, `mpi-2` for any MPI job of two ranks."""
    label = find_type(name).job_type or name
    return f"mpi-{threads}" if label == "mpi-N" else label
