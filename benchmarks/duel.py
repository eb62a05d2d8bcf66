"""Twin versus Slurm: real MPI jobs with known faults on a real slurmctld, in paired arms. Run: make duel

Both arms submit the same jobs, with the same faults, from the same seed. In the arm `watch` nothing is done, so a job
that hangs runs to its time limit. In the arm `act` the twin's policy cancels by itself. In the same run, on the samples
of the arm `watch`: the rule that cancels a job without CPU time in every sample, and the plain time limit.

Events are opened by this program for every job that runs: the detector's windows are longer than these jobs. The faults
of the jobs are real, and so are the processes, the evidence, the queue, the commands and the accounting.
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
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.slurm import Slurm, reason_to_skip, slurm_cluster

from clustertwin.core.errors import SourceError, TwinError
from clustertwin.service.act.evidence_sources import take_on_this_host
from clustertwin.service.act.hand import Hand
from clustertwin.service.act.hand_settings import HandSettings
from clustertwin.service.act.slurm_commands import RunCommand, read_facts
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.events.event import Event

PROGRAM = Path(__file__).with_name("mpi_program.py")
MPIEXEC = Path(sys.executable).with_name("mpiexec")
HANGS = ("stopped", "blocked-io", "mismatch", "lost-message")
OTHERS = ("idle", "straggler", "healthy-compute", "healthy-exchange", "healthy-io", "healthy-uneven")
LIMIT_S = 120
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if reason := reason_to_skip():
        sys.exit(f"duel: {reason}")
    report(duel(options.episodes, options.at_once, options.seed, options.out))


def duel(episodes: int, at_once: int, seed: int, out: Path | None = None) -> list[tuple[Run, Run]]:
    """Both arms over the same episodes -> (watched, acted) of each."""
    plan = draw(episodes, random.Random(seed))
    compile_simulator()
    with tempfile.TemporaryDirectory(prefix="duel", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        nodes = {f"n{i}": tuple(range(4)) for i in range(1, at_once + 1)}
        with slurm_cluster(Path(directory) / "slurm", nodes) as slurm:
            os.environ |= slurm.env  # evidence and the hand find this cluster
            watched = arm(slurm, plan, at_once, Path(directory) / "watch", acts=False)
            acted = arm(slurm, plan, at_once, Path(directory) / "act", acts=True)
    pairs = list(zip(watched, acted, strict=True))
    if out:
        out.write_text("".join(json.dumps({"watch": asdict(a), "act": asdict(b)}) + "\n" for a, b in pairs))
    return pairs


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


def arm(slurm: Slurm, plan: list[Episode], at_once: int, home: Path, acts: bool) -> list[Run]:
    home.mkdir()
    (home / "policy.toml").write_text(POLICY)
    store = Store(home / "state.sqlite")
    run = runner(slurm)
    hand = Hand(home, store, HandSettings(str(home / "policy.toml")), take_on_this_host, run)
    runs: list[Run] = []
    for first in range(0, len(plan), at_once):
        runs += wave(slurm, plan[first : first + at_once], home, hand if acts else None, run)
        for entry in runs[-at_once:]:
            print(
                f"{'act  ' if acts else 'watch'} {entry.episode.number:3} {entry.episode.kind:<16} {entry.state:<10} "
                f"{entry.elapsed_s:4.0f} s  {entry.found} {list(entry.named) or ''}",
                flush=True,
            )
    store.close()
    return runs


def wave(slurm: Slurm, episodes: list[Episode], home: Path, hand: Hand | None, run: RunCommand) -> list[Run]:
    """Run some jobs at once, and look at each of them every few seconds until all have ended."""
    jobs = {submit(slurm, episode, home): episode for episode in episodes}
    zero: dict[str, int] = dict.fromkeys(jobs, 0)
    cpu: dict[str, float] = {}
    zero_s: dict[str, float] = {}
    events: dict[str, Event] = {}
    while running := [job for job in jobs if is_active(job, run)]:
        begin_s = time.monotonic()
        for job in running:
            used = cpu_of(job)
            zero[job] = zero[job] + 1 if job in cpu and used is not None and used <= cpu[job] + 0.05 else 0
            if used is not None:
                cpu[job] = used
            if zero[job] >= ZERO_SAMPLES:
                zero_s.setdefault(job, time.time())
        if hand is not None:
            look(hand, running, events, run)
        time.sleep(max(SAMPLE_S - (time.monotonic() - begin_s), 0.1))
    return [finished(job, episode, home, hand, events.get(job), zero_s.get(job), run) for job, episode in jobs.items()]


def look(hand: Hand, jobs: list[str], events: dict[str, Event], run: RunCommand) -> None:
    """Open an event when a job has run for ten seconds, and give the evidence of all jobs to the hand."""
    due = []
    for job in jobs:
        facts = read_facts(job, run)
        if facts.state != "RUNNING" or time.time() - facts.start_s < 10:
            continue
        if job not in events:
            places = tuple((node, (0,)) for node in facts.nodes)
            now_s = int(time.time())
            events[job] = Event(f"duel{job}", places, (job,), "root", now_s, now_s, None, 9.0, "duel", "none")
            hand.store.write([(events[job], None)])
        due.append(facts)
    with ThreadPoolExecutor(max(len(due), 1)) as pool:
        taken = [(facts, pool.submit(take_on_this_host, facts.job, facts.uid, facts.nodes)) for facts in due]
        for facts, evidence in taken:
            try:
                hand.judge(events[facts.job], facts, evidence.result(), time.time())
            except TwinError as error:
                print(f"  job {facts.job}: {error}", flush=True)


def finished(
    job: str,
    episode: Episode,
    home: Path,
    hand: Hand | None,
    event: Event | None,
    zero_s: float | None,
    run: RunCommand,
) -> Run:
    state, start_s, end_s = accounting(job, run)
    fault = home / str(episode.number) / "fault"
    fault_s = float(fault.read_text()) if fault.exists() else None
    saved = max(end_s - zero_s, 0.0) if zero_s is not None else 0.0
    record = Run(episode, end_s - start_s, state, fault_s, zero_saved_s=saved)
    actions = hand.journal.actions(event=event.id) if hand is not None and event is not None else []
    if not actions:
        return record
    action = actions[0]
    assert hand is not None
    newest = hand.evidence.of(action.event)[0].finding
    return replace(
        record,
        acted_s=action.proposed_s,
        found=newest.kind,
        named=newest.ranks,
        promised_s=3600 * action.plan.promised_node_hours,
        promised_low_s=3600 * action.plan.promised_low,
        promised_high_s=3600 * action.plan.promised_high,
    )


def submit(slurm: Slurm, episode: Episode, home: Path) -> str:
    directory = home / str(episode.number)
    directory.mkdir()
    # The launcher starts the ranks itself. Otherwise it would call srun, which these nodes cannot place.
    hidden = " ".join(f"-u {name}" for name in os.environ if name.startswith("SLURM_") and name != "SLURM_CONF")
    names = "-u SLURM_NODELIST -u SLURM_JOB_NODELIST -u SLURM_TASKS_PER_NODE -u SLURM_NNODES -u SLURM_JOB_NUM_NODES"
    program = f"{sys.executable} {PROGRAM} {episode.kind} {max(episode.faulty, 0)} {directory} --after 6 --lasts 40"
    script = f"exec env {hidden} {names} {MPIEXEC} -launcher fork -n {episode.ranks} {program}"
    options = ("--nodes=1", f"--ntasks={episode.ranks}", f"--time={LIMIT_S // 60}", "--mem=1", "--output=/dev/null")
    return slurm.run("sbatch", "--parsable", *options, f"--wrap={script}").strip()


def is_active(job: str, run: RunCommand) -> bool:
    try:
        return read_facts(job, run).state in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED")
    except SourceError:
        return False


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
        done = subprocess.run(list(arguments), env=slurm.env, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise SourceError(f"{arguments[0]} failed: {done.stderr.strip()[:200]}")
        return done.stdout

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


if __name__ == "__main__":
    main()
