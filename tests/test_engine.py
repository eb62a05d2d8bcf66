"""The engine: the same results in one process, in several and on Ray, even if workers die."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.engine import WorkerDied, each


def square(x: int) -> int:
    if x < 0:
        raise SettingsError("negative")
    return x * x


def die_once(place: str) -> int:
    """Kill this process the first time."""
    mark = Path(place)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


def die(_: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_results_keep_the_order_of_the_items():
    assert each(square, [3, 1, 2], workers=1) == [9, 1, 4]


def test_done_is_called_once_for_each_item():
    calls = []
    each(square, [3, 1], workers=1, done=lambda index, result: calls.append((index, result)))
    assert calls == [(0, 9), (1, 1)]


def test_the_error_for_an_unknown_engine_names_it():
    with pytest.raises(SettingsError, match="no engine 'spark'"):
        each(square, [1], engine="spark")


@pytest.mark.slow
def test_processes_give_the_results_of_one_process():
    assert each(square, list(range(7)), workers=2) == each(square, list(range(7)), workers=1)


@pytest.mark.slow
def test_an_error_of_the_work_reaches_the_caller():
    with pytest.raises(SettingsError, match="negative"):
        each(square, [1, -1], workers=2)


@pytest.mark.slow
def test_the_item_of_a_dead_worker_is_run_again(tmp_path):
    assert each(die_once, [str(tmp_path / "a"), str(tmp_path / "b")], workers=2) == [7, 7]


@pytest.mark.slow
def test_a_worker_that_always_dies_is_an_error():
    with pytest.raises(WorkerDied, match="died"):
        each(die, [1, 2], workers=2)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_when_their_parent_is_killed(how):
    code = "import time; from clustertwin.engine import each; each(time.sleep, [600, 600], workers=2)"
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        workers = _workers(parent.pid)
    finally:
        parent.send_signal(how)
        parent.wait()
    assert not psutil.wait_procs(workers, timeout=120)[1]


@pytest.mark.slow
def test_ctrl_c_ends_workers_without_a_traceback_of_each():
    code = "import time; from clustertwin.engine import each; each(time.sleep, [600, 600], workers=2)"
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, start_new_session=True)
    workers = _workers(parent.pid)
    while any(worker.num_threads() < 2 for worker in workers):  # the thread that waits for the parent: it is prepared
        time.sleep(0.05)
    os.killpg(parent.pid, signal.SIGINT)
    said = parent.communicate()[1]
    assert not psutil.wait_procs(workers, timeout=30)[1]
    assert said.count("Traceback") == 1  # the caller's own
    assert "Process SpawnProcess" not in said


def _workers(pid: int) -> list[psutil.Process]:
    """The two spawned processes, as soon as they have started."""
    parent = psutil.Process(pid)
    while parent.status() != psutil.STATUS_ZOMBIE:
        workers = [child for child in parent.children() if "spawn_main" in " ".join(child.cmdline())]
        if len(workers) == 2:
            return workers
        time.sleep(0.05)
    raise AssertionError("the process ended before it had workers")


@pytest.mark.parametrize(("set_to", "address"), [(None, "local"), ("", "local"), ("10.0.0.1:6379", "10.0.0.1:6379")])
def test_ray_is_started_here_unless_its_address_is_set(monkeypatch, set_to, address):
    """It joined the cluster that any user had last started on this machine."""

    class Ray:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(address: str | None, **_: object) -> None:
            raise ConnectionError(address)

    monkeypatch.setattr("clustertwin.engine.require", lambda *_: Ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if set_to is not None:
        monkeypatch.setenv("RAY_ADDRESS", set_to)
    with pytest.raises(ConnectionError, match=f"^{address}$"):
        each(square, [1], engine="ray")


@pytest.mark.real
@pytest.mark.slow
def test_ray_gives_the_results_of_one_process_and_reruns_the_item_of_a_dead_worker(two_nodes, tmp_path):
    # A Ray worker cannot import this file, so the function is local: Ray sends it by value.
    def work(item: tuple[int, str]) -> int:
        mark = Path(item[1])
        if item[0] == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item[0] * item[0]

    items = [(x, str(tmp_path / "died")) for x in range(6)]
    assert each(work, items, engine="ray") == [0, 1, 4, 9, 16, 25]
    assert (tmp_path / "died").exists()
