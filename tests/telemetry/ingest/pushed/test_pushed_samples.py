"""Pushed samples become readings: in pieces, out of order, twice, stale, late, by two senders, and within limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from tests.pushed import STALE, series

from clustertwin.telemetry.ingest.counters import MODES, JobCpus, NodeReading
from clustertwin.telemetry.ingest.pushed import pushed_node, pushed_samples
from clustertwin.telemetry.ingest.pushed.pushed_layout import layout_of
from clustertwin.telemetry.ingest.pushed.pushed_samples import (
    HELD_S,
    LOST_MS,
    MOST_NEW_SERIES,
    ROWS,
    PushedSamples,
)
from clustertwin.telemetry.ingest.pushed.sample_rows import BEHIND_ROWS, SETTLE_S, WAIT_S
from clustertwin.telemetry.ingest.pushed.series_registry import SeriesRegistry
from clustertwin.telemetry.ingest.pushed.write_request import parse_labels, parse_write_request

T = 1_700_000_000.0
Labels = dict[str, str]


def cpu(thread: int, mode: str, instance: str = "n1:9752", **more: str) -> Labels:
    return {"__name__": "twin_cpu_seconds_total", "cpu": str(thread), "instance": instance, "mode": mode, **more}


def info(node: str, instance: str = "n1:9752", **more: str) -> Labels:
    return {"__name__": "twin_node_info", "instance": instance, "node": node, **more}


def allocated(job: str, thread: int) -> Labels:
    return {"__name__": "twin_job_cpu_allocated", "cpu": str(thread), "instance": "n1:9752", "jobid": job}


def owner(job: str) -> Labels:
    return {"__name__": "twin_job_owner_uid", "instance": "n1:9752", "jobid": job}


NODE = [*(cpu(thread, mode) for thread in range(2) for mode in ("user", "idle")), info("n1")]


class Pushes:
    """A sender and a clock: `at` pushes one request, `readings` asks at a time. Times are seconds after `T`."""

    def __init__(self) -> None:
        self.samples = PushedSamples()

    def at(
        self,
        now_s: float,
        labels: Iterable[Labels],
        times_s: Sequence[float],
        value: float | bytes = 1.0,
        sender: str = "site",
    ) -> str:
        rows = [series(one, [(round((T + t) * 1000), value) for t in times_s]) for one in labels]
        return self.samples.add(sender, parse_write_request(b"".join(rows)), T + now_s)

    def readings(self, now_s: float) -> list[NodeReading]:
        return [reading for _, reading in self.samples.due(T + now_s)]


@pytest.fixture
def pushes() -> Pushes:
    """A node that has settled."""
    pushes = Pushes()
    for second in range(int(SETTLE_S) + 2):
        pushes.at(second, NODE, [second])
    pushes.readings(SETTLE_S + 1)
    return pushes


NEXT = SETTLE_S + 2


def times(readings: list[NodeReading]) -> list[float]:
    return [reading.time_s - T for reading in readings]


def test_a_scrape_is_returned_when_the_next_one_is_complete(pushes: Pushes) -> None:
    pushes.at(NEXT, NODE, [NEXT])
    assert times(pushes.readings(NEXT)) == [NEXT - 1]
    pushes.at(NEXT + 1, NODE[1:], [NEXT + 1])
    assert pushes.readings(NEXT + 1) == []
    pushes.at(NEXT + 1, NODE[:1], [NEXT + 1])
    assert times(pushes.readings(NEXT + 1)) == [NEXT]


def test_a_node_settles_first_because_its_series_arrive_one_after_the_other() -> None:
    pushes = Pushes()
    for second in range(4):
        pushes.at(second, NODE[:2], [second])
    assert pushes.readings(SETTLE_S - 0.1) == []
    pushes.at(5, NODE[2:], [0, 1, 2, 3])
    readings = pushes.readings(SETTLE_S)
    assert times(readings) == [0, 1, 2]
    assert all(not np.isnan(reading.seconds).any() for reading in readings)
    assert {reading.node for reading in readings} == {"n1"}


def test_values_and_channels_are_those_of_the_page_of_the_exporter(pushes: Pushes) -> None:
    modes = [cpu(thread, mode) for thread in (0, 1) for mode in MODES]
    memory = {"__name__": "twin_memory_available_bytes", "instance": "n1:9752"}
    every = [*modes, info("n1"), memory, allocated("17", 1)]
    for second in (NEXT, NEXT + 1):
        for number, one in enumerate(every):
            pushes.at(second, [one], [second], float(number))
    reading = pushes.readings(NEXT + 1)[-1]
    assert (reading.node, reading.time_s, reading.cpus) == ("n1", T + NEXT, (0, 1))
    assert reading.modes == MODES
    assert reading.seconds.tolist() == [[float(i) for i in range(8)], [float(i) for i in range(8, 16)]]
    assert reading.jobs == (JobCpus("17", (1,)),)
    assert 17.0 in reading.operands


def test_pieces_may_arrive_in_any_order_and_twice(pushes: Pushes) -> None:
    second = NEXT
    pushes.at(second, NODE[:2], [second + 1, second])  # the newer sample first
    pushes.at(second, NODE[3:], [second])
    assert pushes.readings(second + 1) == []
    pushes.at(second, NODE[:2], [second], 5.0)  # again, with another value
    pushes.at(second, NODE[2:], [second, second + 1])
    reading = pushes.readings(second + 1)[-1]
    assert reading.time_s == T + second
    assert np.nanmax(reading.seconds) == 1.0
    assert pushes.samples.counts["doubled"] == 4  # two with another value, and the two of NODE[3:]


def test_an_incomplete_scrape_is_returned_after_a_while_and_the_rest_is_unknown(pushes: Pushes) -> None:
    pushes.at(NEXT, NODE[1:], [NEXT])
    assert NEXT not in times(pushes.readings(NEXT + WAIT_S))
    readings = pushes.readings(NEXT + WAIT_S + 0.1)
    assert np.isnan(readings[-1].seconds).sum() == 1
    pushes.at(NEXT + WAIT_S + 0.2, NODE[:1], [NEXT])
    assert pushes.samples.counts["late"] == 1


def test_a_slow_sender_that_catches_up_on_two_connections_loses_nothing(pushes: Pushes) -> None:
    """Each second of it takes three, and one connection is five seconds ahead of the other."""
    seconds = 60
    for second in range(seconds + 5):
        now_s = NEXT + 3 * second
        if second < seconds:
            pushes.at(now_s, NODE[:3], [NEXT + second])
        if second >= 5:
            pushes.at(now_s, NODE[3:], [NEXT + second - 5])
        assert all(not np.isnan(reading.seconds).any() for reading in pushes.readings(now_s))
    assert pushes.samples.counts["late"] == 0


def test_a_row_with_many_newer_ones_is_not_waited_for(pushes: Pushes) -> None:
    for second in range(BEHIND_ROWS + 1):
        pushes.at(NEXT + second, NODE[1:], [NEXT + second])
    assert times(pushes.readings(NEXT + BEHIND_ROWS))[-1] == NEXT


@pytest.mark.filterwarnings("error")
def test_a_stale_marker_ends_a_job_at_once(pushes: Pushes) -> None:
    job = [allocated("17", 0)]
    pushes.at(NEXT, [*NODE, *job], [NEXT, NEXT + 1])
    pushes.at(NEXT + 2, NODE, [NEXT + 2])
    pushes.at(NEXT + 2, job, [NEXT + 2], STALE)
    pushes.at(NEXT + 3, NODE, [NEXT + 3])
    found = {reading.time_s - T: reading.jobs for reading in pushes.readings(NEXT + 3)}
    assert found[NEXT + 1] == (JobCpus("17", (0,)),)
    assert found[NEXT + 2] == ()


def test_a_target_that_is_down_gives_no_reading(pushes: Pushes) -> None:
    pushes.at(NEXT, NODE, [NEXT], STALE)
    pushes.at(NEXT + 1, NODE, [NEXT + 30])
    assert NEXT not in times(pushes.readings(NEXT + 1))


def test_a_series_that_ends_without_a_marker_is_not_waited_for_in_the_long_run(pushes: Pushes) -> None:
    lost_s = LOST_MS // 1000 + 2
    for second in range(int(NEXT), int(NEXT) + lost_s):
        pushes.at(second, NODE[1:], [second])
        pushes.readings(second)
    pushes.readings(NEXT + lost_s + WAIT_S)
    begin = NEXT + lost_s + WAIT_S
    pushes.at(begin, NODE[1:], [begin, begin + 1])
    assert times(pushes.readings(begin)) == [begin]


def test_old_and_future_samples_are_dropped_and_counted(pushes: Pushes) -> None:
    assert pushes.at(NEXT, NODE, [NEXT - 301, NEXT + 31]) == ""
    assert (pushes.samples.counts["old"], pushes.samples.counts["ahead"]) == (len(NODE), len(NODE))


def test_a_backlog_longer_than_the_rows_is_returned_in_order(pushes: Pushes) -> None:
    backlog = [NEXT + i for i in range(3 * ROWS)]
    pushes.at(NEXT + 3 * ROWS, NODE, backlog)
    begun = [reading for reading in times(pushes.readings(NEXT + 3 * ROWS)) if reading >= NEXT]
    assert begun == backlog[: len(begun)]
    assert len(begun) >= 3 * ROWS - 1


def test_the_second_replica_of_a_sender_is_refused_and_named_until_the_first_is_silent(pushes: Pushes) -> None:
    other = [{**one, "replica": "b"} for one in NODE]
    pushes.at(NEXT, other, [NEXT], 9.0)
    pushes.at(NEXT, NODE, [NEXT, NEXT + 1])
    assert [reading.seconds.max() for reading in pushes.readings(NEXT + 1)][-1] == 1.0
    assert 'is pushed twice, also with replica="b"; the second one is refused' in pushes.samples.refused["n1:9752"]
    pushes.readings(NEXT + 2 + WAIT_S)
    later = NEXT + 2 + WAIT_S + HELD_S + 1
    pushes.readings(later)
    assert pushes.samples.refused == {}
    for second in range(int(SETTLE_S) + 2):
        pushes.at(later + second, other, [later + second], 9.0)
    assert pushes.readings(later + SETTLE_S + 1)[-1].seconds.max() == 9.0


def test_a_node_that_is_back_after_a_long_silence_is_read_again(pushes: Pushes) -> None:
    pushes.readings(NEXT + WAIT_S)
    later = NEXT + WAIT_S + HELD_S + 1
    pushes.readings(later)
    assert pushes.samples.nodes == 0
    for second in range(int(SETTLE_S) + 2):
        pushes.at(later + second, NODE, [later + second])
    assert len(pushes.readings(later + SETTLE_S + 1)) == SETTLE_S + 1


def test_unusable_series_are_named_and_the_others_are_used(pushes: Pushes) -> None:
    wrong = [{**cpu(0, "user"), "instance": ""}, {**cpu(0, "user"), "cpu": "many"}]
    assert pushes.at(NEXT, [*wrong, *NODE], [NEXT, NEXT + 1]) == "a series has no instance"
    assert times(pushes.readings(NEXT + 1))[-1] == NEXT
    assert pushes.samples.counts["refused"] == 2


def test_an_allocation_without_a_job_harms_nothing(pushes: Pushes) -> None:
    pushes.at(NEXT, [*NODE, allocated("", 0), allocated("17", 1)], [NEXT, NEXT + 1])
    assert pushes.readings(NEXT + 1)[-1].jobs == (JobCpus("17", (1,)),)


def test_metrics_that_nobody_reads_are_not_kept(pushes: Pushes) -> None:
    known = pushes.samples.series
    pushes.at(NEXT, [{"__name__": "go_goroutines", "instance": f"n{i}"} for i in range(1000)], [NEXT])
    assert pushes.samples.series == known
    assert pushes.samples.counts["unwanted"] == 1000


@pytest.mark.medium
def test_series_of_jobs_that_ended_are_forgotten(pushes: Pushes) -> None:
    """They would fill the memory: every job has series of its own."""
    for scrape in range(150):
        second, of_jobs = NEXT + 10 * scrape, [owner(str(100 * scrape + i)) for i in range(100)]
        pushes.at(second, [*NODE, *of_jobs], [second])
        pushes.at(second, of_jobs, [second + 0.5], STALE)
        pushes.readings(second)
    assert pushes.samples.series < 10_000


def test_the_number_of_series_is_limited(pushes: Pushes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes.samples._registry, "most_series", 50)
    pushes.at(NEXT, [cpu(thread, "user", "liar:1") for thread in range(500)], [NEXT])
    assert pushes.samples.series == 50
    assert "which is the limit" in pushes.samples.refused[""]
    pushes.at(NEXT, NODE, [NEXT, NEXT + 1])
    assert times(pushes.readings(NEXT + 1))[-1] == NEXT


@pytest.mark.medium
def test_a_request_brings_only_some_new_series_and_the_next_one_the_others(pushes: Pushes) -> None:
    """New labels are parsed while the loop waits: a hundred thousand of them would stop it for seconds."""
    before = pushes.samples.series
    many = [cpu(thread, "user", f"m{node}") for node in range(20) for thread in range(400)]
    pushes.at(NEXT, many, [NEXT])
    assert pushes.samples.series == before + MOST_NEW_SERIES
    assert pushes.samples.counts["postponed"] == len(many) - MOST_NEW_SERIES
    pushes.at(NEXT + 1, many, [NEXT + 1])
    assert pushes.samples.series == before + len(many)


def test_the_labels_of_more_series_than_there_is_room_for_are_not_parsed(
    pushes: Pushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushes.samples._registry, "most_series", pushes.samples.series)
    monkeypatch.setattr(pushed_samples, "parse_labels", lambda text: pytest.fail("parsed"))
    pushes.at(NEXT, [cpu(thread, "user", "liar:1") for thread in range(500)], [NEXT])
    assert "which is the limit" in pushes.samples.refused[""]


def test_the_number_of_nodes_is_limited(pushes: Pushes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushed_samples, "MOST_NODES", 3)
    pushes.at(NEXT, [cpu(0, "user", f"liar:{i}") for i in range(100)], [NEXT])
    assert pushes.samples.nodes == 3


def test_the_number_of_threads_is_limited_and_ended_ones_make_room(
    pushes: Pushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the loop a thread takes the same memory whether it is pushed with one mode or with eight."""
    monkeypatch.setattr(pushed_samples, "MOST_THREADS", 10)
    pushes.at(NEXT, [cpu(thread, mode, "liar:1") for thread in range(50) for mode in ("user", "idle")], [NEXT])
    assert pushes.samples.threads == 10
    assert "10 threads are pushed, which is the limit" in pushes.samples.refused["liar:1"]
    pushes.at(NEXT, NODE, [NEXT, NEXT + 1])
    assert NEXT in times(pushes.readings(NEXT + 1))
    pushes.readings(NEXT + 1 + WAIT_S + 1)
    pushes.readings(NEXT + 1 + WAIT_S + 1 + HELD_S + 1)
    assert (pushes.samples.threads, pushes.samples.refused) == (0, {})


