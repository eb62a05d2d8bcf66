"""Look at the processes of a job while it is recorded: its group -> evidence at even times, beside the samples.

The looks are those of the service, taken by the same program. They are taken in healthy phases and in faults alike, and
nothing is judged. They run in a group of their own, which has the weight of the job and is bound to the CPUs of the
recorder, so that their CPU time is known and they are not late.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clustertwin.core.errors import TwinError
from clustertwin.telemetry.campaign.zoo.job_group import JobGroup
from clustertwin.telemetry.campaign.zoo.recorded_look import NODE, RecordedLook
from clustertwin.telemetry.diagnosis.evidence import JobEvidence
from clustertwin.telemetry.diagnosis.evidence_subprocess import TIMEOUT_S, take_in_subprocess

#: The service repeats a look that claims a hang after 30 s: every second look of a recording is a little later.
EVERY_S = 15.5
Take = Callable[[], JobEvidence | None]


def takes_of(job: JobGroup, beside: JobGroup) -> Take:
    """Take evidence of the processes of a group, in a process of another one."""
    directory = str(job.folders["cpuacct"])
    return lambda: take_in_subprocess(NODE, None, NODE, cgroup=directory, enter=beside.enter)


@contextmanager
def looking(take: Take, every_s: float = EVERY_S) -> Iterator[Callable[[], list[RecordedLook]]]:
    """Take looks until the end; gives a function that returns those which are new."""
    looks: queue.SimpleQueue[RecordedLook] = queue.SimpleQueue()
    over = threading.Event()

    def keep_looking() -> None:
        next_s = time.monotonic() + every_s
        while not over.wait(max(next_s - time.monotonic(), 0)):
            looks.put(_look(take))
            while next_s <= time.monotonic():  # a look that takes long costs the next one
                next_s += every_s

    def new() -> list[RecordedLook]:
        return [looks.get() for _ in range(looks.qsize())]

    thread = threading.Thread(target=keep_looking, daemon=True)
    thread.start()
    try:
        yield new
    finally:
        over.set()
        thread.join(TIMEOUT_S + 5)


def _look(take: Take) -> RecordedLook:
    at_s, began_s = time.time(), time.monotonic()
    try:
        evidence = take()
    except TwinError:
        evidence = None
    return RecordedLook(at_s, time.monotonic() - began_s, evidence)
