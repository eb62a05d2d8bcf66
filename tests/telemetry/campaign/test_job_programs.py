"""Each job program runs and has its intended effect on CPU time, page faults, written bytes and sleep.

Only the accounting of the processes themselves is read, so that a busy host does not disturb the tests.
"""

from __future__ import annotations

import mmap
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from clustertwin.telemetry.campaign.jobs import neighbour, swap_bursts
from clustertwin.telemetry.campaign.jobs.bad_io import DirectFile

CPUS = tuple(sorted(os.sched_getaffinity(0)))[:2]
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
WORK_WITHIN_S = 120.0
ENOUGH_WITHIN_S = 120.0


@dataclass(frozen=True)
class Account:
    """The resources that a process has used so far."""

    user_s: float
    system_s: float
    written_bytes: int  # handed to write()
    stored_bytes: int  # sent to the disk
    rss_bytes: int

    def __sub__(self, other: Account) -> Account:
        return Account(*(getattr(self, name) - getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


def account(process: psutil.Process) -> Account:
    times, io = process.cpu_times(), process.io_counters()
    return Account(times.user, times.system, io.write_chars, io.write_bytes, process.memory_info().rss)


@contextmanager
def job(kind: str, scratch: Path, onset_s: float = 0.0, seconds: float = 60.0) -> Iterator[list[psutil.Process]]:
    """Run a job; yields its pinned processes, which are its workers or ranks, in order of CPU."""
    cpus = ",".join(map(str, CPUS))
    command = [sys.executable, "-m", "clustertwin.telemetry.campaign.supervisor", "--type", kind, "--cpus", cpus]
    options = ["--seconds", str(seconds), "--scratch", str(scratch / "job"), "--onset-s", str(onset_s)]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as supervisor:
        try:
            yield _workers(supervisor)
        finally:
            supervisor.terminate()
            supervisor.communicate()


def _workers(supervisor: subprocess.Popen[str]) -> list[psutil.Process]:
    end_s = time.monotonic() + WORK_WITHIN_S
    while time.monotonic() < end_s and supervisor.poll() is None:
        try:
            children = psutil.Process(supervisor.pid).children(recursive=True)
            pinned = [p for p in children if len(p.cpu_affinity() or ()) == 1 and not p.children()]
        except psutil.NoSuchProcess:
            continue
        if len(pinned) >= len(CPUS):
            return sorted(pinned, key=lambda p: (p.cpu_affinity(), p.pid))
        time.sleep(0.05)
    pytest.fail(
        f"no workers: {supervisor.stderr.read() if supervisor.stderr and supervisor.poll() is not None else ''}"
    )


def used(workers: list[psutil.Process], seconds: float) -> list[Account]:
    """The resources that each worker uses in this time."""
    before = [account(worker) for worker in workers]
    time.sleep(seconds)
    return [account(worker) - was for worker, was in zip(workers, before, strict=True)]


def used_until(workers: list[psutil.Process], enough: Callable[[Account], bool]) -> list[Account]:
    """The resources that the workers have used when each has used enough: on a busy host that takes longer."""
    before = [account(worker) for worker in workers]
    end_s = time.monotonic() + ENOUGH_WITHIN_S
    while True:
        time.sleep(0.1)
        spent = [account(worker) - was for worker, was in zip(workers, before, strict=True)]
        if all(map(enough, spent)):
            return spent
        assert time.monotonic() < end_s, spent


def run_ns(worker: psutil.Process) -> int:
    """CPU time by the scheduler's clock, which counts nanoseconds; process accounting counts ticks."""
    return int(Path(f"/proc/{worker.pid}/schedstat").read_text().split()[0])


def states(worker: psutil.Process, seconds: float) -> set[str]:
    """The states it had. A busy-waiting process never sleeps, even if another process has its CPU."""
    end_s, observed = time.monotonic() + seconds, set()
    while time.monotonic() < end_s:
        observed.add(worker.status())
        time.sleep(0.017)
    return observed


@pytest.mark.slow
@two_cpus
def test_np_computes_on_each_of_its_cpus(tmp_path: Path) -> None:
    with job("np", tmp_path) as workers:
        assert [worker.cpu_affinity() for worker in workers] == [[cpu] for cpu in CPUS]
        for spent in used_until(workers, lambda spent: spent.cpu_s > 1.0):
            assert spent.user_s > 3 * spent.system_s  # its first page faults included


@pytest.mark.slow
@two_cpus
def test_a_hung_job_stops_altogether(tmp_path: Path) -> None:
    with job("hung-job", tmp_path) as workers:
        time.sleep(0.5)
        assert [spent.cpu_s for spent in used(workers, 1.0)] == [0.0] * len(workers)


@pytest.mark.slow
@two_cpus
def test_good_io_writes_much_and_bad_io_has_it_all_on_the_disk(tmp_path: Path) -> None:
    with job("good-io", tmp_path) as workers:
        used_until(workers, lambda spent: spent.written_bytes > 10 << 20)
    with job("bad-io", tmp_path) as workers:
        for spent in used_until(workers, lambda spent: spent.written_bytes > 2 << 20):
            assert spent.stored_bytes >= spent.written_bytes - (1 << 20)


@pytest.mark.slow
@two_cpus
def test_the_peers_of_a_hung_rank_wait_busily(tmp_path: Path) -> None:
    with job("hung-rank", tmp_path) as (first, last):
        end_s = time.monotonic() + ENOUGH_WITHIN_S
        while used([last], 1.0)[0].cpu_s:  # it hangs after its first step, which takes longer on a busy host
            assert time.monotonic() < end_s
        before, ran_ns = account(last), run_ns(first)
        assert psutil.STATUS_SLEEPING not in states(first, 1.0)
        assert run_ns(first) > ran_ns
        assert (account(last) - before).cpu_s == 0.0
        assert last.status() != psutil.STATUS_RUNNING


@pytest.mark.slow
@two_cpus
def test_ranks_wait_for_a_straggler_in_the_kernel(tmp_path: Path) -> None:
    with job("straggler-x2", tmp_path) as (first, straggler):
        time.sleep(1.0)  # beyond its start
        before = account(first), account(straggler)
        assert psutil.STATUS_SLEEPING not in states(first, 4.0)
        waiting, late = account(first) - before[0], account(straggler) - before[1]
        # It yields its CPU repeatedly: to no process, which costs system time, or to another one.
        assert waiting.system_s > late.system_s or waiting.user_s < late.user_s


@pytest.mark.slow
@two_cpus
def test_misbound_ranks_share_one_cpu(tmp_path: Path) -> None:
    with job("misbound", tmp_path) as workers:
        assert [worker.cpu_affinity() for worker in workers] == [[CPUS[0]]] * 2


@pytest.mark.slow
@two_cpus
def test_a_throttled_worker_is_stopped_part_of_the_time(tmp_path: Path) -> None:
    with job("throttled", tmp_path) as (_, throttled):
        observed, end_s = set[str](), time.monotonic() + ENOUGH_WITHIN_S
        while not (psutil.STATUS_STOPPED in observed and observed - {psutil.STATUS_STOPPED}):
            observed |= states(throttled, 1.0)
            assert time.monotonic() < end_s, observed
        assert used([throttled], 2.0)[0].cpu_s < 0.85 * 2.0


@pytest.mark.slow
@two_cpus
def test_slow_io_writes_ever_more(tmp_path: Path) -> None:
    with job("slow-io", tmp_path, seconds=20.0) as workers:
        stored = [sum(spent.stored_bytes for spent in used(workers, 1.0)) for _ in range(2)]
        while stored[-1] <= stored[0] and len(stored) < 18:  # another process may have had the disk
            stored.append(sum(spent.stored_bytes for spent in used(workers, 1.0)))
        assert stored[-1] > stored[0]


@pytest.mark.slow
@two_cpus
def test_a_leak_grows_and_is_capped(tmp_path: Path) -> None:
    with job("memory-leak", tmp_path, seconds=20.0) as workers:
        used_until(workers, lambda spent: spent.rss_bytes > 25 << 20)
    program = "clustertwin.telemetry.campaign.jobs.leak"
    options = ["--cpus", str(CPUS[0]), "--scratch", str(tmp_path), "--seconds", "0.1", "--cap-mb", "40"]
    with subprocess.Popen([sys.executable, "-m", program, *options]) as process:
        try:
            parent, end_s, grown = psutil.Process(process.pid), time.monotonic() + ENOUGH_WITHIN_S, 0
            while grown < 30 << 20:
                assert time.monotonic() < end_s
                time.sleep(0.1)
                rss = [worker.memory_info().rss for worker in parent.children()]
                grown = sum(rss) - parent.memory_info().rss if rss else 0
            time.sleep(1.5)  # three more cycles
            (worker,) = parent.children()
            assert worker.memory_info().rss - parent.memory_info().rss < 60 << 20
        finally:
            process.terminate()


def test_a_burst_is_page_faults(tmp_path: Path) -> None:
    region = mmap.mmap(-1, swap_bursts.REGION_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    region.madvise(mmap.MADV_NOHUGEPAGE)
    before = resource.getrusage(resource.RUSAGE_SELF)
    swap_bursts.fault(region, 0.05)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_minflt - before.ru_minflt >= swap_bursts.REGION_BYTES // mmap.PAGESIZE
    assert after.ru_stime > before.ru_stime


def test_a_neighbour_copies_and_compresses(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"abcd" * neighbour.BLOCK_BYTES)  # four blocks, of which the first is compressed
    looks = iter([0.0] * 5 + [1.0])  # before the pass and before each block; time is up after one pass
    neighbour.copy_and_compress(tmp_path / "in", tmp_path / "out", until_s=1.0, clock=lambda: next(looks))
    assert 3 * neighbour.BLOCK_BYTES < (tmp_path / "out").stat().st_size < 4 * neighbour.BLOCK_BYTES


def test_a_direct_file_never_grows(tmp_path: Path) -> None:
    file, rng = DirectFile(tmp_path / "f", size_bytes=4 << 16, block_bytes=1 << 16), random.Random(0)
    for _ in range(20):
        file.write_random_block(rng)
    assert (tmp_path / "f").stat().st_size == 4 << 16
    os.close(file.fd)
