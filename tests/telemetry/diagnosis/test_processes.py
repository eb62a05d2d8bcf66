"""Evidence of real processes: those that block, end, fork, are in state D, or belong to another user."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.diagnosis.evidence import to_json
from clustertwin.telemetry.diagnosis.job_processes import JobProcesses, RankProcess, find_processes, find_tree
from clustertwin.telemetry.diagnosis.kernel.ptrace import DETACH, INTERRUPT, SEIZE, ptrace, wait_until_stopped
from clustertwin.telemetry.diagnosis.memory_signatures import present_pages, private_signature
from clustertwin.telemetry.diagnosis.odd_rank import find
from clustertwin.telemetry.diagnosis.process_files import look
from clustertwin.telemetry.diagnosis.running_threads import running_threads
from clustertwin.telemetry.diagnosis.stack_tools import native_stack, tool
from clustertwin.telemetry.diagnosis.take_evidence import Budget, take

QUICK = Budget(window_s=0.3)
SPIN_CODE = """
import ctypes
library, lock = ctypes.CDLL(None), ctypes.byref(ctypes.c_int())
library.pthread_spin_init(lock, 0)
library.pthread_spin_lock(lock)
print("ready", flush=True)
library.pthread_spin_lock(lock)  # a second time: it waits for itself
"""
UNTOUCHED_CODE = """
import ctypes, mmap
memory = mmap.mmap(-1, 1 << 16, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
print(ctypes.addressof(ctypes.c_char.from_buffer(memory)), flush=True)
while True:
    pass
"""
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python code, and wait until it prints a line."""
    processes = []

    def run(code: str, shell: bool = False, **options) -> subprocess.Popen[bytes]:
        command = ["/bin/sh", "-c", code] if shell else [sys.executable, "-c", code]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/", **options)
        processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield run
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def only(process: subprocess.Popen[bytes]) -> JobProcesses:
    seen = look(process.pid)
    assert seen is not None
    return JobProcesses((RankProcess(process.pid, seen.started_ticks, None),), None, 1, 0)


def settled(process: subprocess.Popen[bytes], state: str) -> None:
    """Wait until the kernel shows this state."""
    end_s = time.monotonic() + 90
    while (seen := look(process.pid)) is None or seen.state not in state:
        assert time.monotonic() < end_s, seen
        time.sleep(0.02)


@pytest.mark.medium
@pytest.mark.parametrize("last", [False, True])
def test_the_time_of_a_wait_is_by_the_clock_of_its_cpu(start, last):
    """The clocks of CPUs differ by what a hypervisor took from each, and by their interrupts."""
    allowed = os.sched_getaffinity(0)
    own, other = sorted((min(allowed), max(allowed)), reverse=last)
    begin_s = time.time()
    program = f"import os, time; os.sched_setaffinity(0, {{{other}}}); print('ready', flush=True); time.sleep(1e4)"
    process = start(program)
    settled(process, "S")
    os.sched_setaffinity(0, {own})
    try:
        seen = take("1", only(process), "n1", QUICK).processes[0]
        assert os.sched_getaffinity(0) == {own}
    finally:
        os.sched_setaffinity(0, allowed)
    assert begin_s - 1 < seen.since_s < time.time() - QUICK.window_s / 2


@pytest.mark.medium
def test_a_blocked_read_names_its_file(start, tmp_path):
    fifo = tmp_path / "endless"
    os.mkfifo(fifo)
    begin_s = time.time()
    process = start(f"import os; f = os.open({str(fifo)!r}, os.O_RDWR); print('ready', flush=True); os.read(f, 1)")
    settled(process, "S")
    seen = take("1", only(process), "n1", QUICK).processes[0]
    assert seen.does == "blocked"
    assert seen.waiting is not None
    assert (seen.waiting.call, seen.waiting.target) == ("read", str(fifo))
    assert seen.since_s is not None
    assert begin_s - 1 < seen.since_s <= time.time() + 1


@pytest.mark.medium
def test_a_stopped_process_stays_stopped_and_a_running_one_runs(start):
    stopped = start("import time; print('ready', flush=True); time.sleep(60)")
    os.kill(stopped.pid, signal.SIGSTOP)
    settled(stopped, "T")
    running = start("print('ready', flush=True)\nwhile True: pass")
    assert take("1", only(stopped), "n1", QUICK).processes[0].does == "stopped"
    seen = take("1", only(running), "n1", QUICK).processes[0]
    settled(stopped, "T")
    settled(running, "R")
    assert seen.does in ("computes", "spins")
    assert seen.stopped_ms > 0  # benchmarks/hangs.py reports how long; here another process may have the CPU


def test_a_process_that_runs_between_two_stops_is_not_stopped(start):
    process = start("print('ready', flush=True)\nwhile True: pass")
    os.kill(process.pid, signal.SIGSTOP)
    settled(process, "T")
    begin = look(process.pid)
    assert begin is not None

    def continue_and_stop(_: float) -> None:  # as cpulimit does
        os.kill(process.pid, signal.SIGCONT)
        end_s = time.monotonic() + 90
        while (seen := look(process.pid)) is not None and seen.cpu_s == begin.cpu_s:
            assert time.monotonic() < end_s
        os.kill(process.pid, signal.SIGSTOP)
        settled(process, "T")

    assert take("1", only(process), "n1", QUICK, sleep=continue_and_stop).processes[0].does == "computes"


@pytest.mark.skipif(tool("eu-stack") is None or os.uname().machine != "x86_64", reason="needs eu-stack and x86_64")
def test_the_native_stack_is_that_of_the_system_call(start):
    process = start("import time; print('ready', flush=True); time.sleep(60)")
    settled(process, "S")
    frames = native_stack(process.pid).frames
    assert any("nanosleep" in frame for frame in frames[:3]), frames
    assert any(frame.startswith("_start") for frame in frames), frames


@pytest.mark.medium
def test_a_loop_that_writes_memory_computes(start):
    process = start("print('ready', flush=True)\nn = [0] * 50_000\nwhile True:\n  for i in range(50_000): n[i] += i")
    assert take("1", only(process), "n1", QUICK).processes[0].does == "computes"


def test_a_process_that_ends_between_the_looks_has_ended(start):
    process = start("import time; print('ready', flush=True); time.sleep(60)")
    processes = only(process)

    def kill(_: float) -> None:
        process.kill()
        process.wait()

    evidence = take("1", processes, "n1", QUICK, sleep=kill)
    assert evidence.processes[0].does == "ended"
    assert not find(evidence).hang


@pytest.mark.medium
def test_a_pid_that_is_used_again_is_another_process(start):
    process = start("import time; print('ready', flush=True); time.sleep(60)")
    earlier = JobProcesses((RankProcess(process.pid, 1, None),), None, 1, 0)
    assert take("1", earlier, "n1", QUICK).processes[0].does == "ended"


@pytest.mark.medium
def test_a_process_in_state_d_is_looked_at_and_not_attached_to(start, tmp_path):
    fifo = tmp_path / "endless"
    os.mkfifo(fifo)
    # posix_spawn holds the parent in state D until the child, which opens the FIFO first, has called exec.
    code = f"""import os, sys; print('ready', flush=True)
os.posix_spawn('/bin/true', ['true'], {{}}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, {str(fifo)!r}, os.O_RDONLY, 0)])"""
    process = start(code)
    settled(process, "D")
    seen = take("1", only(process), "n1", QUICK).processes[0]
    assert (seen.does, seen.stopped_ms) == ("blocked", 0.0)
    with fifo.open("w"):  # the child goes on, and so does the parent
        assert process.wait(timeout=90) == 0


@pytest.mark.medium
def test_a_child_that_a_rank_forked_is_not_the_rank(start):
    environment = {**os.environ, "PMI_RANK": "5", "PMI_SIZE": "8"}
    code = """import os, time
if os.fork() == 0:
    time.sleep(60)
end = time.monotonic() + .3
while time.monotonic() < end: pass
print('ready', flush=True); time.sleep(60)"""
    process = start(code, env=environment)
    found = find_tree(process.pid)
    assert [(rank.pid, rank.rank) for rank in found.ranks] == [(process.pid, 5)]
    assert found.size == 8
    for rank in (child for child in os.popen(f"pgrep -P {process.pid}").read().split()):
        os.kill(int(rank), signal.SIGKILL)


@pytest.mark.medium
def test_the_id_of_a_job_in_the_environment_finds_its_processes(start):
    environment = {
        **os.environ,
        "SLURM_JOB_ID": "77123",
        "SLURM_PROCID": "1",
        "SLURM_STEP_NUM_TASKS": "2",
        "SECRET": "hunter2",
    }
    process = start("import time; print('ready', flush=True); time.sleep(60)", env=environment)
    found = find_processes("77123")
    assert [rank.pid for rank in found.ranks] == [process.pid]
    data = to_json(take("77123", found, "n1", QUICK))
    assert b"hunter2" not in data
    assert b"sleep(60)" not in data  # nor the arguments


def test_a_job_that_is_not_here_has_no_process():
    assert find_processes("no-such-job-99").ranks == ()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to start processes of another user")
def test_processes_of_another_user_are_refused(start):
    environment = {**os.environ, "SLURM_JOB_ID": "77124"}
    start("echo ready; exec sleep 60", shell=True, env=environment, user="nobody")
    mine = start("echo ready; exec sleep 60", shell=True, env=environment, user="daemon")
    with pytest.raises(SettingsError, match="several users"):
        find_processes("77124")
    uid = os.stat(f"/proc/{mine.pid}").st_uid
    found = find_processes("77124", owner=uid)
    assert ([rank.pid for rank in found.ranks], found.refused) == (
        [mine.pid],
        0,
    )  # the other only claims to be of the job
    found = find_tree(os.getpid(), owner=uid)
    assert [rank.pid for rank in found.ranks] == [mine.pid]
    assert found.refused >= 2  # this process and the other one


def test_a_spent_budget_keeps_the_looks_and_says_so(start):
    process = start("import time; print('ready', flush=True); time.sleep(60)")
    seen = take("1", only(process), "n1", Budget(cpu_s=0.0, window_s=0.1)).processes[0]
    assert seen.note == "the budget for stacks was spent"
    assert seen.state == "S"


def test_the_helper_imports_neither_numpy_nor_typer():
    code = "import sys, clustertwin.telemetry.diagnosis.helper_server, clustertwin.telemetry.diagnosis.__main__\n"
    code += "sys.exit(', '.join({'numpy', 'typer', 'torch', 'httpx'} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(tool("eu-stack") is None or os.uname().machine != "x86_64", reason="needs eu-stack and x86_64")
def test_no_core_is_left_on_a_disk(start, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = start("import time; print('ready', flush=True); time.sleep(60)")
    assert native_stack(process.pid).frames
    assert list(tmp_path.iterdir()) == []


@pytest.mark.medium
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="native stacks need x86_64")
@pytest.mark.skipif(tool("eu-stack") is None, reason="eu-stack is not installed")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: no process moves to another")
def test_a_process_that_moves_to_another_cpu_keeps_its_signature(start):
    process = start(SPIN_CODE)
    settled(process, "R")
    cpus = sorted(os.sched_getaffinity(0))[:2]
    end_s = time.monotonic() + 90
    signatures: list[int] = []
    while len(signatures) < 6 or len(set(signatures[-4:])) > 1:  # it may still be on its way to the lock
        assert time.monotonic() < end_s, signatures
        os.sched_setaffinity(process.pid, {cpus[len(signatures) % 2]})
        time.sleep(0.1)
        found = private_signature(process.pid, running_threads(process.pid))
        if found is not None:  # else a neighbour keeps it from stopping
            signatures.append(found)


LOOPS = {
    "spins": "library.pthread_spin_lock(lock)",  # a second time: it waits for itself
    "computes": "library.qsort(data, 1 << 22, 1, compare)",
}


@pytest.mark.medium
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="native stacks need x86_64")
@pytest.mark.skipif(tool("eu-stack") is None, reason="eu-stack is not installed")
@pytest.mark.parametrize("does", LOOPS)
def test_a_loop_that_waits_keeps_its_registers_and_one_that_computes_does_not(start, does):
    process = start(
        f"""
import ctypes
library, lock = ctypes.CDLL(None), ctypes.byref(ctypes.c_int())
library.pthread_spin_init(lock, 0)
library.pthread_spin_lock(lock)
data = ctypes.create_string_buffer(bytes(range(256)) * (1 << 14))
compare = library.memcmp
print("ready", flush=True)
while True:
    {LOOPS[does]}
"""
    )
    settled(process, "R")
    seen: list[int] = []
    end_s = time.monotonic() + 90
    while len(seen) < 6 or (does == "spins" and len(set(seen[-4:])) > 1):  # it may still be on its way to the lock
        assert time.monotonic() < end_s, seen
        if (found := running_threads(process.pid)) is not None:  # else a neighbour keeps it from stopping
            seen.append(found.registers)
        time.sleep(0.1)
    if does == "computes":
        assert all(first != second for first, second in pairwise(seen[2:]))


