"""Real programs with real faults in jobs of a real Slurm, watched by a real service: episodes -> events and delays.

    python benchmarks/live_faults.py [--only nwchem-stopped bwa-leak …] [--healthy-s 200] [--fault-s 240]
                                     [--cpus 2] [--json FILE]

`--only` takes any program of the zoo with any fault below, and `PROGRAM-healthy`.

One node with the first CPUs of this host, and Slurm's own cgroups. `twin serve` reads the kernel of this host, with the
detector that ships and with evidence of jobs (`hand.on`), as a newcomer would start it. Each episode is a job that
works and then has one known fault; the job is cancelled afterwards. Every event that opens before the fault is
false. It needs root, the packages of deploy/install-test-servers and deploy/install-zoo, and a machine without other
work: what else runs on it is found, too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers import free_port
from tests.slurm import Slurm, reason_to_skip, slurm_cluster

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.zoo.program_inputs import prepare_inputs, program_environment
from clustertwin.telemetry.campaign.zoo.program_table import find_program

MPI_PROGRAM = Path(__file__).with_name("mpi_program.py")
MPIEXEC = Path(sys.executable).with_name("mpiexec")
PAUSE_S = 30.0  # between two jobs
DUTY_S = 0.2
#: The launchers start the ranks themselves. Otherwise they would call srun, which cannot place them on these nodes.
HERE = (
    "unset SLURM_NODELIST SLURM_JOB_NODELIST SLURM_TASKS_PER_NODE SLURM_NNODES SLURM_JOB_NUM_NODES\n"
    "export OMPI_MCA_plm=^slurm OMPI_MCA_ras=^slurm"
)
#: Fault -> causes of events that name it.
RIGHT = {
    "stopped": ("hung-rank", "idle"),
    "straggler": ("straggler", "hung-rank", "idle"),
    "lost-message": ("spinning",),
    "misbound": ("misbound",),
    "spinning": ("spinning",),
    "leak": ("leak",),
    "idle": ("idle",),
    "finished": ("idle",),
    "contention": ("cpu-contention",),
    "throttled": ("throttled",),
    "writers": ("stalled-io", "cpu-contention"),
    "": (),
}


@dataclass(frozen=True, slots=True)
class Episode:
    """A job: a program of the zoo whose fault is imposed, or `mpi_program.py`, which has its fault itself."""

    program: str
    fault: str  # empty: none

    @property
    def name(self) -> str:
        return f"{self.program}-{self.fault or 'healthy'}"

    @classmethod
    def named(cls, name: str) -> Episode:
        for known in EPISODES:
            if known.name == name:
                return known
        program, _, fault = name.rpartition("-")
        if fault not in (*IMPOSED, "leak", "healthy"):
            raise argparse.ArgumentTypeError(f"{name}: the faults are {', '.join(IMPOSED)}, leak and healthy")
        try:
            find_program(program)
        except SettingsError as error:
            raise argparse.ArgumentTypeError(f"{name}: {error}") from None
        return cls(program, "" if fault == "healthy" else fault)


@dataclass(frozen=True, slots=True)
class Outcome:
    episode: str
    false: list[str]  # titles of events before the fault
    causes: list[str]  # of events after it, the first one first
    titles: list[str]
    delay_s: float | None
    named: bool
    evidence: str  # the sentence of the newest look at its processes


EPISODES = (
    Episode("nwchem", "stopped"),
    Episode("mpi", "lost-message"),
    Episode("bwa", "spinning"),
    Episode("nwchem", "spinning"),
    Episode("zstd", "spinning"),
    Episode("cp2k", "straggler"),
    Episode("bwa", "leak"),
    Episode("abinit", "misbound"),
    Episode("hmmer", "contention"),
    Episode("mpi", "idle"),
    Episode("espresso", ""),
)


def processes_of(job: str) -> list[int]:
    """The processes that carry the number of this Slurm job in their environment."""
    found, mark = [], f"SLURM_JOB_ID={job}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def busiest(job: str) -> int:
    def ticks(process: int) -> int:
        with suppress(OSError, IndexError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])
        return -1

    return max(processes_of(job), key=ticks)


def stop_one(job: str, folder: Path, lasts_s: float) -> None:
    del folder
    os.kill(busiest(job), signal.SIGSTOP)
    time.sleep(lasts_s)


def slow_one(job: str, folder: Path, lasts_s: float) -> None:
    """Half of the time of the busiest process is taken from it; of the next one if it ends."""
    del folder
    end_s = time.monotonic() + lasts_s
    while time.monotonic() < end_s:
        with suppress(ProcessLookupError, ValueError):
            slow = busiest(job)
            for _ in range(5):
                os.kill(slow, signal.SIGSTOP)
                time.sleep(DUTY_S / 2)
                os.kill(slow, signal.SIGCONT)
                time.sleep(DUTY_S / 2)


def compute_beside(job: str, folder: Path, lasts_s: float) -> None:
    del job, folder
    subprocess.run(["stress-ng", "--cpu", str(os.cpu_count()), "-q", "-t", str(round(lasts_s))], check=True)


def write_beside(job: str, folder: Path, lasts_s: float) -> None:
    """Two writers outside of the job bypass the page cache of its disk."""
    del job
    fio = ("fio", "--name=hog", "--size=256m", "--rw=randrw", "--bs=64k", "--direct=1", "--ioengine=psync")
    lasts = ("--numjobs=2", "--time_based", f"--runtime={lasts_s:.0f}", "--fsync=8")
    subprocess.run([*fio, *lasts], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def limit_cpu(job: str, folder: Path, lasts_s: float) -> None:
    """A quota leaves the job half of its CPUs. Slurm makes no group of the controller `cpu`, so this does."""
    del folder
    lines = Path(f"/proc/{busiest(job)}/cgroup").read_text().splitlines()
    own = next(line.rpartition(":")[2] for line in lines if ":cpuset:" in line).partition("/step_")[0]
    group = Path("/sys/fs/cgroup/cpu", own.lstrip("/"))
    group.mkdir(parents=True, exist_ok=True)
    (group / "cpu.cfs_quota_us").write_text(str(50_000 * (os.cpu_count() or 1)))
    for process in processes_of(job):
        with suppress(OSError):
            (group / "cgroup.procs").write_text(str(process))
    time.sleep(lasts_s)
    (group / "cpu.cfs_quota_us").write_text("-1")


def bind_to_one(job: str, folder: Path, lasts_s: float) -> None:
    """All processes of the job share the first CPU; those that they start inherit it."""
    del folder
    for process in processes_of(job):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(process, {0})
    time.sleep(lasts_s)


def end_program(job: str, folder: Path, lasts_s: float) -> None:
    """The program ends; its script goes on with a loop on every CPU that waits for a flag, or sleeps."""
    (folder / "over").touch()
    with suppress(ProcessLookupError):
        os.kill(busiest(job), signal.SIGKILL)
    time.sleep(lasts_s)


IMPOSED: dict[str, Callable[[str, Path, float], None]] = {
    "stopped": stop_one,
    "straggler": slow_one,
    "contention": compute_beside,
    "throttled": limit_cpu,
    "writers": write_beside,
    "misbound": bind_to_one,
    "spinning": end_program,
    "finished": end_program,
}


def script_of(episode: Episode, folder: Path, inputs: Path, cpus: int, phases_s: tuple[float, float]) -> str:
    """The shell script of the job; `phases_s` is when its own fault begins, and when it ends."""
    healthy_s, lasts_s = phases_s
    if episode.program == "mpi":
        options = f"{episode.fault or 'healthy-exchange'} 1 {folder} --after {healthy_s} --lasts {lasts_s}"
        return f"{HERE}\nexec {MPIEXEC} -launcher fork -n {cpus} {sys.executable} {MPI_PROGRAM} {options}"
    program = find_program(episode.program)
    loop = f"while [ ! -e over ]; do\n{{ {program.command}\n}} >output 2>&1 </dev/null || sleep 0.2\ndone"
    if episode.fault == "spinning":
        (folder / "waits.c").write_text("int main(void) { volatile int flag = 0; while (!flag); }\n")
        subprocess.run(["gcc", "-o", str(folder / "waits"), str(folder / "waits.c")], check=True)
        loop += "".join(f"\n{folder}/waits &" for _ in range(cpus)) + "\nwait"
    if episode.fault == "finished":
        loop += "\nsleep infinity"
    if episode.fault == "leak":
        grow = Path(sys.modules[find_program.__module__].__file__ or "").parent / "hogs" / "grow_memory.py"
        loop = f"(sleep {healthy_s}; date +%s.%N >{folder}/fault; exec {sys.executable} {grow} 10 6000) &\n{loop}"
    exports = "\n".join(
        f"export {name}={value!r}"
        for name, value in program_environment(inputs, cpus, program.kind).items()
        if os.environ.get(name) != value
    )
    return f"{HERE}\n{exports}\n{loop}"


def run_episode(episode: Episode, slurm: Slurm, service: str, cache: Path, options: argparse.Namespace) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix=f"{episode.name}-", dir=cache))
    inputs = cache if episode.program == "mpi" else prepare_inputs(episode.program, cache)
    lasts_s = options.healthy_s + options.fault_s + 120
    script = folder / "job.sh"
    script.write_text(
        f"#!/bin/bash\n{script_of(episode, folder, inputs, options.cpus, (options.healthy_s, lasts_s))}\n"
    )
    asked = ("--parsable", "-n", str(options.cpus), "-t", "60", "-D", str(folder), "-J", episode.program)
    job = slurm.run("sbatch", *asked, "-o", "/dev/null", str(script)).strip()
    url = f"{service}/api/v1/events?limit=100"
    before = {event["id"] for event in ask(url)["events"]}
    opened_s: dict[str, float] = {}
    events: dict[str, dict[str, Any]] = {}
    fault_s = time.time() + options.healthy_s
    with ThreadPoolExecutor() as pool:
        impose = IMPOSED.get(episode.fault, lambda *arguments: time.sleep(arguments[-1]))
        fault = pool.submit(lambda: (time.sleep(fault_s - time.time()), impose(job, folder, options.fault_s)))
        while not fault.done():
            time.sleep(2.0)
            for event in (event for event in ask(url)["events"] if event["id"] not in before):
                opened_s.setdefault(event["id"], time.time())
                events[event["id"]] = event
        fault.result()
    if (folder / "fault").exists():
        fault_s = float((folder / "fault").read_text())
    looks = [look for event in events for look in ask(f"{service}/api/v1/evidence/{event}")]
    sentence = str(looks[0]["finding"]["sentence"]) if looks else ""
    slurm.run("scancel", "--signal=KILL", "--full", job)
    slurm.run("scancel", job)
    after = [event for key, event in events.items() if episode.fault and opened_s[key] > fault_s]
    return Outcome(
        episode.name,
        [event["title"] for event in events.values() if event not in after],
        [event["cause"] for event in after],
        [event["title"] for event in after],
        round(opened_s[after[0]["id"]] - fault_s) if after else None,
        any(event["cause"] in RIGHT[episode.fault] for event in after),
        sentence,
    )


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


@contextmanager
def running_service(slurm: Slurm, folder: Path) -> Iterator[str]:
    """`twin serve` on this host, with evidence -> its address."""
    port = free_port()
    config = folder / "twin.toml"
    config.write_text(f'[service]\nport = {port}\nhome = "{folder}/home"\n[hand]\non = true\n')
    with (folder / "service.log").open("wb") as log:
        command = (str(Path(sys.executable).with_name("twin")), "serve", "--config", str(config))
        process = subprocess.Popen(command, env=slurm.env, stdout=log, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            with suppress(OSError), urllib.request.urlopen(f"{address}/healthz", timeout=5):
                break
            time.sleep(0.5)
        else:
            sys.exit(f"the service did not start:\n{(folder / 'service.log').read_text()[-2000:]}")
        yield address
    finally:
        process.terminate()
        process.wait(60)


def print_table(outcomes: list[Outcome]) -> None:
    print("| episode (recorded, live) | false events | found as | delay | named |\n|---|---|---|---|---|")
    for each in outcomes:
        delay = "" if each.delay_s is None else f"{each.delay_s:.0f} s"
        found = ", ".join(each.causes) or ("" if each.episode.endswith("healthy") else "not found")
        print(f"| {each.episode} | {len(each.false)} | {found} | {delay} | {'yes' if each.named else ''} |")
    for each in outcomes:
        lines = (*each.false, *each.titles, *filter(None, [each.evidence]))
        print("\n".join(f"{each.episode}: {line}" for line in lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", type=Episode.named, default=EPISODES, metavar="PROGRAM-FAULT")
    parser.add_argument("--healthy-s", type=float, default=200.0)
    parser.add_argument("--fault-s", type=float, default=240.0)
    parser.add_argument("--cpus", type=int, default=os.cpu_count(), help="of each job, beginning with the first")
    parser.add_argument("--cache", type=Path, help="inputs of the programs, and the service's home and log")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file too")
    options = parser.parse_args()
    if reason := reason_to_skip():
        sys.exit(f"live faults: {reason}")
    cache = options.cache or Path(tempfile.mkdtemp(prefix="live-faults-"))
    cache.mkdir(parents=True, exist_ok=True)
    cpus = tuple(range(options.cpus))
    outcomes = []
    site = Path(tempfile.mkdtemp(prefix="live-slurm-"))
    name = os.uname().nodename.partition(".")[0]  # evidence is taken of jobs whose node Slurm and the service agree on
    with slurm_cluster(site, {name: cpus}, cgroups=True) as slurm, running_service(slurm, cache) as service:
        for episode in options.only:
            outcomes.append(run_episode(episode, slurm, service, cache, options))
            print(json.dumps(asdict(outcomes[-1])), file=sys.stderr, flush=True)
            time.sleep(PAUSE_S)
    print_table(outcomes)
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1))


if __name__ == "__main__":
    main()
