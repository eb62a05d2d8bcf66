"""Agreement with two published simulators, job by job, and with a slow simulator written here from the definitions."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator import simulate


def naive(jobs: Jobs, procs: int, key, easy: bool, hold: bool) -> list[float]:
    """One event at a time, everything recomputed: submissions first, then ends in the order of starts."""
    n, starts, order = len(jobs), {}, []
    estimate_s = np.maximum(jobs.request_s, jobs.run_s)
    waiting: list[int] = []
    head = None
    held: set[int] = set()

    def free(time_s: float) -> int:
        return procs - sum(jobs.cpus[j] for j in held if starts[j] + estimate_s[j] > time_s)

    def start(job: int, time_s: float) -> None:
        starts[job] = time_s
        order.append(job)
        held.add(job)

    def decide(time_s: float) -> None:
        nonlocal head
        if not hold and head is not None:
            waiting.append(head)
            head = None
        while head is not None or waiting:
            if head is None:
                head = min(waiting, key=lambda j: (key(jobs, j, time_s), j))
                waiting.remove(head)
            if jobs.cpus[head] > free(time_s):
                break
            start(head, time_s)
            head = None
        if not easy or head is None:
            return
        moments = sorted(starts[j] + estimate_s[j] for j in held if starts[j] + estimate_s[j] > time_s)
        shadow_s = next(moment for moment in moments if free(moment) >= jobs.cpus[head])
        for job in sorted(waiting, key=lambda j: (key(jobs, j, time_s), j)):
            ends_before = time_s + estimate_s[job] <= shadow_s
            beside = jobs.cpus[job] <= free(shadow_s) - jobs.cpus[head]
            if jobs.cpus[job] <= free(time_s) and (ends_before or beside):
                waiting.remove(job)
                start(job, time_s)

    coming = list(range(n))
    while coming or held:
        ends = [(starts[j] + jobs.run_s[j], order.index(j), j) for j in held]
        if coming and (not ends or jobs.submit_s[coming[0]] <= min(ends)[0]):
            job = coming.pop(0)
            time_s = jobs.submit_s[job]
            waiting.append(job)
        else:
            time_s, _, job = min(ends)
            held.remove(job)
        decide(time_s)
    return [starts[j] for j in range(n)]


KEYS = {
    "fcfs": lambda jobs, j, t: jobs.submit_s[j],
    "sjf": lambda jobs, j, t: jobs.request_s[j],
    "smallest": lambda jobs, j, t: jobs.cpus[j],
    "wfp3": lambda jobs, j, t: -(((t - jobs.submit_s[j]) / jobs.request_s[j]) ** 3) * jobs.cpus[j],
}


@pytest.mark.medium
@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("policy", ["fcfs", "sjf", "smallest", "wfp3"])
def test_easy_agrees_with_a_slow_simulator(policy: str, hold: bool):
    for seed in range(15):
        rng = np.random.default_rng(seed)
        n, procs = 40, 16
        jobs = Jobs.build(
            np.cumsum(rng.integers(0, 9, n)),
            rng.integers(1, 30, n),
            request_s=rng.integers(1, 40, n),
            cpus=rng.integers(1, procs + 1, n),
        )
        expected = naive(jobs, procs, KEYS[policy], easy=True, hold=hold)
        assert simulate(jobs, procs, policy, "easy", hold=hold).start_s.tolist() == expected


def odd_log(rng: np.random.Generator, n: int = 14) -> Jobs:
    """Lines in no order, many ties, run times of 0, limits below them, jobs without a limit, a size or a run time."""
    ids = rng.permutation(np.arange(1, n + 1))
    return Jobs.build(
        rng.integers(0, 8, n),
        rng.integers(-1, 6, n),
        id=ids,
        request_s=rng.integers(-1, 6, n),
        cpus=rng.choice([-1, 0, 1, 1, 2, 2, 3, 4, 5], n),
    )


def admitted_by_hand(jobs: Jobs, procs: int) -> Jobs:
    """What can run, by submission and then by number; a job without a limit is planned with its run time."""
    kept = [j for j in range(len(jobs)) if jobs.run_s[j] >= 0 and 1 <= jobs.cpus[j] <= procs]
    kept.sort(key=lambda j: (jobs.submit_s[j], jobs.id[j]))
    request_s = [jobs.request_s[j] if jobs.request_s[j] > 0 else jobs.run_s[j] for j in kept]
    rows = np.array(kept)
    return Jobs.build(
        jobs.submit_s[rows], jobs.run_s[rows], id=jobs.id[rows], cpus=jobs.cpus[rows],
        request_s=np.maximum(request_s, 1),  # a plan takes at least a second
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["fcfs", "smallest"])
def test_easy_agrees_with_a_slow_simulator_on_odd_logs(policy: str):
    compared = 0
    for seed in range(150):
        jobs = odd_log(np.random.default_rng(seed))
        plain = admitted_by_hand(jobs, 4)
        expected = dict(zip(plain.id.tolist(), naive(plain, 4, KEYS[policy], easy=True, hold=True), strict=True))
        schedule = simulate(jobs, 4, policy, "easy", hold=True)
        assert dict(zip(schedule.jobs.id.tolist(), schedule.start_s.tolist(), strict=True)) == expected, seed
        refused = sum(len(ids) for remark, ids in schedule.remarks.items() if remark.startswith("refused"))
        assert refused >= len(jobs) - len(plain)  # a job may be refused for two reasons
        compared += len(plain)
    assert compared > 800


def swf(path: Path) -> np.ndarray:
    """The numbers of an SWF file in the order of submission; ties in the order of job numbers."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    table = np.loadtxt(text.decode().splitlines(), comments=";")
    return table[np.lexsort((table[:, 0], table[:, 1]))]


