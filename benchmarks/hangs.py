"""Real MPI hangs with a known faulty rank: how many are named, what evidence costs, and healthy jobs that are accused.

Run: python benchmarks/hangs.py --hangs 100 --healthy 20
Each hang is a run of `mpi_program.py` with 2 to 8 ranks (mismatched collectives: 3 to 8, because of two ranks in two
calls neither is the odd one). One look of `--window` seconds is taken after the fault. The trivial rival names the rank
with the least CPU time between the looks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from clustertwin.telemetry.diagnosis.evidence import JobEvidence
from clustertwin.telemetry.diagnosis.job_processes import find_tree
from clustertwin.telemetry.diagnosis.odd_rank import find
from clustertwin.telemetry.diagnosis.take_evidence import Budget, take, used_cpu_s

PROGRAM = Path(__file__).with_name("mpi_program.py")
#: library -> launcher, and the variables with which mpi4py and the launcher find it
LAUNCHERS: dict[str, tuple[list[str], dict[str, str]]] = {
    "mpich": ([str(Path(sys.executable).with_name("mpiexec"))], {}),
    "openmpi": (
        ["/usr/bin/mpiexec.openmpi", "--oversubscribe"],
        {"MPI4PY_MPIABI": "openmpi", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    ),
}
KINDS = ("stopped", "blocked-io", "mismatch", "lost-message")
HEALTHY = (
    "healthy-tight", "healthy-compute", "healthy-io", "healthy-uneven", "healthy-exchange", "healthy-child",
    "healthy-threads",
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """One run: the truth, and what was found."""

    kind: str
    ranks: int
    faulty: int
    found: str
    hang: bool
    named: tuple[int, ...]
    sure: float
    least_cpu: int
    cpu_s: float
    stopped_ms: float
    delay_s: float
    watched_s: float  # since the look before, or since the start of the job
    sentence: str


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hangs", type=int, default=100)
    parser.add_argument("--healthy", type=int, default=20)
    parser.add_argument("--looks", type=int, default=5, help="evidence taken of each healthy run")
    parser.add_argument("--watch-s", type=float, default=0.0, help="look at each healthy run at least for so long")
    parser.add_argument("--window", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mpi", choices=LAUNCHERS, default="mpich")
    parser.add_argument("--pattern", choices=("exchange", "workers"), default="exchange", help="of the hangs")
    parser.add_argument("--late", action="store_true", help="the fault is after the work of an iteration")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    program = ["--pattern", options.pattern, *(["--late"] if options.late else [])]
    trials: list[Trial] = []
    for number in range(options.hangs):
        kind = KINDS[number % len(KINDS)]
        ranks = rng.randint(3 if kind == "mismatch" else 2, 8)
        trials += run(kind, ranks, rng.randrange(ranks), options.window, 1, options.mpi, program=program)
        print_trial(trials[-1], number + 1)
    for number in range(options.healthy):
        kind = HEALTHY[number % len(HEALTHY)]
        trials += run(kind, rng.randint(2, 8), -1, options.window, options.looks, options.mpi, options.watch_s)
        print_trial(trials[-1], number + 1)
    report(trials)
    if options.out:
        options.out.write_text("".join(json.dumps(asdict(trial)) + "\n" for trial in trials))


def run(
    kind: str,
    ranks: int,
    faulty: int,
    window_s: float,
    looks: int,
    mpi: str = "mpich",
    watch_s: float = 0.0,
    program: Sequence[str] = (),
) -> list[Trial]:
    """One job, and the evidence that was taken of it: so many looks, and as many more as `watch_s` takes."""
    with tempfile.TemporaryDirectory() as directory:
        launcher, variables = LAUNCHERS[mpi]
        command = [*launcher, "-n", str(ranks), sys.executable, str(PROGRAM), kind, str(max(faulty, 0)), directory]
        command += program
        if faulty < 0:
            command += ["--lasts", "86400"]  # it is ended after its last look
        env = os.environ | variables
        watched_s = time.monotonic()
        job = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            fault = Path(directory) / "fault"
            end_s = time.monotonic() + 50
            while faulty >= 0 and not fault.exists() and time.monotonic() < end_s:
                time.sleep(0.05)
            time.sleep(1.0 if faulty >= 0 else 5.0)
            trials: list[Trial] = []
            watch_until_s = time.monotonic() + watch_s
            while len(trials) < looks or time.monotonic() < watch_until_s:
                begin_s = time.monotonic()
                budget, cpu_s = Budget(window_s=window_s), used_cpu_s()
                evidence = take(str(job.pid), find_tree(job.pid), "here", budget, begin_cpu_s=cpu_s)
                now_s = time.monotonic()
                trials.append(judge(kind, ranks, faulty, evidence, (now_s - begin_s, now_s - watched_s)))
                watched_s = now_s
            return trials
        finally:
            for process in find_tree(job.pid).ranks:  # a stopped rank does not answer SIGTERM
                subprocess.run(["kill", "-KILL", str(process.pid)], check=False, stderr=subprocess.DEVNULL)
            job.kill()
            job.wait()


def judge(kind: str, ranks: int, faulty: int, evidence: JobEvidence, spent_s: tuple[float, float]) -> Trial:
    """`spent_s`: the time to the finding, and the time since the look before."""
    finding = find(evidence)
    least = min(evidence.processes, key=lambda process: process.cpu_s, default=None)
    return Trial(
        kind,
        ranks,
        faulty,
        finding.kind,
        finding.hang,
        finding.ranks,
        finding.sure,
        least.rank if least is not None and least.rank is not None else -1,
        evidence.cpu_s,
        max((process.stopped_ms for process in evidence.processes), default=0.0),
        *spent_s,
        finding.sentence,
    )


def print_trial(trial: Trial, number: int) -> None:
    truth = f"rank {trial.faulty}" if trial.faulty >= 0 else "healthy"
    print(f"{number:4} {trial.kind:<16} {trial.ranks} ranks, {truth:<8} {trial.sentence}", flush=True)


def report(trials: list[Trial]) -> None:
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for trial in trials:
        row = rows[trial.kind]
        row["looks"] += 1
        if trial.faulty >= 0:
            row["hang"] += trial.hang
            row["named"] += trial.hang and trial.named == (trial.faulty,)
            row["least CPU"] += trial.least_cpu == trial.faulty
        else:
            row["accused"] += trial.hang
    columns = ("looks", "hang", "named", "least CPU", "accused")
    print("\n" + f"{'recorded':<18}" + "".join(f"{column:>11}" for column in columns))
    for kind, row in rows.items():
        print(f"{kind:<18}" + "".join(f"{row[column]:>11}" if column in row else f"{'':>11}" for column in columns))
    if healthy_s := sum(trial.watched_s for trial in trials if trial.faulty < 0):
        print(f"healthy jobs ran for {healthy_s / 3600:.2f} h while they were looked at")
    if trials:
        worst = max(trials, key=lambda trial: trial.cpu_s)
        stops = sorted(trial.stopped_ms for trial in trials)
        print(f"CPU time of evidence: most {worst.cpu_s:.2f} s; longest stop of a process in two looks: ", end="")
        print(f"median {stops[len(stops) // 2]:.1f} ms, most {stops[-1]:.1f} ms; ", end="")
        print(f"longest time to the finding {max(trial.delay_s for trial in trials):.1f} s")


if __name__ == "__main__":
    main()
