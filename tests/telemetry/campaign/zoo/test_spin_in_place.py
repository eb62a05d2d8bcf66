"""Real processes spin where they are, make no progress, and go on afterwards with the right result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.zoo import spin_in_place
from clustertwin.telemetry.campaign.zoo.spin_in_place import Spinning, catch_process, release, spinning
from clustertwin.telemetry.diagnosis.process_files import stat_of, threads_of, waiting_of
from clustertwin.telemetry.diagnosis.running_threads import running_threads
from clustertwin.telemetry.diagnosis.stack_snapshot import snapshots

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="programs are made to spin on x86_64 only")

ENDLESS = "print('ready', flush=True)\nwhile True: pass"
#: It computes until it is told to end, and then a checksum of as many rounds as it did.
CHECKSUM = """
import signal, sys, zlib
over = []
signal.signal(signal.SIGUSR1, lambda *_: over.append(1))
print("ready", flush=True)
rounds, total = 0, 0
while not over:
    rounds, total = rounds + 1, zlib.crc32(b"%d" % rounds, total)
print(rounds, total)
"""
#: The lock of Python is free while a checksum is computed, so both threads run.
TWO_THREADS = """
import hashlib, threading
text = b"x" * 5_000_000
def work():
    while True: hashlib.sha256(text).digest()
threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
for thread in threads: thread.start()
print("ready", flush=True)
threads[0].join()
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a command, or Python code, and wait until it prints a line."""
    with ExitStack() as ends:

        def run(*command: str) -> subprocess.Popen[str]:
            words = command if len(command) > 1 else (sys.executable, "-c", *command)
            process = ends.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            ends.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
            return process

        yield run


def cpu_s(pid: int) -> float:
    stat = stat_of(pid)
    assert stat is not None
    return stat.cpu_s


def instructions(pid: int) -> list[int]:
    return [moment.instruction for moment in snapshots([pid], stack_bytes=0)]


def uses_cpu(pid: int) -> bool:
    """Whether it uses CPU time soon: on a busy host its turn may take long."""
    before_s, end_s = cpu_s(pid), time.monotonic() + 30
    while cpu_s(pid) <= before_s + 0.02 and time.monotonic() < end_s:
        time.sleep(0.02)
    return cpu_s(pid) > before_s + 0.02


@pytest.mark.medium
@pytest.mark.real
@pytest.mark.parametrize(
    "command", [(ENDLESS,), ("sh", "-c", "echo ready; while :; do :; done")], ids=["python", "shell"]
)
def test_a_program_that_spins_uses_cpu_time_and_its_registers_stand_still(start, command):
    pid = start(*command).pid
    with spinning(lambda: [pid]):
        before = running_threads(pid), instructions(pid)
        assert uses_cpu(pid)
        after = running_threads(pid), instructions(pid)
        assert before[0] is not None
        assert after[0] is not None
        assert before[0].registers == after[0].registers
        assert before[1] == after[1]
    assert uses_cpu(pid)
    # Some places of a short loop are more likely than others: look until it is at another one.
    assert any(instructions(pid) != before[1] for _ in range(200))


@pytest.mark.medium
@pytest.mark.real
def test_a_program_goes_on_afterwards_with_the_right_result_and_a_second_one_is_not_disturbed(start):
    program, other = start(CHECKSUM), start(CHECKSUM)
    with spinning(lambda: [program.pid]):
        assert uses_cpu(program.pid)
        other.send_signal(signal.SIGUSR1)
        assert_right(other.communicate(timeout=60)[0])
    assert uses_cpu(program.pid)
    program.send_signal(signal.SIGUSR1)
    assert_right(program.communicate(timeout=60)[0])


def assert_right(output: str) -> None:
    rounds, total = map(int, output.split())
    assert rounds > 0
    expected = 0
    for number in range(rounds):
        expected = zlib.crc32(b"%d" % number, expected)
    assert total == expected


@pytest.mark.medium
@pytest.mark.real
def test_all_threads_that_run_spin_and_the_others_wait(start):
    pid = start(TWO_THREADS).pid
    first, *workers = sorted(threads_of(pid))
    caught: dict[int, Spinning] = {}
    end_s = time.monotonic() + 60
    while not caught or len(caught[pid].threads) < 2:
        catch_process(pid, caught)
        assert time.monotonic() < end_s
        time.sleep(0.01)
    process = caught[pid]
    assert process.threads == set(workers)
    assert stat_of(pid, first).state == "S"
    assert 1 <= len(process.replaced) <= 2
    release(process)
    assert not process.replaced
    assert uses_cpu(pid)


@pytest.mark.medium
@pytest.mark.real
def test_a_process_that_sleeps_is_left_alone(start, monkeypatch):
    monkeypatch.setattr(spin_in_place, "WITHIN_S", 0.2)
    pid = start("sh", "-c", "echo ready; exec sleep 60").pid
    while not (waiting_of(pid) and waiting_of(pid).call.endswith("nanosleep")):
        time.sleep(0.01)
    with (
        pytest.raises(SettingsError, match="no process of the job was found in user space within"),
        spinning(lambda: [pid]),
    ):
        pass
    assert stat_of(pid).state == "S"


@pytest.mark.medium
@pytest.mark.real
def test_the_parent_of_a_short_process_that_spins_waits(start):
    shell = start("sh", "-c", f"echo ready; while :; do {sys.executable} -S -c 'sum(range(9**5))'; done")
    children = f"/proc/{shell.pid}/task/{shell.pid}/children"

    def of_shell() -> list[int]:
        with open(children) as file:
            return [int(word) for word in file.read().split()]

    with spinning(of_shell):
        (child,) = of_shell()
        assert uses_cpu(child)
        assert of_shell() == [child]
    end_s = time.monotonic() + 30
    while of_shell() == [child]:
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.medium
@pytest.mark.real
def test_of_one_rank_only_one_process_spins(start):
    pids = [start(ENDLESS).pid for _ in range(2)]
    with spinning(lambda: pids, one=True):
        time.sleep(0.5)
        places = [instructions(pid) for pid in pids]
        moves = [any(instructions(p) != at for _ in range(20)) for p, at in zip(pids, places, strict=True)]
        assert sorted(moves) == [False, True]


@pytest.mark.medium
@pytest.mark.real
def test_a_process_that_was_killed_meanwhile_is_no_error(start):
    program = start(ENDLESS)
    with spinning(lambda: [program.pid]):
        program.kill()
        program.wait()


def test_another_architecture_is_refused(monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "", "", "", "aarch64")))
    with pytest.raises(SettingsError, match="is for x86_64; this host is aarch64"), spinning(list):
        pass


@pytest.mark.medium
@pytest.mark.real
def test_a_refused_ptrace_is_an_error_that_says_so(start, monkeypatch):
    monkeypatch.setattr(spin_in_place, "WITHIN_S", 0.2)
    tracer = start(ENDLESS)

    def refuse(*_: object) -> None:
        raise spin_in_place.CannotAttach("Operation not permitted")

    monkeypatch.setattr(spin_in_place, "ptrace", refuse)
    with pytest.raises(SettingsError, match="ptrace: Operation not permitted"), spinning(lambda: [tracer.pid]):
        pass
