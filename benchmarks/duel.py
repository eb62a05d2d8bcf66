"""Twin versus Slurm: real MPI jobs with known faults on a real slurmctld, in paired arms. Run: make duel

Both arms submit the same jobs, with the same faults, from the same seed, to one queue. In the arm `act` the twin's
policy cancels by itself. The arm `watch` follows. Nothing is done in it, so a job that hangs runs to its time limit.
So the promises of the first arm are made before what they are compared with. Some jobs that only sleep run first:
from their accounting the twin reads how far Slurm lets jobs exceed their limit. In the same run: the rule that cancels
a job without CPU time in every sample, the plain time limit, and `squeue --start`.

Events are opened by this program for every job that runs: the detector's windows are longer than these jobs. The faults
of the jobs are real, and so are the processes, the evidence, the queue, the commands and the accounting. The ranks run
with a low priority, because those of all jobs share this host's CPUs with the daemons and the twin.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.slurm import Slurm, reason_to_skip, slurm_cluster

from clustertwin.core.errors import SourceError, TwinError
from clustertwin.service.act.evidence_sources import take_on_this_host
from clustertwin.service.act.hand import Hand
from clustertwin.service.act.hand_settings import HandSettings
from clustertwin.service.act.savings import read_overruns
from clustertwin.service.act.slurm_commands import RunCommand, read_facts
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.events.event import Event

PROGRAM = Path(__file__).with_name("mpi_program.py")
MPIEXEC = Path(sys.executable).with_name("mpiexec")
HANGS = ("stopped", "blocked-io", "mismatch", "lost-message")
OTHERS = (
    "idle", "straggler", "leak", "throttled", "healthy-compute", "healthy-exchange", "healthy-io", "healthy-uneven"
)  # fmt: skip
LIMIT_S = 180
SLEEPERS = 10  # jobs that exceed a limit of one minute before the arms begin
ZERO_SAMPLES = 6  # the rule cancels after this many samples without CPU time
SAMPLE_S = 5.0
POLICY = """[[rule]]
name = "duel"
causes = ["stopped", "blocked-io", "mismatch", "lost-message", "stalled", "gone"]
action = "cancel"
mode = "auto"
sure = 0.9
for = "6 s"
most_per_day = 10000
grace = "3 s"
"""


@dataclass(frozen=True)
class Episode:
    """One job and its truth."""

    number: int
    kind: str
    ranks: int
    faulty: int  # -1: none

    @property
    def hangs(self) -> bool:
        return self.kind in HANGS


@dataclass(frozen=True)
class Run:
    """What one arm recorded of an episode."""

    episode: Episode
    elapsed_s: float
    state: str
    fault_s: float | None  # Unix time
    acted_s: float | None = None
    found: str = ""
    named: tuple[int, ...] = ()
    promised_s: float | None = None  # node-seconds
    promised_low_s: float = 0.0
    promised_high_s: float = 0.0
    zero_saved_s: float = 0.0  # what the every-sample-zero rule would have saved
    next_job: int | None = None  # the episode that waits first when the twin acts
    next_twin_s: float | None = None  # Unix time of its start, as the twin predicts
    next_squeue_s: float | None = None  # and as `squeue --start` did before the action
    start_s: float = 0.0  # Unix time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--at-once", type=int, default=5, help="nodes of the cluster; each runs one job at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON Lines: the configuration, then each job when it has ended")
    parser.add_argument("--report", type=Path, metavar="FILE", help="run nothing; print the table of this file")
    options = parser.parse_args()
    if options.report:
        report(read_pairs(options.report))
        return
    if reason := reason_to_skip():
        sys.exit(f"duel: {reason}")
    report(duel(options.episodes, options.at_once, options.seed, options.out))


def duel(episodes: int, at_once: int, seed: int, out: Path | None = None) -> list[tuple[Run, Run]]:
    """Both arms over the same episodes -> (watched, acted) of each."""
    plan = draw(episodes, random.Random(seed))
    keep = keeper(out, {"seed": seed, "at_once": at_once, "limit_s": LIMIT_S, "policy": POLICY})
    compile_simulator()
    with tempfile.TemporaryDirectory(prefix="duel", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        nodes = {f"n{i}": tuple(range(4)) for i in range(1, at_once + 1)}
        with slurm_cluster(Path(directory) / "slurm", nodes) as slurm:
            os.environ |= slurm.env  # evidence and the hand find this cluster
            exceed_limits(slurm)
            acted = arm(slurm, plan, Path(directory) / "act", True, keep)
            watched = arm(slurm, plan, Path(directory) / "watch", False, keep)
    return list(zip(watched, acted, strict=True))


def keeper(out: Path | None, configuration: dict[str, object]) -> Callable[[str, Run], None]:
    """A function that prints a run and adds it to the file, so that an interrupted duel keeps what it has."""
    begin_s = time.monotonic()
    if out:
        out.write_text(json.dumps(configuration) + "\n")

    def keep(arm: str, run: Run) -> None:
        print(
            f"{time.monotonic() - begin_s:5.0f} s  {arm:<5} {run.episode.number:3} {run.episode.kind:<16} "
            f"{run.state:<10} {run.elapsed_s:4.0f} s  {run.found} {list(run.named) or ''}",
            flush=True,
        )
        if out:
            with out.open("a") as file:
                file.write(json.dumps({"arm": arm, **asdict(run)}) + "\n")

    return keep


def read_pairs(path: Path) -> list[tuple[Run, Run]]:
    """The pairs of a file in which both arms have ended."""
    arms: dict[str, dict[int, Run]] = {"act": {}, "watch": {}}
    for line in path.read_text().splitlines()[1:]:
        entry = json.loads(line)
        arm, episode = entry.pop("arm"), Episode(**entry.pop("episode"))
        arms[arm][episode.number] = Run(episode, **{**entry, "named": tuple(entry["named"])})
    return [(arms["watch"][number], run) for number, run in sorted(arms["act"].items()) if number in arms["watch"]]


def exceed_limits(slurm: Slurm) -> None:
    """Jobs that sleep beyond their limit. They start at different times, because Slurm checks limits now and then."""
    jobs = []
    for _ in range(SLEEPERS):
        options = ("--ntasks=1", "--time=1", "--mem=1", "--output=/dev/null")
        jobs.append(slurm.run("sbatch", "--parsable", *options, "--wrap=exec sleep 1000").strip())
        time.sleep(3)
    run = runner(slurm)
    while active(run).keys() & set(jobs):
        time.sleep(2)
    print(f"jobs ran beyond their limit by {', '.join(f'{s:.0f}' for s in read_overruns(run))} s", flush=True)


def compile_simulator() -> None:
    """Compile before the clock runs: the first simulation of a process takes seconds."""
    from clustertwin.service.act.counterfactual import outcomes_of
    from clustertwin.telemetry.diagnosis.evidence import JobFinding

    def paper(arguments: list[str]) -> str:
        queue = "1|a|RUNNING|4|1|2:00|0:10|None\n2|b|PENDING|4|1|2:00|0:00|Resources\n"
        return queue if arguments[0] == "squeue" else "4/0/0/4\n"

    outcomes_of("1", JobFinding("stopped", True, "", (0,), 0.9), run=paper)  # type: ignore[arg-type]


def draw(count: int, rng: random.Random) -> list[Episode]:
    """Two of three jobs hang; the others are healthy, idle or slow."""
    episodes = []
    for number in range(count):
        kind = OTHERS[number // 3 % len(OTHERS)] if number % 3 == 2 else HANGS[(number - number // 3) % len(HANGS)]
        ranks = rng.randint(3, 4)
        faulty = -1 if kind.startswith("healthy") else rng.randrange(ranks)
        episodes.append(Episode(number, kind, ranks, faulty))
    return episodes


def arm(slurm: Slurm, plan: list[Episode], home: Path, acts: bool, keep: Callable[[str, Run], None]) -> list[Run]:
    """Submit every job, and look at those that run every few seconds until all have ended."""
    home.mkdir()
    (home / "policy.toml").write_text(POLICY)
    store = Store(home / "state.sqlite")
    run = runner(slurm)
    hand = Hand(home, store, HandSettings(str(home / "policy.toml")), take_on_this_host, run)
    jobs = {submit(slurm, episode, home): episode for episode in plan}
    watch, events, runs = ZeroRule(), Events({}, {}), {}
    while left := [job for job in jobs if job not in runs]:
        begin_s = time.monotonic()
        states = active(run)
        running = [job for job in left if states.get(job) == "RUNNING"]
        if acts:
            look(hand, running, events, run)
        else:
            watch.sample(running)
        for job in left:
            if job not in states:
                ended = finished(job, jobs[job], home, watch.acted_s.get(job), run)
                runs[job] = with_action(ended, job, jobs, hand, events)
                keep("act" if acts else "watch", runs[job])
        time.sleep(max(SAMPLE_S - (time.monotonic() - begin_s), 0.1))
    store.close()
    return [runs[job] for job in jobs]


def active(run: RunCommand) -> dict[str, str]:
    """The jobs that have not ended, with their states, in the order of the queue."""
    lines = run(["squeue", "--noheader", "--sort=i", "--format=%i|%T"]).split()
    return dict(line.split("|") for line in lines)


class ZeroRule:
    """The rule that cancels a job without CPU time in every sample; it only notes when it would."""

    def __init__(self) -> None:
        self.acted_s: dict[str, float] = {}
        self._cpu_s: dict[str, float] = {}
        self._zeros: dict[str, int] = {}

    def sample(self, jobs: list[str]) -> None:
        for job in jobs:
            used = cpu_of(job)
            if used is None:
                continue
            still = job in self._cpu_s and used <= self._cpu_s[job] + 0.05
            self._zeros[job] = self._zeros.get(job, 0) + 1 if still else 0
            self._cpu_s[job] = used
            if self._zeros[job] >= ZERO_SAMPLES:
                self.acted_s.setdefault(job, time.time())


@dataclass(frozen=True)
class Events:
    """The events of the arm that acts, and what squeue said about waiting jobs when each action began."""

    of_job: dict[str, Event]
    waiting: dict[str, tuple[str, float | None]]  # job that was acted on -> the next job, and its expected start


def look(hand: Hand, jobs: list[str], events: Events, run: RunCommand) -> None:
    """Open an event when a job has run for ten seconds, and give the evidence of all jobs to the hand."""
    due = []
    for job in jobs:
        facts = read_facts(job, run)
        if facts.state != "RUNNING" or time.time() - facts.start_s < 10:
            continue
        if job not in events.of_job:
            places = tuple((node, (0,)) for node in facts.nodes)
            now_s = int(time.time())
            events.of_job[job] = Event(f"duel{job}", places, (job,), "root", now_s, now_s, None, 9.0, "duel", "none")
            hand.store.write([(events.of_job[job], None)])
        due.append(facts)
    with ThreadPoolExecutor(max(len(due), 1)) as pool:
        taken = [(facts, pool.submit(take_on_this_host, facts.job, facts.uid, facts.nodes)) for facts in due]
        for facts, evidence in taken:
            try:
                seen = evidence.result()
                next_one = first_waiting(run)
                if hand.judge(events.of_job[facts.job], facts, seen, time.time()) and next_one:
                    events.waiting[facts.job] = next_one
            except TwinError as error:
                print(f"  job {facts.job}: {error}", flush=True)


def first_waiting(run: RunCommand) -> tuple[str, float | None] | None:
    """The job that waits first, and when it starts according to Slurm; None if none waits or Slurm is busy."""
    lines = []
    with suppress(SourceError):
        lines = run(["squeue", "--start", "--noheader", "--states=PENDING", "--sort=i", "--format=%i|%S"]).split()
    if not lines:
        return None
    job, start = lines[0].split("|")
    return job, datetime.fromisoformat(start).timestamp() if start[:1].isdigit() else None


def finished(job: str, episode: Episode, home: Path, zero_s: float | None, run: RunCommand) -> Run:
    state, start_s, end_s = accounting(job, run)
    directory = home / str(episode.number)
    fault = directory / "fault"
    fault_s = float(fault.read_text()) if fault.exists() else None
    if (directory / "throttled").exists():
        with suppress(OSError):
            Path((directory / "throttled").read_text()).rmdir()
    saved = max(end_s - zero_s, 0.0) if zero_s is not None else 0.0
    return Run(episode, end_s - start_s, state, fault_s, zero_saved_s=saved, start_s=start_s)


def with_action(record: Run, job: str, jobs: dict[str, Episode], hand: Hand, events: Events) -> Run:
    """The run, with the twin's action on it and its promises."""
    actions = hand.journal.actions(event=events.of_job[job].id) if job in events.of_job else []
    if not actions:
        return record
    action = actions[0]
    newest = hand.evidence.of(action.event)[0].finding
    next_job, squeue_s = events.waiting.get(job, ("", None))
    starts = next((outcome["starts"] for outcome in action.plan.outcomes if outcome["choice"] == "cancel"), ())
    twin_s = next((start["start_s"]["middle"] for start in starts if start["job"] == next_job), None)
    promised, low, high = action.promise
    return replace(
        record,
        acted_s=action.begun_s or action.proposed_s,
        found=newest.kind,
        named=newest.ranks,
        promised_s=3600 * promised,
        promised_low_s=3600 * low,
        promised_high_s=3600 * high,
        next_job=jobs[next_job].number if next_job in jobs else None,
        next_twin_s=action.proposed_s + twin_s if twin_s is not None else None,
        next_squeue_s=squeue_s,
    )


