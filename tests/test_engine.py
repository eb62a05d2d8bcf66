"""The engine: the same results wherever the work runs, and none lost with a worker."""

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
    """Kill this very process the first time."""
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


def test_each_end_is_heard_of_once():
    heard = []
    each(square, [3, 1], workers=1, done=lambda index, result: heard.append((index, result)))
    assert heard == [(0, 9), (1, 1)]


def test_an_unknown_engine_is_named():
    with pytest.raises(SettingsError, match="no engine 'spark'"):
        each(square, [1], engine="spark")


@pytest.mark.slow
def test_processes_give_the_results_of_one_process():
    assert each(square, list(range(7)), workers=2) == each(square, list(range(7)), workers=1)


@pytest.mark.slow
def test_an_error_of_the_work_is_the_callers():
    with pytest.raises(SettingsError, match="negative"):
        each(square, [1, -1], workers=2)


@pytest.mark.slow
def test_a_dead_workers_item_is_done_again(tmp_path):
    assert each(die_once, [str(tmp_path / "a"), str(tmp_path / "b")], workers=2) == [7, 7]


@pytest.mark.slow
def test_a_worker_that_always_dies_is_an_error():
    with pytest.raises(WorkerDied, match="died"):
        each(die, [1, 2], workers=2)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_a_parent_that_was_killed(how):
    code = "import time; from clustertwin.engine import each; each(time.sleep, [600, 600], workers=2)"
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        workers = _workers(parent.pid)
    finally:
        parent.send_signal(how)
        parent.wait()
    assert not psutil.wait_procs(workers, timeout=30)[1]


def _workers(pid: int) -> list[psutil.Process]:
    """The two spawned processes, as soon as they are there."""
    parent = psutil.Process(pid)
    while parent.status() != psutil.STATUS_ZOMBIE:
        found = [child for child in parent.children() if "spawn_main" in " ".join(child.cmdline())]
        if len(found) == 2:
            return found
        time.sleep(0.05)
    raise AssertionError("it ended before it had workers")


@pytest.mark.real
@pytest.mark.slow
def test_ray_gives_the_results_of_one_process_and_redoes_a_dead_workers_item(two_nodes, tmp_path):
    # Functions of this file are no module that a Ray worker could import: local ones travel by value.
    def work(item: tuple[int, str]) -> int:
        mark = Path(item[1])
        if item[0] == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item[0] * item[0]

    items = [(x, str(tmp_path / "died")) for x in range(6)]
    assert each(work, items, engine="ray") == [0, 1, 4, 9, 16, 25]
    assert (tmp_path / "died").exists()
