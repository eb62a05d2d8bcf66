"""The heat map of an event: from memory, from the archive, or a reason; known answers for small cases."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from tests.service.sample_state import EVENT, NOW_S, WHY, snapshot

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SourceError
from clustertwin.core.traces import Trace
from clustertwin.service.store.event_store import Case
from clustertwin.service.web.pages import event_picture as event_picture_module
from clustertwin.service.web.pages.event_picture import MOST_COLUMNS, event_picture
from clustertwin.telemetry.ingest.sources.http import Endpoint, HttpClient
from clustertwin.telemetry.recording import trace_archive

OVER = replace(EVENT, onset_s=5_000, seen_s=5_100, end_s=5_120)


class Kept:
    """An archive of one node: iowait 1 on its first thread, unknown on its second."""

    name = "the recording"
    page_s = 86_400

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


class Month(Kept):
    """The same node for a month; it notes what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int, tuple[str, ...]]] = []

    def traces(self, start_s, end_s, nodes=None):
        self.asked.append((start_s, end_s, tuple(nodes)))
        return super().traces(start_s, end_s, nodes)


def test_of_a_long_event_an_hour_of_one_node_is_read_at_a_time_and_a_day_in_all():
    month_s, over_s = 30 * 86_400, 40 * 86_400
    places = (("n1", (0, 1)), ("n2", (0,)))
    event = replace(EVENT, onset_s=over_s - month_s, seen_s=over_s, end_s=over_s, places=places)
    past = Month()
    picture = event_picture(replace(snapshot(), moment=None, now_s=2.0 * over_s), Case(event, WHY), past)
    assert max(end_s - start_s for start_s, end_s, _ in past.asked) <= 3600
    assert {len(nodes) for _, _, nodes in past.asked} == {1}
    assert sum(end_s - start_s for start_s, end_s, nodes in past.asked if nodes == ("n1",)) == past.page_s
    assert picture["note"] == "only the first and the last 12 h"
    assert (picture["labels"], picture["columns"] <= MOST_COLUMNS) == (["cpu0", "cpu1"], True)
    first = decoded(picture)[0].tolist()
    assert (first[0], first[len(first) // 2], first[-1]) == (254, 255, 254)


def test_a_picture_that_takes_too_long_shows_what_was_read(monkeypatch):
    times_s = iter([0.0, 1.0, 99.0])
    monkeypatch.setattr(event_picture_module, "time", SimpleNamespace(monotonic=lambda: next(times_s)))
    two = replace(OVER, places=(("n1", (0,)), ("n2", (0,))))
    picture = event_picture(snapshot(), Case(two, WHY), Kept())
    assert (picture["labels"], picture["note"]) == (["cpu0"], "only the first 1 threads, because more take too long")


def test_few_requests_read_the_archive_at_a_time(monkeypatch):
    monkeypatch.setattr(trace_archive, "_WAIT_S", 0.0)
    with trace_archive.archive_turn(), trace_archive.archive_turn():
        picture = event_picture(snapshot(), Case(OVER, WHY), Kept())
    assert "other requests are reading the archive" in picture["reason"]
    assert event_picture(snapshot(), Case(OVER, WHY), Kept())["labels"] == ["cpu0", "cpu1"]


def test_the_picture_of_a_week_needs_few_queries_of_prometheus(monkeypatch):
    queries = []

    def get(client, path, params):
        queries.append(params["query"])
        return b'{"status":"success","data":{"resultType":"matrix","result":[]}}'

    monkeypatch.setattr(HttpClient, "get", get)
    week = replace(OVER, onset_s=1_000_000, seen_s=1_604_800, end_s=1_604_800)
    past = trace_archive.PrometheusArchive(Endpoint("http://nowhere"))
    picture = event_picture(replace(snapshot(), moment=None, now_s=2e6), Case(week, WHY), past)
    assert "no longer has them" in picture["reason"]
    assert 0 < len(queries) <= 50