def submit(slurm: Slurm, episode: Episode, home: Path) -> str:
    directory = home / str(episode.number)
    directory.mkdir()
    # The launcher starts the ranks itself. Otherwise it would call srun, which these nodes cannot place.
    hidden = " ".join(f"-u {name}" for name in os.environ if name.startswith("SLURM_") and name != "SLURM_CONF")
    names = "-u SLURM_NODELIST -u SLURM_JOB_NODELIST -u SLURM_TASKS_PER_NODE -u SLURM_NNODES -u SLURM_JOB_NUM_NODES"
    program = f"{sys.executable} {PROGRAM} {episode.kind} {max(episode.faulty, 0)} {directory} --after 6 --lasts 40"
    script = f"exec nice -n 15 env {hidden} {names} {MPIEXEC} -launcher fork -n {episode.ranks} {program}"
    options = ("--nodes=1", "--ntasks=4", f"--time={LIMIT_S // 60}", "--mem=1", "--output=/dev/null")
    return slurm.run("sbatch", "--parsable", *options, f"--wrap={script}").strip()


def cpu_of(job: str) -> float | None:
    """CPU time of the job's ranks, as a rule of zero samples reads it; None before they run."""
    from clustertwin.telemetry.diagnosis.job_processes import find_processes
    from clustertwin.telemetry.diagnosis.process_files import look as look_at_process

    looks = [look_at_process(process.pid) for process in find_processes(job).ranks]
    return sum(seen.cpu_s for seen in looks if seen) if looks else None


