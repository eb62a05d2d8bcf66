"""The heat map of an event: from memory, from the archive, or a reason; known answers for small cases."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace

import numpy as np
from tests.service.sample_state import EVENT, NOW_S, WHY, snapshot

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SourceError
from clustertwin.core.traces import Trace
from clustertwin.service.store.event_store import Case
from clustertwin.service.web.pages.event_picture import MOST_COLUMNS, event_picture

OVER = replace(EVENT, onset_s=5_000, seen_s=5_100, end_s=5_120)


class Kept:
    """An archive of one node: iowait 1 on its first thread, unknown on its second."""

    name = "the recording"

    def __init__(self, error: str = "", known: bool = True) -> None:
        self.error, self.known = error, known

    def traces(self, start_s, end_s, nodes=None):
        if self.error:
            raise SourceError(self.error)
        values = np.zeros((3, end_s - start_s, len(CPU)), np.float32)
        values[0, :, CPU.index("iowait")] = 1
        valid = np.zeros(values.shape[:2], np.bool_)
        valid[[0, 2]] = self.known
        return [Trace("n1", (0, 1, 2), start_s, CPU, values, valid)] if "n1" in nodes else []

    def recording_with_job(self, job):
        return None


def decoded(picture) -> np.ndarray:
    return np.frombuffer(b64decode(picture["levels"]), np.uint8).reshape(len(picture["labels"]), picture["columns"])


def test_an_open_event_is_shown_live_from_memory():
    picture = event_picture(snapshot(), Case(EVENT, WHY), None)
    assert (picture["labels"], picture["source"], picture["live"]) == (["cpu0", "cpu1"], "memory", True)
    assert (picture["columns"], picture["end_s"], picture["step_s"]) == (300, NOW_S, 1)


def test_a_closed_event_in_memory_needs_no_archive():
    picture = event_picture(snapshot(), Case(replace(EVENT, end_s=NOW_S - 50), WHY), Kept("must not be asked"))
    assert (picture["source"], picture["live"]) == ("memory", False)


def test_an_old_event_is_read_from_the_archive():
    picture = event_picture(snapshot(), Case(OVER, WHY), Kept())
    assert (picture["labels"], picture["source"]) == (["cpu0", "cpu1"], "the recording")
    assert (picture["columns"], picture["end_s"]) == (60 + 120 + 60, 5_180)
    assert set(decoded(picture)[0].tolist()) == {254}
    assert set(decoded(picture)[1].tolist()) == {255}


def test_a_long_event_is_thinned_to_columns_that_end_with_it():
    picture = event_picture(snapshot(), Case(replace(OVER, onset_s=2_000), WHY), Kept())
    assert picture["columns"] <= MOST_COLUMNS
    assert picture["step_s"] == 6
    assert (picture["end_s"], decoded(picture)[0, 0], decoded(picture)[0, -1]) == (5_180, 254, 254)


def test_missing_data_is_reported_with_its_reason():
    for past, reason in (
        (None, "this service has no archive of older ones"),
        (Kept(known=False), "the recording no longer has them"),
        (Kept("no such directory"), "the recording cannot be read: no such directory"),
    ):
        picture = event_picture(snapshot(), Case(OVER, WHY), past)
        assert picture["labels"] == []
        assert reason in picture["reason"]


def test_missing_threads_do_not_hide_the_others():
    gone = replace(OVER, places=(("n1", (0, 7)), ("n9", (0,))))
    assert event_picture(snapshot(), Case(gone, WHY), Kept())["labels"] == ["cpu0"]
