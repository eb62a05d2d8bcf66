"""Events small enough to check by hand: scores every ten seconds, threshold 3."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.channels import CPU, NODE
from clustertwin.core.traces import NodeChannels
from clustertwin.telemetry.detection.events.causes import HUNG_RANK, IDLE, MISBOUND, STALLED_IO, STRAGGLER, UNUSUAL
from clustertwin.telemetry.detection.events.diagnosis import diagnose
from clustertwin.telemetry.detection.events.event import Event, event_id
from clustertwin.telemetry.detection.events.tracker import EventSettings, Tracker, score_by_chance
from clustertwin.telemetry.detection.scores import NAMING_VIEW, Scores
from clustertwin.telemetry.moments.moment import Moment

NAN = float("nan")
ANY = float("inf")
SETTINGS = EventSettings(
    margin=1.0,
    chance_per_node_day=ANY,
    strongest=1.0,
    needed_s=30,
    of_s=40,
    calm_s=50,
    forget_s=100,
    same_cause_s=60,
)


#: What a thread does in each second: user, system, iowait, idle.
BUSY, SLEEPING, READING = (0.99, 0.01, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), (0.1, 0.1, 0.8, 0.0)
WORKING, POLLING = (0.97, 0.03, 0.0, 0.0), (0.68, 0.32, 0.0, 0.0)


def doing(moment: Moment, *phases: tuple[int, list[tuple[float, ...]]]) -> Moment:
    """The moment with 300 s in which each thread did this. A phase is its length and the ratios of each thread."""
    parts = [np.repeat(np.array(ratios, np.float32)[:, None], seconds, axis=1) for seconds, ratios in phases]
    values = np.concatenate(parts, axis=1)[:, -300:]
    return replace(moment, values=values, valid=np.ones(values.shape[:2], np.bool_))


def watch(tracker: Tracker, jobs: list[str], score: float, *seconds: int, did, io_pressure: float | None = None):
    """Feed moments that end at these seconds; `did` gives the phases of each -> the changes."""
    changes = []
    for end_s in seconds:
        moment = doing(a_moment(end_s, jobs), *did(end_s))
        if io_pressure is not None:
            pressure = np.full((1, 300, len(NODE)), io_pressure, np.float32)
            moment = replace(moment, node_channels=NodeChannels(NODE, pressure))
        changes += tracker.update(moment, scored(*[score] * len(jobs)), 3.0)
    return changes


def a_moment(end_s: int, jobs: list[str], nodes: list[str] | None = None, age_s: int = 1000) -> Moment:
    """One thread for each entry of `jobs` ("" without one), on node `a` by default; cpus count per node."""
    nodes = nodes or ["a"] * len(jobs)
    names, running = tuple(sorted(set(nodes))), tuple(sorted(set(jobs) - {""}))
    node_number, job_number = ({name: i for i, name in enumerate(those)} for those in (names, running))
    count: Counter[str] = Counter()
    cpu = []
    for node in nodes:
        cpu.append(count[node])
        count[node] += 1
    return Moment(
        end_s,
        CPU,
        np.zeros((len(jobs), 1, 4), np.float32),
        np.ones((len(jobs), 1), np.bool_),
        names,
        np.array([node_number[node] for node in nodes], np.int32),
        np.array(cpu, np.int32),
        running,
        np.array([job_number.get(job, -1) for job in jobs], np.int32),
        np.full(len(jobs), age_s, np.int32),
    )


def scored(*score: float, view: str = "reconstruction") -> Scores:
    values = np.array(score, np.float32)
    return Scores(values, values[:, None], (view,), values, np.zeros((len(values), 2), np.float32))


def play(tracker: Tracker, jobs: list[str], *rows: tuple[float, ...], start_s: int = 1000, **where: list[str]):
    """Feed rows of scores, ten seconds apart -> (second, kind, event) of every change."""
    changes = []
    for i, row in enumerate(rows):
        moment = a_moment(start_s + 10 * i, jobs, **where)
        changes += [(moment.end_s, c.kind, c.event) for c in tracker.update(moment, scored(*row), 3.0, model="m")]
    return changes


def test_a_lasting_alarm_opens_one_event_and_a_short_one_none():
    changes = play(Tracker(SETTINGS), ["j", "k"], *[(5.0, 1.0)] * 5)
    assert [(at, kind) for at, kind, _ in changes] == [(1030, "opened")]
    event = changes[0][2]
    assert (event.jobs, event.places, event.onset_s, event.score) == (("j",), (("a", (0,)),), 1000, 5.0)
    assert play(Tracker(SETTINGS), ["j"], (1.0,), (9.0,), (9.0,), (1.0,), (1.0,), (9.0,)) == []


def test_higher_scores_open_an_event_sooner_but_one_scoring_is_never_enough():
    weighing = EventSettings(margin=1.5, chance_per_node_day=ANY, strongest=6.0, needed_s=60, of_s=90)
    opened = {
        score: [
            at - 1000 for at, kind, _ in play(Tracker(weighing), ["j"], (1.0,), *[(score,)] * 9) if kind == "opened"
        ]
        for score in (4.4, 4.6, 9.0, 30.0, 90.0)
    }  # the bar is 4.5
    assert opened == {4.4: [], 4.6: [60], 9.0: [30], 30.0: [20], 90.0: [20]}


def test_the_bar_grows_with_the_size_of_the_largest_node():
    nodes = ["a"] * 100 + ["b"]
    # 100 threads x 864 windows a day: one window a day exceeds log10(86,400) = 4.94 by chance.
    assert score_by_chance(a_moment(1000, [""] * 101, nodes), per_node_day=1.0) == pytest.approx(np.log10(86_400))
    settings = replace(SETTINGS, margin=1.5, chance_per_node_day=1.0)
    few, many = [f"j{i}" for i in range(2)], [f"j{i}" for i in range(100)]
    for jobs, opened in ((few, True), (many, False)):
        changes = play(Tracker(settings), jobs, *[(4.9, *[1.0] * (len(jobs) - 1))] * 5)
        assert bool(changes) == opened


def test_an_event_of_the_naming_view_keeps_that_view():
    tracker, reported = Tracker(SETTINGS), []
    for i, view in enumerate(["density"] * 5 + [NAMING_VIEW] * 2 + ["density"] * 5):
        moment = a_moment(1000 + 10 * i, ["j"])
        reported += [(c.kind, c.event.view) for c in tracker.update(moment, scored(9.0 + i, view=view), 3.0)]
    assert reported[0] == ("opened", "density")
    assert ("extended", NAMING_VIEW) in reported
    assert tracker.open[0].view == NAMING_VIEW


def test_threads_of_a_job_are_one_event_even_across_nodes():
    changes = play(Tracker(SETTINGS), ["j", "j", "j"], *[(5.0, 6.0, 1.0)] * 5, nodes=["a", "b", "b"])
    assert [kind for _, kind, _ in changes] == ["opened"]
    assert changes[0][2].places == (("a", (0,)), ("b", (0,)))


def test_two_jobs_of_a_node_that_alarm_within_two_minutes_are_two_events():
    tracker = Tracker(SETTINGS)
    play(tracker, ["j", "k"], *[(5.0, 6.0)] * 5)
    assert sorted(event.jobs for event in tracker.open) == [("j",), ("k",)]


def test_jobs_of_different_nodes_are_different_events():
    tracker = Tracker(SETTINGS)
    play(tracker, ["j", "k"], *[(5.0, 6.0)] * 5, nodes=["a", "b"])
    assert sorted(event.jobs for event in tracker.open) == [("j",), ("k",)]


def test_a_gap_neither_opens_nor_calms_an_event():
    assert play(Tracker(SETTINGS), ["j"], *[(NAN,)] * 9) == []
    tracker = Tracker(SETTINGS)
    play(tracker, ["j"], *[(5.0,)] * 4, *[(NAN,)] * 9)
    assert len(tracker.open) == 1
    changes = play(tracker, ["j"], (NAN,), (NAN,), start_s=1130)
    assert [(kind, event.end_s) for _, kind, event in changes] == [("closed", 1030)]


def test_an_event_closes_after_calm_and_not_while_scores_hover():
    tracker = Tracker(SETTINGS)
    play(tracker, ["j"], *[(5.0,)] * 4, *[(2.9,)] * 9)  # 2.9 is above 0.8 x 3
    assert len(tracker.open) == 1
    changes = play(tracker, ["j"], *[(1.0,)] * 5, start_s=1130)
    assert [(at, kind, event.end_s) for at, kind, event in changes] == [(1170, "closed", 1030)]


def test_an_event_ends_with_its_job():
    tracker = Tracker(SETTINGS)
    play(tracker, ["j"], *[(5.0,)] * 4)
    assert [kind for _, kind, _ in play(tracker, [""], (NAN,), start_s=1040)] == ["closed"]


def test_alarms_of_the_last_job_do_not_count_for_the_next():
    tracker = Tracker(SETTINGS)
    play(tracker, ["j"], *[(5.0,)] * 3)
    young = a_moment(1030, ["k"], age_s=5)
    assert tracker.update(young, scored(5.0), 3.0) == []


def test_threads_can_be_added_and_removed():
    tracker = Tracker(SETTINGS)
    play(tracker, ["j", "k"], *[(1.0, 5.0)] * 2, nodes=["a", "b"])
    changes = play(tracker, ["k"], (5.0,), (5.0,), nodes=["b"], start_s=1020)
    assert [(at, event.places) for at, _, event in changes] == [(1030, (("b", (0,)),))]


def test_the_same_second_twice_changes_nothing_and_a_clock_set_back_goes_on():
    tracker = Tracker(SETTINGS)
    play(tracker, ["j"], *[(5.0,)] * 4)
    assert play(tracker, ["j"], (5.0,), start_s=1030) == []
    assert len(tracker.open) == 1
    assert [kind for _, kind, _ in play(tracker, ["j"], *[(1.0,)] * 7, start_s=0)] == ["closed"]


def test_open_events_continue_after_a_restart():
    first = Tracker(SETTINGS)
    play(first, ["j"], *[(5.0,)] * 4)
    again = Tracker(SETTINGS, already_open=first.open)
    assert play(again, ["j"], *[(5.0,)] * 4, start_s=1040) == []
    assert again.open[0].id == first.open[0].id


def test_an_event_grows_with_its_threads():
    tracker = Tracker(SETTINGS)
    changes = play(tracker, ["j", "j"], *[(5.0, 1.0)] * 4, *[(5.0, 7.0)] * 4)
    assert [kind for _, kind, _ in changes][:2] == ["opened", "extended"]
    assert tracker.open[0].threads == 2
    assert tracker.open[0].score == 7.0


@given(st.lists(st.lists(st.sampled_from([NAN, 1.0, 2.7, 5.0]), min_size=3, max_size=3), max_size=40))
def test_every_event_opens_once_and_closes_at_most_once_in_order(rows):
    tracker, last = Tracker(SETTINGS), {}
    for at, kind, event in play(tracker, ["j", "j", ""], *map(tuple, rows)):
        assert isinstance(event, Event)
        assert event.onset_s <= event.seen_s <= at
        assert (kind == "opened") == (event.id not in last)
        assert last.get(event.id) != "closed"
        last[event.id] = kind
    assert {e.id for e in tracker.open} == {id for id, kind in last.items() if kind != "closed"}


@pytest.mark.slow
def test_a_burst_of_thousands_of_events_loses_none():
    """2,000 jobs on 1,000 nodes alarm at once; each is an event. Then all are calm."""
    jobs = [f"j{i:04d}" for i in range(2000)]
    nodes = [f"n{i // 2:04d}" for i in range(2000)]
    tracker = Tracker(SETTINGS)
    changes = play(tracker, jobs, *[(5.0,) * 2000] * 4, nodes=nodes)
    assert [kind for _, kind, _ in changes].count("opened") == 2000
    assert sorted(job for event in tracker.open for job in event.jobs) == jobs
    closed = play(tracker, jobs, *[(1.0,) * 2000] * 5, nodes=nodes, start_s=1040)
    assert [kind for _, kind, _ in closed].count("closed") == 2000
    assert tracker.open == ()


def test_jobs_share_an_event_only_if_a_channel_of_the_node_shows_that_the_whole_node_has_the_cause():
    for pressure, grouped in ((None, [("j",), ("k",)]), (0.1, [("j",), ("k",)]), (0.8, [("j", "k")])):
        tracker = Tracker(SETTINGS)
        seconds = range(1000, 1050, 10)
        watch(tracker, ["j", "k"], 5.0, *seconds, did=lambda _: [(300, [READING, READING])], io_pressure=pressure)
        assert sorted(event.jobs for event in tracker.open) == grouped
        assert {event.cause for event in tracker.open} == {STALLED_IO}


def test_what_identifies_an_event_stays_when_another_job_joins():
    """The alert of an event has these as labels. A label that changes ends one alert and fires another."""
    tracker = Tracker(SETTINGS)
    reading = {"did": lambda _: [(300, [READING, BUSY])], "io_pressure": 0.8}
    (opened,) = (
        c.event for c in watch(tracker, ["m", "b"], 5.0, *range(1000, 1040, 10), **reading) if "m" in c.event.jobs
    )
    both = {"did": lambda _: [(300, [READING, READING])], "io_pressure": 0.8}
    joining = Tracker(SETTINGS, already_open=[opened])
    watch(joining, ["m", "b"], 5.0, *range(1040, 1090, 10), **both)
    joined = next(event for event in joining.open if "b" in event.jobs)
    assert (joined.id, joined.job, joined.node, joined.cause) == (opened.id, "m", "a", STALLED_IO)
    assert joined.jobs == ("m", "b")


def test_a_node_that_joins_does_not_become_the_node_where_the_event_began():
    tracker = Tracker(SETTINGS)
    play(tracker, ["j", "j"], *[(5.0, 1.0)] * 5, nodes=["b", "a"])
    play(tracker, ["j", "j"], *[(5.0, 9.0)] * 5, nodes=["b", "a"], start_s=1050)
    (event,) = tracker.open
    assert event.nodes == ("b", "a")
    assert event.node == "b"


@pytest.mark.parametrize(
    ("cause", "phases"),
    [
        (IDLE, [(240, [BUSY] * 4), (60, [SLEEPING] * 4)]),
        (HUNG_RANK, [(240, [BUSY] * 4), (60, [SLEEPING, BUSY, BUSY, BUSY])]),
        (MISBOUND, [(300, [BUSY, SLEEPING, SLEEPING, SLEEPING])]),
        (STALLED_IO, [(240, [BUSY] * 4), (60, [READING] * 4)]),
        (STRAGGLER, [(240, [BUSY] * 4), (60, [WORKING, POLLING, POLLING, POLLING])]),
        (UNUSUAL, [(240, [BUSY] * 4), (60, [(0.9, 0.1, 0.0, 0.0)] * 4)]),
    ],
)
def test_the_cause_follows_from_what_the_threads_of_the_job_do(cause, phases):
    tracker = Tracker(SETTINGS)
    changes = watch(tracker, ["j"] * 4, 5.0, *range(1000, 1040, 10), did=lambda _: phases)
    assert [(change.kind, change.event.cause) for change in changes] == [("opened", cause)]


def test_an_idle_job_is_idle_since_the_second_in_which_it_stopped():
    moment = doing(a_moment(1000, ["j"]), (200, [BUSY]), (100, [SLEEPING]))
    found = diagnose(moment, np.array([0]))
    assert found is not None
    assert found.since_s == pytest.approx(900, abs=8)


def hung_then_reading(end_s: int):
    """Idle until second 1,100, then waiting for I/O."""
    reading_s = min(max(end_s - 1100, 0), 300)
    return [(300 - reading_s, [SLEEPING]), (reading_s, [READING])] if reading_s else [(300, [SLEEPING])]


def test_a_new_cause_that_lasts_is_a_new_event_and_one_that_does_not_is_not():
    tracker = Tracker(SETTINGS)
    changes = watch(tracker, ["j"], 5.0, *range(1000, 1300, 10), did=hung_then_reading)
    kinds = [(change.kind, change.event.cause) for change in changes if change.kind != "extended"]
    assert kinds == [("opened", IDLE), ("closed", IDLE), ("opened", STALLED_IO)]
    closed, opened = [change.event for change in changes if change.kind != "extended"][1:]
    assert closed.id != opened.id
    assert closed.end_s is not None
    assert closed.end_s <= opened.onset_s

    def flickers(end_s: int):
        return [(300, [READING if end_s == 1150 else SLEEPING])]

    steady = Tracker(SETTINGS)
    changes = watch(steady, ["j"], 5.0, *range(1000, 1300, 10), did=flickers)
    assert {change.event.cause for change in changes} == {IDLE}
    assert [change.kind for change in changes].count("opened") == 1


def test_two_causes_of_one_job_that_begin_in_the_same_second_have_different_ids():
    assert event_id("j", True, 1000, IDLE) != event_id("j", True, 1000, STALLED_IO)


def test_an_event_on_a_free_cpu_ends_when_a_job_takes_the_cpu_and_never_has_the_figures_of_the_job():
    tracker = Tracker(SETTINGS)
    play(tracker, ["", ""], *[(5.0, 1.0)] * 4)
    assert [event.places for event in tracker.open] == [(("a", (0,)),)]
    (change,) = tracker.update(a_moment(1040, ["j", ""], age_s=5), scored(50.0, 1.0), 3.0)
    assert (change.kind, change.event.score, change.event.end_s) == ("closed", 5.0, 1030)


def test_an_event_on_two_free_cpus_keeps_the_one_that_stays_free():
    tracker = Tracker(SETTINGS)
    play(tracker, ["", ""], *[(5.0, 5.0)] * 4)
    tracker.update(a_moment(1040, ["j", ""], age_s=5), scored(50.0, 5.0), 3.0)
    (event,) = tracker.open
    assert (event.places, event.score) == ((("a", (1,)),), 5.0)


def test_a_job_that_takes_over_the_cpus_of_another_does_not_continue_its_event():
    tracker = Tracker(SETTINGS)
    play(tracker, ["j", "j"], *[(5.0, 5.0)] * 4)
    tracker.update(a_moment(1040, ["j", "k"], age_s=5), scored(5.0, 70.0), 3.0)
    (event,) = tracker.open
    assert (event.jobs, event.score) == (("j",), 5.0)