def accounting(job: str, run: RunCommand) -> tuple[str, float, float]:
    """State, start and end of a job, when sacct knows its end."""
    give_up_s = time.monotonic() + 60
    while True:
        text = run(["sacct", "-X", "-n", "-P", "-j", job, "--format=State,Start,End"]).strip()
        fields = text.split("|")
        if len(fields) == 3 and fields[2][:1].isdigit():
            start_s, end_s = (datetime.fromisoformat(field).timestamp() for field in fields[1:])
            return fields[0].split()[0], start_s, end_s
        if time.monotonic() > give_up_s:
            raise SourceError(f"sacct does not know the end of job {job}: {text}")
        time.sleep(0.5)


def runner(slurm: Slurm) -> RunCommand:
    def run(arguments: list[str]) -> str:
        for again in (arguments[0] in ("squeue", "sacct", "sinfo"), False):  # a busy controller may not answer at once
            done = subprocess.run(list(arguments), env=slurm.env, capture_output=True, text=True, timeout=60)
            if done.returncode == 0:
                return done.stdout
            if not again:
                break
            time.sleep(2)
        raise SourceError(f"{arguments[0]} failed: {done.stderr.strip()[:200]}")

    return run  # type: ignore[return-value]


def report(pairs: list[tuple[Run, Run]]) -> None:
    """The table: recorded, not simulated."""
    hangs = [(a, b) for a, b in pairs if a.episode.hangs]
    rest = [(a, b) for a, b in pairs if not a.episode.hangs]
    acted = [(a, b) for a, b in pairs if b.acted_s is not None]
    named = sum(b.named == (b.episode.faulty,) for a, b in hangs)
    delays = sorted(b.acted_s - b.fault_s for _, b in hangs if b.acted_s is not None and b.fault_s is not None)
    harmed: dict[str, Callable[[Run, Run], bool]] = {
        "twin": lambda a, b: b.acted_s is not None,
        "every sample zero": lambda a, b: a.zero_saved_s > 0 and a.episode.kind != "idle",
        "time limit": lambda a, b: False,
    }
    saved = {
        "twin": sum(a.elapsed_s - b.elapsed_s for a, b in acted),
        "every sample zero": sum(a.zero_saved_s for a, _ in pairs),
        "time limit": 0.0,
    }
    print(f"\n{len(pairs)} paired episodes on a real slurmctld (recorded): {len(hangs)} hangs, {len(rest)} others")
    print(f"faulty rank named: {named} of {len(hangs)}; action after the fault: ", end="")
    print(f"median {delays[len(delays) // 2]:.0f} s, most {delays[-1]:.0f} s" if delays else "none")
    print(f"{'':<20}{'node-seconds saved':>20}{'healthy jobs harmed':>22}")
    for name, wrong in harmed.items():
        print(f"{name:<20}{saved[name]:>20.0f}{sum(wrong(a, b) for a, b in rest):>22}")
    promised = [(b.promised_s, a.elapsed_s - b.elapsed_s, b) for a, b in acted if b.promised_s is not None]
    if promised:
        total, real = sum(p for p, _, _ in promised), sum(m for _, m, _ in promised)
        within = sum(b.promised_low_s <= m <= b.promised_high_s for _, m, b in promised)
        error = sum(abs(p - m) for p, m, _ in promised) / len(promised)
        print(f"promised {total:.0f} node-seconds, measured {real:.0f} ({100 * (total / real - 1):+.0f} %), ", end="")
        print(f"mean absolute error {error:.1f} s; {within} of {len(promised)} in the 80 % interval")
        over = sorted(a.elapsed_s - LIMIT_S for a, _ in acted)
        ended = sorted(b.start_s + b.elapsed_s - b.acted_s for _, b in acted if b.acted_s is not None)
        print(f"left alone, a job ran {over[0]:.0f} to {over[-1]:.0f} s beyond its limit; ", end="")
        print(f"cancelled, it ended after {ended[0]:.0f} to {ended[-1]:.0f} s")
    report_starts(pairs)
    for _, b in pairs:
        if b.acted_s is not None and (not b.episode.hangs or b.named != (b.episode.faulty,)):
            print(
                f"  episode {b.episode.number} is {b.episode.kind}, rank {b.episode.faulty}; found {b.found} {b.named}"
            )


def report_starts(pairs: list[tuple[Run, Run]]) -> None:
    """The start of the job that waits first when the twin acts: predicted by the twin and by Slurm, and real."""
    start_s = {b.episode.number: b.start_s for _, b in pairs}
    known = [b for _, b in pairs if b.next_job in start_s and b.next_twin_s is not None and b.next_squeue_s is not None]
    if not known:
        return
    errors = {
        "twin": sorted(abs(start_s[b.next_job] - b.next_twin_s) for b in known),
        "squeue --start": sorted(abs(start_s[b.next_job] - b.next_squeue_s) for b in known),
    }
    for name, seconds in errors.items():
        middle, most = seconds[len(seconds) // 2], seconds[-1]
        print(f"start of the next waiting job, {name}: median error {middle:.0f} s, most {most:.0f} s ({len(known)})")


if __name__ == "__main__":
    main()
