"""Events small enough to check by hand: scores every ten seconds, threshold 3."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.channels import CPU
from clustertwin.telemetry.detection.events.event import Event
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


def test_jobs_of_a_node_that_alarm_together_are_one_event():
    tracker = Tracker(SETTINGS)
    play(tracker, ["j", "k"], *[(5.0, 6.0)] * 5)
    assert [event.jobs for event in tracker.open] == [("j", "k")]


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


def test_a_burst_of_thousands_of_events_loses_none():
    """2,000 jobs on 1,000 nodes alarm at once; the two jobs of a node are one event. Then all are calm."""
    jobs = [f"j{i:04d}" for i in range(2000)]
    nodes = [f"n{i // 2:04d}" for i in range(2000)]
    tracker = Tracker(SETTINGS)
    changes = play(tracker, jobs, *[(5.0,) * 2000] * 4, nodes=nodes)
    assert [kind for _, kind, _ in changes].count("opened") == 1000
    assert sorted(job for event in tracker.open for job in event.jobs) == jobs
    closed = play(tracker, jobs, *[(1.0,) * 2000] * 5, nodes=nodes, start_s=1040)
    assert [kind for _, kind, _ in closed].count("closed") == 1000
    assert tracker.open == ()