def threads_of(pushes: Pushes, sender: str) -> int:
    return sum(len(node.threads) for node in pushes.samples._nodes.values() if node.sender == sender)


@pytest.mark.parametrize("limit", ["MOST_THREADS", "MOST_NODES"])
def test_a_sender_gets_its_share_of_the_room_that_another_has_used_up(
    pushes: Pushes, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """One sender with many threads, or with many nodes, left no room for any other."""
    monkeypatch.setattr(pushed_samples, limit, 32)
    for number in range(40):
        pushes.at(NEXT, [cpu(0, "user", f"liar:{number}")], [NEXT], sender="liar")
    honest = [cpu(thread % 4, "user", f"honest:{thread // 4}") for thread in range(40)]
    if limit == "MOST_NODES":
        honest = [cpu(0, "user", f"honest:{number}") for number in range(40)]
    for second in range(30):
        pushes.at(NEXT, honest, [NEXT], sender="honest")
        pushes.at(NEXT, [cpu(0, "user", f"liar:{number}") for number in range(second, 40)], [NEXT], sender="liar")
    assert threads_of(pushes, "honest") >= 32 // 3
    assert threads_of(pushes, "liar") >= 32 // 3 - 2
    assert any("liar pushes more than its share" in sentence for sentence in pushes.samples.crowded.said)
    pushes.at(NEXT, NODE, [NEXT, NEXT + 1])
    assert NEXT in times(pushes.readings(NEXT + 1))  # a sender below its share loses nothing
    pushes.readings(NEXT + 1 + WAIT_S + 1)
    pushes.readings(NEXT + 1 + WAIT_S + 1 + HELD_S + 1)
    assert (pushes.samples.threads, pushes.samples.nodes, pushes.samples.refused) == (0, 0, {})
    assert not pushes.samples.crowded.said


def test_a_sender_cannot_use_up_the_series_of_the_others(pushes: Pushes) -> None:
    pushes.samples._registry.most_series = 100
    pushes.at(NEXT, [info("liar", f"liar:{number}") for number in range(200)], [NEXT], sender="liar")
    assert pushes.samples.series == 75
    assert any("liar pushes more than its share" in sentence for sentence in pushes.samples.crowded.said)
    pushes.at(NEXT, [cpu(thread, "user", "n2:9752") for thread in range(20)], [NEXT])
    assert (pushes.samples.series, pushes.samples.threads) == (95, 22)


@pytest.mark.medium
def test_known_series_are_found_among_very_many() -> None:
    pushes = Pushes()
    many = [cpu(thread, mode, f"n{node}") for node in range(20) for thread in range(64) for mode in MODES]
    for at in range(0, len(many), MOST_NEW_SERIES):
        pushes.at(0, many[at : at + MOST_NEW_SERIES], [0])
    assert pushes.samples.series == len(many)
    pushes.at(1, many[::-1], [1])
    assert pushes.samples.series == len(many)
    assert pushes.samples.counts["used"] == 2 * len(many)


def test_the_owner_of_a_job_is_noted(pushes: Pushes) -> None:
    pushes.at(NEXT, [*NODE, allocated("17", 0)], [NEXT, NEXT + 1])
    pushes.at(NEXT, [owner("17")], [NEXT, NEXT + 1], 1000.0)
    pushes.readings(NEXT + 1)
    assert pushes.samples.owners == {"17": 1000}


def test_a_request_with_a_sample_for_every_millisecond_returns_few_rows(pushes: Pushes) -> None:
    """Each new time displaced a row, while the loop waited: one request of three megabytes took a minute."""
    times_s = [NEXT - 290 + i / 1000 for i in range(20_000)]
    known = Pushes()
    assert known.at(NEXT, NODE, [NEXT - 300]) == ""
    assert known.at(NEXT, NODE[:1], times_s) == "samples of too many different times"
    assert len(known.readings(NEXT + SETTLE_S)) < 5000
    assert known.samples.counts["late"] > 10_000
    assert pushes.at(NEXT, NODE, [NEXT - 5 + i for i in range(100)]) == ""  # who catches up is not meant


def test_series_that_waited_for_their_node_are_given_to_it_with_their_next_samples(
    pushes: Pushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once they stopped the loop: a sender can let a million of them wait for one more series."""
    waiting = [owner(str(job)) | {"instance": "late:1"} for job in range(3000)]
    pushes.at(NEXT, waiting, [NEXT])
    parsed = []
    monkeypatch.setattr(pushed_samples, "parse_labels", lambda text: parsed.append(text) or parse_labels(text))
    node = [cpu(0, mode, "late:1") for mode in ("user", "idle")]
    pushes.at(NEXT, node, [NEXT])
    assert len(parsed) == len(node)
    pushes.at(NEXT + 1, [*node, *waiting[:10]], [NEXT + 1])
    assert len(pushes.samples._nodes["site", "late:1", "twin"].numbers) == len(node) + 10


def test_a_node_that_cannot_be_used_is_found_out_once(pushes: Pushes, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(pushed_node, "layout_of", lambda *args: found.append(args) or layout_of(*args))
    wrong = {**allocated("17", 0), "cpu": "many"}
    for second in range(5):
        pushes.at(NEXT + second, [*NODE, wrong], [NEXT + second])
        pushes.readings(NEXT + second)
    assert len(found) == 1
    assert "is not a hardware thread" in pushes.samples.refused["n1:9752"]


def test_nodes_are_read_again_after_the_clock_was_set_back(pushes: Pushes) -> None:
    """Every sample was late until the clock had reached its old time again."""
    back_s = NEXT - 3600
    for second in range(int(SETTLE_S) + 4):
        pushes.at(back_s + second, NODE, [back_s + second])
        readings = pushes.readings(back_s + second)
    assert times(readings) == [back_s + SETTLE_S + 2]
    pushes.at(back_s + SETTLE_S + 4, [*NODE[1:]], [back_s + SETTLE_S + 4])
    pushes.at(back_s + SETTLE_S + 4, NODE[:1], [back_s + SETTLE_S + 4], STALE)  # it ends now
    pushes.at(back_s + SETTLE_S + 5, NODE[1:], [back_s + SETTLE_S + 5])
    assert times(pushes.readings(back_s + SETTLE_S + 5))[-1] == back_s + SETTLE_S + 4


def test_the_backlog_of_one_node_is_returned_in_parts_and_delays_no_other(
    pushes: Pushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand readings at once stopped the loop for ten seconds."""
    monkeypatch.setattr(pushed_samples, "MOST_EARLY", 10)
    other = [cpu(0, mode, "n2:9752") for mode in ("user", "idle")]
    for second in range(int(SETTLE_S) + 1):
        pushes.at(NEXT + second, other, [NEXT + second])
    now_s = NEXT + SETTLE_S
    backlog = [now_s - 100 + i for i in range(3 * ROWS)]
    late = [cpu(0, mode, "n3:9752") for mode in ("user", "idle")]
    pushes.at(now_s, late, backlog)
    seen: dict[str, list[float]] = {}
    for turn in range(1, 12):
        pushes.at(now_s + turn, other, [now_s + turn])
        found = pushes.readings(now_s + turn)
        assert len(found) < 10 + ROWS + 3
        for reading in found:
            seen.setdefault(reading.node, []).append(reading.time_s - T)
        assert seen["n2"][-1] == now_s + turn - 1
    assert seen["n3"] == backlog[: len(seen["n3"])]
    assert len(seen["n3"]) >= 3 * ROWS - 1


def test_nodes_with_new_series_take_turns(pushes: Pushes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout takes microseconds for each series, and a sender can add one to every node in every second."""
    monkeypatch.setattr(pushed_samples, "MOST_LAID_OUT", 10)
    nodes = [[cpu(thread, mode, f"m{i}:1") for thread in range(4) for mode in ("user", "idle")] for i in range(3)]
    for second in range(int(SETTLE_S) + 2):
        for node in nodes:
            pushes.at(NEXT + second, node, [NEXT + second])
    seen = []
    for turn in range(3):
        now_s = NEXT + SETTLE_S + 2 + turn
        for node in nodes:
            pushes.at(now_s, [*node, cpu(9, f"new{turn}", node[0]["instance"])], [now_s])
        seen.append({reading.node for reading in pushes.readings(now_s)} - {"n1"})
    assert seen == [{"m0"}, {"m1"}, {"m2"}]


@pytest.mark.parametrize("kept", [[], [0, 1, 2], [1, 3, 4, 9], list(range(10))])
def test_series_that_are_kept_have_new_numbers_and_their_labels(kept: list[int]) -> None:
    registry = SeriesRegistry(("up",), 100, 1 << 20)
    labels = [f"{number}".encode() * (number + 1) for number in range(10)]
    hashes = [np.uint64(7 * number) for number in range(10)]
    for text, hashed in zip(labels, hashes, strict=True):
        registry.add(text, 1, hashed)
    registry.keep(np.array(kept, np.intp))
    new = registry.add(b"new", 1, np.uint64(5))
    assert [registry.labels(number) for number in range(new + 1)] == [*(labels[number] for number in kept), b"new"]
    found = [registry.find_one(text, 1, hashed) for text, hashed in zip(labels, hashes, strict=True)]
    assert [number for number in range(10) if found[number] >= 0] == kept
