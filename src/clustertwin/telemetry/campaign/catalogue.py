"""The table of job types: name -> what it is, what it runs on its CPUs, and what its CPU time should look like."""

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
class Job:
    """One job that is to run: its type, where, how long, and from which seed; an anomaly may wait for its onset."""

    type: str
    cpus: tuple[int, ...]
    seconds: float
    seed: int
    scratch: Path
    onset_s: float = 0.0  # after the start
    ranks: int = 0  # 0: one per CPU


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the mean of a channel should be over the job's threads, on a quiet host with a real disk."""

    channel: str
    least: float = 0.0
    most: float = 1.0

    def met(self, mean: float) -> bool:
        return self.least <= mean <= self.most

    def __str__(self) -> str:
        bounds = [f"≥ {self.least:g}"] * (self.least > 0) + [f"≤ {self.most:g}"] * (self.most < 1)
        return f"{self.channel} {' and '.join(bounds)}"


@dataclass(frozen=True, slots=True)
class JobType:
    """A row of the table. An anomalous type is a normal one gone wrong: `job_type` says which."""

    about: str
    commands: Callable[[Job], list[Command]]
    expect: tuple[Expectation, ...]
    job_type: str = ""  # of the labels; empty: the name itself
    anomaly: str = ""
    one_thread: bool = False  # only the job's last CPU, or rank, is struck
    peers_wait: bool = False  # and the others feel it
    expect_of_peers: tuple[Expectation, ...] = ()
    onset: bool = False  # begins well and goes wrong after a while
    mpi: bool = False


def program(module: str, job: Job, *more: str, cpus: tuple[int, ...] | None = None) -> list[Command]:
    """The command of one program on these CPUs of the job; none where there are no such CPUs."""
    chosen = job.cpus if cpus is None else cpus
    if not chosen:
        return []
    name = f"{__package__}.jobs.{module}"
    where = [
        "--cpus",
        ",".join(map(str, chosen)),
        "--scratch",
        str(job.scratch / f"{module}-{chosen[0]}"),
        "--seed",
        str(job.seed),
    ]
    return [[sys.executable, "-m", name, *where, *more]]


def mpi_program(job: Job, *more: str) -> list[Command]:
    """One rank per CPU of the job, started by MPICH's own launcher."""
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is None:
        raise MissingExtra("mpiexec", "campaign")
    return [[launcher, "-n", str(last_rank(job) + 1), *program("mpi", job, *more)[0]]]


def last_rank(job: Job) -> int:
    return (job.ranks or len(job.cpus)) - 1


def _throttled(job: Job) -> list[Command]:
    *_, last = program("np_fit", job, cpus=job.cpus[-1:])
    slowed = [sys.executable, "-m", f"{__package__}.jobs.throttle", "--share", "0.7", "--", *last]
    return [*program("np_fit", job, cpus=job.cpus[:-1]), slowed]


def _straggler(factor: float) -> Callable[[Job], list[Command]]:
    return lambda job: mpi_program(job, "--slow-rank", str(last_rank(job)), "--factor", str(factor))


_COMPUTES = Expectation("user", least=0.9)
_DISTURBED = Expectation("user", most=0.97)

#: `mpi-N` stands for N ranks, N any number up to the host's threads.
JOB_TYPES: dict[str, JobType] = {
    "np": JobType("partial-wave fits", lambda job: program("np_fit", job), (_COMPUTES,)),
    "good-io": JobType(
        "a buffered writer per thread",
        lambda job: program("good_io", job),
        (Expectation("user", least=0.3), Expectation("system", least=0.05), Expectation("iowait", most=0.2)),
    ),
    "bad-io": JobType(
        "a writer per thread that writes, seeks and flushes",
        lambda job: program("bad_io", job),
        (Expectation("iowait", least=0.5),),
        anomaly="bad-io",
    ),
    "mpi-N": JobType(
        "ranks that compute for a random time, then Allreduce",
        mpi_program,
        (Expectation("user", least=0.6), Expectation("system", least=0.01)),
        mpi=True,
    ),
    "idle": JobType("no job", lambda job: [], (Expectation("other", least=0.9),)),
    "throttled": JobType(
        "np with one CPU at 70 % of its time",
        _throttled,
        (Expectation("user", least=0.5, most=0.85),),
        job_type="np",
        anomaly="throttled",
        one_thread=True,
    ),
    "straggler-x2": JobType(
        "mpi with one rank twice as slow",
        _straggler(2.0),
        (Expectation("user", least=0.85),),
        expect_of_peers=(Expectation("system", least=0.1),),
        job_type="mpi-N",
        anomaly="straggler-x2",
        one_thread=True,
        peers_wait=True,
        mpi=True,
    ),
    "straggler-x1.5": JobType(
        "mpi with one rank one and a half times as slow",
        _straggler(1.5),
        (Expectation("user", least=0.8),),
        expect_of_peers=(Expectation("system", least=0.05),),
        job_type="mpi-N",
        anomaly="straggler-x1.5",
        one_thread=True,
        peers_wait=True,
        mpi=True,
    ),
    "hung-rank": JobType(
        "mpi whose last rank stops, while the others wait for it",
        lambda job: mpi_program(job, "--hang-rank", str(last_rank(job)), "--hang-after-s", str(job.onset_s)),
        (Expectation("other", least=0.5),),
        expect_of_peers=(Expectation("system", least=0.2),),
        job_type="mpi-N",
        anomaly="hung-rank",
        one_thread=True,
        peers_wait=True,
        onset=True,
        mpi=True,
    ),
    "hung-job": JobType(
        "np that stops in the middle of its work",
        lambda job: program("np_fit", job, "--hang-after-s", str(job.onset_s)),
        (Expectation("other", least=0.5),),
        job_type="np",
        anomaly="hung-job",
        onset=True,
    ),
    "swap-bursts": JobType(
        "np on a node that pages in bursts",
        lambda job: program("np_fit", job) + program("swap_bursts", job),
        (Expectation("system", least=0.05), _DISTURBED),
        job_type="np",
        anomaly="swap-bursts",
    ),
    "slow-io": JobType(
        "computes and writes, and waits ever longer for the disk",
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
        "np with someone else's work on one of its CPUs",
        lambda job: program("np_fit", job) + program("neighbour", job, cpus=job.cpus[-1:]),
        (_DISTURBED,),
        job_type="np",
        anomaly="noisy-neighbour",
        one_thread=True,
    ),
    "memory-leak": JobType(
        "computes and keeps ever more memory, 512 MB at most",
        lambda job: program("leak", job, "--seconds", str(job.seconds)),
        (Expectation("user", least=0.8),),
        job_type="np",
        anomaly="memory-leak",
    ),
}

NORMAL = ("np", "good-io", "bad-io", "mpi-N", "idle")
ANOMALIES = tuple(name for name in JOB_TYPES if name not in NORMAL)


def find_type(name: str) -> JobType:
    """The row of a name; `mpi-4` is the row of `mpi-N`."""
    row = "mpi-N" if re.fullmatch(r"mpi-[1-9]\d*", name) else name
    if row not in JOB_TYPES:
        raise SettingsError(f"no job type {name!r}; there are {', '.join(JOB_TYPES)}")
    return JOB_TYPES[row]


def label_of(name: str, threads: int) -> str:
    """The job type that labels carry: `np` for a throttled np, `mpi-2` for any MPI job of two ranks."""
    label = find_type(name).job_type or name
    return f"mpi-{threads}" if label == "mpi-N" else label