THREADS_CODE = """
import ctypes, hashlib, threading
library, lock = ctypes.CDLL(None), ctypes.byref(ctypes.c_int())
library.pthread_spin_init(lock, 0)
library.pthread_spin_lock(lock)
data = bytes(1 << 20)

def wait(): library.pthread_spin_lock(lock)

def work():
    while True: hashlib.sha256(data).digest()

threads = [threading.Thread(target=target) for target in ({targets})]
for thread in threads: thread.start()
print("ready", flush=True)
threads[0].join()
"""


@pytest.mark.medium
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="native stacks need x86_64")
@pytest.mark.skipif(tool("eu-stack") is None, reason="eu-stack is not installed")
@pytest.mark.parametrize(("targets", "does"), [("wait, wait", "spins"), ("wait, work", "computes")])
def test_threads_that_wait_in_a_loop_spin_while_the_first_one_sleeps(start, targets, does):
    process = start(THREADS_CODE.replace("{targets}", targets))
    end_s = time.monotonic() + 90
    # The threads may still be on their way, and on a busy node a look may come too early for one of them.
    while (seen := take("1", only(process), "n1", Budget(window_s=0.5)).processes[0]).does != does:
        assert time.monotonic() < end_s, seen
    if does == "spins":
        assert any("pthread_spin_lock" in frame for frame in seen.stack.native)
    else:
        looks = [take("1", only(process), "n1", Budget(window_s=0.5)).processes[0].does for _ in range(3)]
        assert "spins" not in looks


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="native stacks need x86_64")
@pytest.mark.skipif(tool("eu-stack") is None, reason="eu-stack is not installed")
def test_a_look_gives_a_process_no_page_that_it_never_touched() -> None:
    """The kernel counts such a page as a page fault of the job, which looks like a sign of its progress."""
    process = subprocess.Popen([sys.executable, "-c", UNTOUCHED_CODE], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        begin = int(process.stdout.readline())
        end_s = time.monotonic() + 90
        while (
            private_signature(process.pid, running_threads(process.pid)) is None
        ):  # a neighbour keeps it from stopping
            assert time.monotonic() < end_s
        pagemap = os.open(f"/proc/{process.pid}/pagemap", os.O_RDONLY)
        assert list(present_pages(pagemap, begin, begin + (1 << 16))) == []
        # One read of it, as of any memory that is there, makes a page.
        with open(f"/proc/{process.pid}/mem", "rb") as memory:
            os.pread(memory.fileno(), 1, begin + 4096)
        assert list(present_pages(pagemap, begin, begin + (1 << 16))) == [(begin + 4096, begin + 8192)]
        os.close(pagemap)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_batch_script_is_no_rank_however_many_tasks_its_job_has(start):
    environment = {**os.environ, "SLURM_JOB_ID": "77125", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}
    start("import time; print('ready', flush=True); time.sleep(60)", env=environment)
    found = find_processes("77125")
    assert [process.rank for process in found.ranks] == [None]
    assert found.size is None


@pytest.mark.medium
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="processes are stopped on x86_64 only")
def test_a_signal_that_comes_while_a_process_is_looked_at_is_not_lost(start):
    code = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('got', flush=True))\nprint(flush=True)"
    process = start(f"{code}\nwhile True: pass")
    ptrace(SEIZE, process.pid)
    process.send_signal(signal.SIGUSR1)
    assert wait_until_stopped(process.pid, time.monotonic() + 20) == signal.SIGUSR1
    ptrace(DETACH, process.pid, 0, signal.SIGUSR1)
    assert select.select([process.stdout], [], [], 20)[0]
    ptrace(SEIZE, process.pid)
    ptrace(INTERRUPT, process.pid)
    assert wait_until_stopped(process.pid, time.monotonic() + 20) == 0
    ptrace(DETACH, process.pid)
