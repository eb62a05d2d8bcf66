"""Reasons on paper: one strange thread among calm ones, and what must be said of it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from clustertwin.telemetry.detection.views.region_distance import Near
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.channels import CPU
from clustertwin.telemetry.detection.events.explanation import Explanation, explain
from clustertwin.telemetry.detection.scores import NAMING_VIEW, Scores
from clustertwin.telemetry.moments.moment import Moment


class Expecting:
    """Expects the same of every thread."""

    def __init__(self, *ratios: float) -> None:
        self.ratios = ratios

    def expected(self, moment, threads, view):
        return np.tile(np.array(self.ratios, np.float32), (len(threads), 1))


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
        "1 thread: iowait was 70 % over 100 s, where 2.0 % was expected; the other thread of the job had 3.0 %."
    )


def test_without_an_expectation_the_neighbours_are_the_yardstick():
    moment = moment_of((0.2, 0.0, 0.8, 0.0), (0.2, 0.0, 0.0, 0.8), (0.2, 0.0, 0.2, 0.6))
    nan = float("nan")
    why = explain(Expecting(nan, nan, nan, nan), moment, scores_of(9, 1, 1), np.array([0]))
    assert why is not None
    assert why.channel in ("iowait", "other")
    assert why.ratios[0].expected is None
    assert "expected" not in why.sentence


def test_a_job_alone_is_compared_with_its_node():
    moment = moment_of((0.0, 0.0, 1.0, 0.0), (1.0, 0.0, 0.0, 0.0), job=(0, 1))
    why = explain(Expecting(1, 0, 0, 0), moment, scores_of(9, 1), np.array([0]))
    assert why is not None
    assert (why.neighbours, why.neighbours_of) == (1, "node")


def test_nothing_known_gives_no_reason():
    moment = moment_of((0.0, 0.0, 1.0, 0.0))
    moment.valid[:] = False
    assert explain(Expecting(1, 0, 0, 0), moment, scores_of(float("nan")), np.array([0])) is None


class Nearing(Expecting):
    """Knows of one region that is wrong."""

    def near(self, moment, scores, threads):
        return Near("bad-io", 1.25, 8.0)


def test_a_reason_by_distance_says_how_near_to_what_and_how_far_normal_threads_stay():
    moment = moment_of((0.2, 0.1, 0.7, 0.0), (0.97, 0.0, 0.03, 0.0))
    scores = replace(scores_of(9, 1), views=(NAMING_VIEW,))
    why = explain(Nearing(0.95, 0.02, 0.02, 0.01), moment, scores, np.array([0]))
    assert why is not None
    assert (why.view, why.region, why.distance, why.kept) == (NAMING_VIEW, "bad-io", 1.25, 8.0)
    assert why.sentence.endswith("; in the embedding 1.25 from bad-io, where normal threads keep 8.")


ratio = st.floats(0, 1, width=32)


@given(st.tuples(ratio, ratio, ratio, ratio), st.tuples(ratio, ratio, ratio, ratio))
def test_the_sentence_says_its_own_numbers(seen, expected):
    why = explain(Expecting(*expected), moment_of(seen), scores_of(9), np.array([0]))
    assert isinstance(why, Explanation)
    told = why.ratios[0]
    said = [float(number) for number in re.findall(r"([\d.]+) %", why.sentence)]
    assert said == [spoken(told.seen), spoken(told.expected)]
    assert told.seen - told.expected >= max(r.seen - r.expected for r in why.ratios) - 1e-6


def spoken(value: float) -> float:
    percent = 100 * value
    return float(f"{percent:.0f}" if 10 <= percent <= 90 or percent in (0, 100) else f"{percent:.1f}")
