"""A detector takes its own channels from a moment by name; others, with or without values, change nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustertwin.core.channels import CPU, NODE, SPREAD, Schema
from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.batch_scoring import score_batches
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.events.explanation import explain
from clustertwin.telemetry.detection.features.inference import infer, reconstruct
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer

from .conftest import campaign, normal_moments

WIDE = CPU + SPREAD


def widened(moment: Moment, schema: Schema = WIDE) -> Moment:
    """The moment with more channels: random values, half of them NaN."""
    rng = np.random.default_rng(0)
    values = rng.random((*moment.values.shape[:2], len(schema)), np.float32)
    values[rng.random(values.shape) < 0.5] = np.nan
    for i, name in enumerate(CPU.names):
        values[..., schema.index(name)] = moment.values[..., i]
    return replace(moment, schema=schema, values=values)


@pytest.fixture(scope="module")
def narrow() -> Moment:
    return normal_moments()[1][4]


@pytest.mark.parametrize("schema", [WIDE, Schema((*NODE.channels, *CPU.channels)), Schema(WIDE.channels[::-1])])
def test_more_channels_give_the_same_scores_to_the_last_bit(detector: Detector, narrow: Moment, schema: Schema):
    plain, wide = detector.score(narrow), detector.score(widened(narrow, schema))
    for name in ("score", "surprise", "error", "embedding"):
        np.testing.assert_array_equal(getattr(wide, name), getattr(plain, name), err_msg=name)


def test_leading_channels_are_taken_as_a_view(narrow: Moment):
    wide = widened(narrow)
    assert np.shares_memory(wide.select(CPU).values, wide.values)
    assert narrow.select(CPU) is narrow


def test_a_buffer_with_more_channels_gives_the_same_scores(detector: Detector):
    plain, wide = TraceBuffer(CPU), TraceBuffer(WIDE)
    for trace in campaign(5, hours=0.2):
        plain.push(trace)
        wide.push(trace)  # it has no node channels: they are NaN
    end_s = trace.end_s
    assert np.isnan(wide.moment(end_s).values[..., 4:]).all()
    np.testing.assert_array_equal(detector.score(wide.moment(end_s)).score, detector.score(plain.moment(end_s)).score)


def test_a_moment_without_the_detectors_channels_is_refused_by_name(detector: Detector, narrow: Moment):
    node_only = replace(narrow, schema=NODE, values=narrow.values[..., :2])
    with pytest.raises(SettingsError, match=r"user, system, iowait, other are needed; this moment has memory_used"):
        detector.score(node_only)


def test_embeddings_and_reconstructions_ignore_the_other_channels(detector: Detector, narrow: Moment):
    wide = widened(narrow)
    for of_wide, of_narrow in zip(infer(detector.stored, wide), infer(detector.stored, narrow), strict=True):
        np.testing.assert_array_equal(of_wide, of_narrow)
    np.testing.assert_array_equal(reconstruct(detector.stored, wide), reconstruct(detector.stored, narrow))


def test_moments_of_different_schemas_are_scored_in_batches(detector: Detector, narrow: Moment):
    first, second = score_batches(detector, [narrow, widened(narrow)])
    np.testing.assert_array_equal(first.score, second.score)


@pytest.mark.parametrize("view", ["reconstruction", "density", "peers"])
def test_nothing_is_expected_of_channels_that_the_detector_does_not_watch(
    detector: Detector, narrow: Moment, view: str
):
    rows = np.flatnonzero(narrow.settled & (narrow.job >= 0))[:4]
    expected = detector.expected(widened(narrow), rows, view)
    np.testing.assert_array_equal(expected[:, :4], detector.expected(narrow, rows, view))
    assert np.isnan(expected[:, 4:]).all()


def test_an_explanation_has_every_channel_that_has_values_and_the_detectors_own_first(
    detector: Detector, narrow: Moment
):
    wide = widened(narrow)
    wide.values[..., WIDE.index("cpu_pressure")] = np.nan
    scores = detector.score(wide)
    thread = int(np.nanargmax(scores.score))
    plain, more = (explain(detector, moment, scores, np.array([thread])) for moment in (narrow, wide))
    assert plain is not None
    assert more is not None
    assert [ratio.channel for ratio in more.ratios[:4]] == [ratio.channel for ratio in plain.ratios]
    assert {ratio.channel for ratio in more.ratios[4:]} == {"memory_used", "memory_pressure", "io_pressure"}
    assert all(ratio.expected is None and 0 < ratio.seen < 1 for ratio in more.ratios[4:])
    assert more.sentence == plain.sentence
