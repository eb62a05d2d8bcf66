"""Run independent work in parallel: a function and its items -> their results in order, from processes or from Ray.

The function is importable and takes one item. Its random seed is part of the item, so the results do not depend on
where it runs. If a worker dies, its item is run again, a few times at most. Workers end when the calling process ends,
even if that process is killed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any, Literal, TypeVar

from clustertwin.core.errors import SettingsError, TwinError
from clustertwin.core.extras import require

Item = TypeVar("Item")
Result = TypeVar("Result")
Engine = Literal["here", "ray"]

#: How often an item is run again after its worker died.
RETRIES = 3


class WorkerDied(TwinError):
    """A worker died again and again."""


def each(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    engine: Engine = "here",
    workers: int | None = None,
    done: Callable[[int, Result], None] = lambda index, result: None,
) -> list[Result]:
    """`[work(item) for item in items]`, in parallel. `done` is called with the index and result of each finished item.

    `here` uses processes of this machine, by default one per CPU. One worker means this process itself.
    `ray` uses the cluster at RAY_ADDRESS, or starts one on this machine.
    """
    if engine == "ray":
        return _on_ray(work, items, done)
    if engine != "here":
        raise SettingsError(f"no engine {engine!r}; choose here or ray")
    workers = min(workers or len(os.sched_getaffinity(0)), len(items))
    if workers <= 1:
        results = []
        for index, item in enumerate(items):
            results.append(work(item))
            done(index, results[-1])
        return results
    return _in_processes(work, items, workers, done)


def _in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int, done: Callable[[int, Result], None]
) -> list[Result]:
    results: dict[int, Result] = {}
    deaths = 0
    while len(results) < len(items):
        # Spawned, not forked: a forked copy of a process with threads (torch, BLAS) can hang.
        pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_prepare_worker)
        try:
            waiting: dict[Future[Result], int] = {
                pool.submit(work, item): index for index, item in enumerate(items) if index not in results
            }
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    index = waiting[future]
                    results[index] = future.result()
                    del waiting[future]
                    done(index, results[index])
        except BrokenProcessPool as death:
            deaths += 1
            if deaths > RETRIES:
                raise WorkerDied(
                    f"a worker died {deaths} times; {len(results)} of {len(items)} items are finished"
                ) from death
        finally:
            pool.shutdown(cancel_futures=True)
    return [results[index] for index in range(len(items))]


def _prepare_worker() -> None:
    """End a worker with its parent, which cannot stop it if it is killed, and without a traceback at Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = parent_process()

    def wait_for_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait_for_parent, name="parent", daemon=True).start()


def _on_ray(work: Callable[[Item], Result], items: Sequence[Item], done: Callable[[int, Result], None]) -> list[Result]:
    ray: Any = require("ray", "ray")
    if not ray.is_initialized():
        # Without an address, Ray would join the cluster that somebody last started on this machine.
        ray.init(address=os.environ.get("RAY_ADDRESS") or "local", log_to_driver=False, include_dashboard=False)
    remote = ray.remote(max_retries=RETRIES, num_cpus=1)(work)
    waiting = {remote.remote(item): index for index, item in enumerate(items)}
    results: dict[int, Result] = {}
    while waiting:
        for ready in ray.wait(list(waiting))[0]:
            index = waiting.pop(ready)
            try:
                results[index] = ray.get(ready)
            except ray.exceptions.WorkerCrashedError as death:
                raise WorkerDied(f"a worker died {RETRIES + 1} times on item {index + 1} of {len(items)}") from death
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            done(index, results[index])
    return [results[index] for index in range(len(items))]
