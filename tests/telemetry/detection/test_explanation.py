"""Explanations small enough to check by hand: one unusual thread among normal ones."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.channels import CPU
from clustertwin.telemetry.detection.events.causes import IDLE, UNUSUAL
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.event_rows import held_rows
from clustertwin.telemetry.detection.events.explanation import Explanation, Ratio, explain, with_measure
from clustertwin.telemetry.detection.events.explanation_text import title_of
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.detection.scores import NAMING_VIEW, Scores
from clustertwin.telemetry.detection.views.contract import ClosestFault
from clustertwin.telemetry.moments.moment import Moment

EVENT = Event("e", (("a", (0,)),), ("j0",), "", 960, 1000, None, 9.0, "reconstruction", "", UNUSUAL)


class Expecting:
    """A detector that expects the same of every thread and knows no faults."""

    views = ("reconstruction", NAMING_VIEW)

    def __init__(self, *ratios: float) -> None:
        self.ratios = ratios

    def length_s(self, view):
        return 100

    def expected(self, moment, threads, view):
        return np.tile(np.array(self.ratios, np.float32), (len(threads), 1))

    def closest_fault(self, moment, scores, threads, view):
        return None


def moment_of(*ratios: tuple[float, float, float, float], job: tuple[int, ...] = ()) -> Moment:
    """A thread for each row of constant ratios, all on one node."""
    values = np.repeat(np.array(ratios, np.float32)[:, None], 300, axis=1)
    n = len(ratios)
    held = np.array(job or [0] * n, np.int32)
    jobs = tuple(f"j{i}" for i in range(held.max() + 1))
    zeros = np.zeros(n, np.int32)
    cpu = np.arange(n, dtype=np.int32)
    return Moment(1000, CPU, values, np.ones((n, 300), np.bool_), ("a",), zeros, cpu, jobs, held, zeros + 900)


def scores_of(*score: float) -> Scores:
    values = np.array(score, np.float32)
    return Scores(values, values[:, None], ("reconstruction",), values, np.zeros((len(values), 2), np.float32))


def test_the_channel_that_grew_most_against_what_was_expected_is_named():
    moment = moment_of((0.2, 0.1, 0.7, 0.0), (0.97, 0.0, 0.03, 0.0))
    why = explain(Expecting(0.95, 0.02, 0.02, 0.01), moment, scores_of(9, 1), np.array([0]))
    assert why is not None
    assert (why.channel, why.start_s, why.end_s, why.far_s) == ("iowait", 900, 1000, 100)
    assert [ratio.channel for ratio in why.ratios] == ["iowait", "system", "other", "user"]
    assert why.sentence == (
        "1 thread: iowait was 70 % over 100 s; 2 % was expected. The other thread of the job had 3 %."
    )


def test_without_an_expectation_the_neighbours_are_the_baseline():
    moment = moment_of((0.2, 0.0, 0.8, 0.0), (0.2, 0.0, 0.0, 0.8), (0.2, 0.0, 0.2, 0.6))
    nan = float("nan")
    why = explain(Expecting(nan, nan, nan, nan), moment, scores_of(9, 1, 1), np.array([0]))
    assert why is not None
    assert why.channel in ("iowait", "other")
    assert why.ratios[0].expected is None
    assert why.sentence == "1 thread: iowait was 80 % over 100 s; the 2 other threads of the job had 10 %."


def test_equal_means_are_not_printed_and_the_pattern_is_named_instead():
    moment = moment_of((0.5, 0.0, 0.02, 0.48), (0.5, 0.0, 0.02, 0.48))
    nan = float("nan")
    for expecting in (Expecting(0.5, 0.0, 0.02, 0.48), Expecting(nan, nan, nan, nan)):
        why = explain(expecting, moment, scores_of(9, 1), np.array([0]))
        assert why is not None
        assert why.sentence == "1 thread: the averages over 100 s are normal, but the pattern over time is unusual."
        assert title_of(EVENT, why) == "Job j0 is unusual: the pattern over time of 1 of 2 threads, not an average"


def test_small_differences_are_shown_with_a_decimal():
    moment = moment_of((0.984, 0.01, 0.006, 0.0))
    why = explain(Expecting(0.99, 0.01, 0.0, 0.0), moment, scores_of(9), np.array([0]))
    assert why is not None
    assert why.sentence == "1 thread: iowait was 0.6 % over 100 s; 0.0 % was expected."


def test_a_view_of_five_minutes_is_explained_over_five_minutes():
    class Long(Expecting):
        def length_s(self, view):
            return 300

    why = explain(Long(0, 0, 0, 1), moment_of((0.2, 0.0, 0.8, 0.0)), scores_of(9), np.array([0]))
    assert why is not None
    assert (why.start_s, why.end_s) == (700, 1000)
    assert "over 300 s" in why.sentence


def test_a_job_alone_is_compared_with_its_node():
    moment = moment_of((0.0, 0.0, 1.0, 0.0), (1.0, 0.0, 0.0, 0.0), job=(0, 1))
    why = explain(Expecting(1, 0, 0, 0), moment, scores_of(9, 1), np.array([0]))
    assert why is not None
    assert (why.neighbours, why.neighbours_of) == (1, "node")


def test_threads_without_a_valid_second_have_no_explanation():
    moment = moment_of((0.0, 0.0, 1.0, 0.0))
    moment.valid[:] = False
    assert explain(Expecting(1, 0, 0, 0), moment, scores_of(float("nan")), np.array([0])) is None


def test_scores_of_a_view_that_the_detector_lacks_have_no_explanation():
    moment = moment_of((0.0, 0.0, 1.0, 0.0))
    scores = replace(scores_of(9), views=("a view of the last champion",))
    assert explain(Expecting(1, 0, 0, 0), moment, scores, np.array([0])) is None


class KnowingFaults(Expecting):
    def closest_fault(self, moment, scores, threads, view):
        return ClosestFault("bad-io", 1.25, 8.0, 0.999) if view == NAMING_VIEW else None


def test_the_closest_known_fault_is_named_with_its_distance_and_that_of_normal_threads():
    moment = moment_of((0.2, 0.1, 0.7, 0.0), (0.97, 0.0, 0.03, 0.0))
    scores = replace(scores_of(9, 1), views=(NAMING_VIEW,))
    why = explain(KnowingFaults(0.95, 0.02, 0.02, 0.01), moment, scores, np.array([0]))
    assert why is not None
    assert (why.view, why.region, why.distance, why.kept) == (NAMING_VIEW, "bad-io", 1.25, 8.0)
    assert why.sentence.endswith(
        " Closest known fault: bad I/O (distance 1.25; 99.9 % of normal threads are farther than 8)."
    )


def test_an_explanation_stored_by_an_older_version_has_a_text():
    old = Explanation("distance", 0, 100, 90, 2, 0, "", (Ratio("other", 0.5, 0.1, None),), (), "slow-io", 1.0, 2.0)
    assert old.sentence == (
        "2 threads: idle was 50 % over 100 s; 10 % was expected. "
        "Closest known fault: slow I/O (distance 1; 99.9 % of normal threads are farther than 2)."
    )


def test_a_known_fault_is_named_only_if_it_is_clearly_the_nearest_and_near_enough():
    """An event once said "closest known fault: bad I/O" while slow I/O was nearer in its own table."""
    iowait = Ratio("iowait", 0.5, 0.1, None)
    why = Explanation("distance", 0, 100, 90, 2, 0, "", (iowait,), (), "bad-io", 1.0, 2.0)
    assert why.known_fault == "bad-io"
    assert replace(why, nearest=(("bad-io", 1.0), ("slow-io", 4.0))).known_fault == "bad-io"
    assert replace(why, nearest=(("slow-io", 0.8), ("bad-io", 1.0))).known_fault == ""
    assert replace(why, nearest=(("bad-io", 1.0), ("slow-io", 1.1))).known_fault == ""
    assert replace(why, distance=2.5).known_fault == ""
    assert replace(why, cause=IDLE).known_fault == ""
    assert replace(why, ratios=(Ratio("iowait", 0.0, 0.1, None),)).known_fault == ""


def test_a_hung_job_is_explained_by_its_idle_threads_against_their_own_past():
    moment = moment_of(*[(0.99, 0.01, 0.0, 0.0)] * 4)
    moment.values[:, -60:] = (0.0, 0.0, 0.0, 1.0)
    event = replace(EVENT, places=(("a", (0, 1, 2, 3)),), cause=IDLE, since_s=940)
    why = explain(Expecting(0.99, 0.01, 0, 0), moment, scores_of(9, 9, 9, 9), np.arange(4), event=event)
    assert why is not None
    assert (why.cause, why.channel, why.threads) == (IDLE, "other", 4)
    assert title_of(event, why) == "Job j0 looks hung: 4 threads idle for 60 s while allocated"
    assert "idle was" in why.sentence


def test_threads_that_another_job_holds_now_are_not_explained():
    moment = moment_of((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), job=(0, 1))
    event = replace(EVENT, places=(("a", (0, 1)),))
    assert held_rows(moment, event).tolist() == [0]
    assert held_rows(moment, replace(event, jobs=())).tolist() == []


def found(cause: str, channel: str, value: float, usual: float, compared_with: str) -> tuple[Event, Explanation]:
    """An event that a finding opened, and its explanation with what the finding measured."""
    moment = moment_of(*[(0.9, 0.1, 0.0, 0.0)] * 4)
    event = replace(EVENT, places=(("a", (0, 1, 2, 3)),), view="harm", question="harm", cause=cause, since_s=940)
    why = explain(Expecting(0.9, 0.1, 0, 0), moment, scores_of(9, 9, 9, 9), np.arange(4), event=event)
    assert why is not None
    finding = Finding("harm", cause, "j0", "a", (0, 1, 2, 3), channel, value, usual, compared_with, 940, 9.0)
    return event, with_measure(why, finding)


def test_a_finding_is_titled_with_what_it_measured():
    event, why = found("memory-pressure", "memory_pressure", 0.42, 0.1, "limit")
    assert title_of(event, why) == (
        "Job j0 waits for memory: memory pressure 42 % on 4 threads for 60 s, more than the limit of 10 %"
    )
    assert why.sentence == "4 threads: memory pressure 42 %, more than the limit of 10 %."


def test_a_finding_of_an_idle_job_does_not_call_it_hung_while_its_threads_work():
    event, why = found(IDLE, "idle", 0.4, 0.03, "own past")
    assert title_of(event, why) == ("Job j0 works less than before: idle 40 % on 4 threads for 60 s, up from 3 %")


def test_a_finding_without_a_unit_is_titled_by_the_channels_of_its_threads():
    event, why = found("out-of-memory", "oom_kills", 0.5, float("nan"), "limit")
    assert title_of(event, why) == "Job j0 lost a process for lack of memory"
    assert with_measure(why, Finding("change", "straggler", "j0", "a", (0,), "apart", 3.0, 1.0, "ranks", 0, 9.0)) is why


ratio = st.floats(0, 1, width=32)


@given(st.tuples(ratio, ratio, ratio, ratio), st.tuples(ratio, ratio, ratio, ratio))
def test_the_text_shows_its_own_numbers_and_never_the_same_one_twice(seen, expected):
    why = explain(Expecting(*expected), moment_of(seen), scores_of(9), np.array([0]))
    assert isinstance(why, Explanation)
    main = why.ratios[0]
    shown = re.findall(r"([\d.]+) %", why.sentence)
    decimals = 0 if abs(main.seen - main.expected) >= 0.05 else 1
    numbers = [f"{100 * value:.{decimals}f}" for value in (main.seen, main.expected)]
    if not why.against:
        assert shown == []
        assert "pattern over time" in why.sentence
        return
    assert shown in (numbers, [])
    assert bool(shown) == (numbers[0] != numbers[1])
    title = title_of(EVENT, why)
    assert re.findall(r"([\d.]+) %", title) == shown
    assert not shown or ((" more than the " in title) == (main.seen > main.expected))