def as_jobs(table: np.ndarray) -> Jobs:
    return Jobs.build(table[:, 1], table[:, 3], cpus=table[:, 4], request_s=table[:, 8], user=table[:, 11])


@pytest.mark.parametrize("log", ["lublin-1", "lublin-2"])
@pytest.mark.parametrize("policy", ["fcfs", "sjf", "f1"])
def test_rlschedulers_cells_sample_by_sample(data: Path, log: str, policy: str):
    cells = json.loads((data / "traces/rlscheduler-cells.json").read_text())[log]
    jobs = as_jobs(swf(data / f"traces/swf/{log}.swf"))
    means = [
        simulate(jobs.take(slice(start, start + cells["jobs_per_sample"])), 256, policy).bounded_slowdown(10).mean()
        for start in cells["starts"]
    ]
    assert means == pytest.approx(cells["per_sample"][policy], abs=1e-6)  # the precision of the file


@pytest.mark.medium
@pytest.mark.parametrize(("log", "procs", "slowdown"), [("KTH-SP2", 100, 92.577), ("SDSC-SP2", 128, 87.870)])
def test_easy_agrees_with_pyss_on_every_job(data: Path, log: str, procs: int, slowdown: float):
    table = swf(data / f"traces/easy-schedules/{log}.easy.swf.gz")
    schedule = simulate(as_jobs(table), procs, "fcfs", "easy")
    assert (schedule.wait_s == table[:, 2]).all()
    assert schedule.bounded_slowdown(10).mean() == pytest.approx(slowdown, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("log", ["KTH-SP2", "SDSC-SP2"])
def test_the_command_agrees_with_pyss_on_every_job(data: Path, tmp_path: Path, twin_here, log: str, lenient: bool):
    path = data / f"traces/easy-schedules/{log}.easy.swf.gz"
    expected = swf(path)
    if not lenient:  # the published file is in the order of ends, which a strict reader refuses
        header = [line for line in gzip.decompress(path.read_bytes()).decode().splitlines() if line.startswith(";")]
        path = tmp_path / "sorted.swf"
        np.savetxt(path, expected, fmt="%d", header="\n".join(header), comments="")
    out = tmp_path / "schedule.swf"
    done = twin_here("sched", "simulate", path, *["--lenient"][:lenient], "--backfill", "easy", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    schedule = swf(out)
    assert (schedule[:, 0] == expected[:, 0]).all()
    assert (schedule[:, 2] == expected[:, 2]).all()


@pytest.mark.parametrize(("log", "wfp3", "unicep"), [("lublin-1", 337, 382), ("lublin-2", 807, 830)])
def test_wfp3_and_unicep_with_the_wait_at_the_decision(data: Path, log: str, wfp3: int, unicep: int):
    cells = json.loads((data / "traces/rlscheduler-cells.json").read_text())[log]
    jobs = as_jobs(swf(data / f"traces/swf/{log}.swf"))
    samples = [jobs.take(slice(start, start + 1024)) for start in cells["starts"]]
    means = {p: np.mean([simulate(s, 256, p).bounded_slowdown().mean() for s in samples]) for p in ("wfp3", "unicep")}
    assert {name: round(mean) for name, mean in means.items()} == {"wfp3": wfp3, "unicep": unicep}
