"""Counters to ratios: known steps, every fault, sample times at every phase, and the stream against the range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clustertwin.core.channels import CPU, NODE, SPREAD
from clustertwin.core.errors import InputError
from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.ingest.counters import MODES, Counters, JobCpus, NodeReading, job_spans, stack
from clustertwin.telemetry.ingest.rates import Faults, RateStream, to_trace
from clustertwin.telemetry.ingest.second_boundaries import Boundaries

USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL = range(8)
EPOCH_S = 1_700_000_000


def counters(steps: list[dict[int, float]], times_s: list[float] | None = None) -> Counters:
    """One thread whose counters move by these steps (mode -> seconds), one sample a second unless told."""
    seconds = np.full((1, len(steps) + 1, 8), 1000.0)
    for k, step in enumerate(steps):
        seconds[0, k + 1] = seconds[0, k]
        for mode, value in step.items():
            seconds[0, k + 1, mode] += value
    times = np.arange(len(steps) + 1.0) if times_s is None else np.array(times_s)
    return Counters("n1", (0,), EPOCH_S + times, seconds)


def busy(n: int) -> list[dict[int, float]]:
    """n seconds, each with another share of user time: 0.00, 0.01, 0.02, …"""
    return [{USER: k / 100, IDLE: 1 - k / 100} for k in range(n)]


def test_a_second_on_paper() -> None:
    step = {USER: 0.30, NICE: 0.10, SYSTEM: 0.20, IOWAIT: 0.10, IDLE: 0.25, IRQ: 0.01, SOFTIRQ: 0.02, STEAL: 0.02}
    trace, faults = to_trace(counters([step]))
    assert trace.start_s == EPOCH_S
    assert trace.schema == CPU
    np.testing.assert_allclose(trace.values[0, 0], [0.4, 0.2, 0.1, 0.3], atol=1e-7)
    assert trace.valid.all()
    assert faults == Faults()


def test_guest_time_is_not_counted_twice() -> None:
    seconds = np.zeros((1, 2, 3))
    seconds[0, 1] = [0.5, 0.5, 0.4]
    trace, _ = to_trace(Counters("n1", (0,), np.array([10.0, 11.0]), seconds, ("user", "idle", "guest")))
    np.testing.assert_allclose(trace.values[0, 0], [0.5, 0, 0, 0.5])


def test_a_short_and_a_long_second_are_both_one_second() -> None:
    trace, _ = to_trace(counters([{USER: 0.45, IDLE: 0.45}, {USER: 0.55, IDLE: 0.55}], [0, 0.9, 2.0]))
    np.testing.assert_allclose(trace.values[0, :, 0], [0.5, 0.5])


def test_iowait_that_decreases_is_taken_as_zero_and_counted() -> None:
    trace, faults = to_trace(counters([{USER: 0.5, IDLE: 0.6, IOWAIT: -0.1}]))
    np.testing.assert_allclose(trace.values[0, 0], [0.5 / 1.1, 0, 0, 0.6 / 1.1], atol=1e-7)
    assert trace.valid.all()
    assert faults == Faults(stepped_back=1)


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        ({USER: -900.0, IDLE: 1.0}, "reset"),  # a reboot
        ({IDLE: -900.0, USER: 0.5}, "reset"),  # a thread unplugged and back
        ({}, "stalled"),
        ({USER: 0.05}, "stalled"),
        ({USER: 1e9}, "jumped"),
        ({USER: np.nan, IDLE: 1.0}, "missing"),
        ({USER: np.inf, IDLE: 1.0}, "infinite"),
    ],
)
def test_a_step_that_cannot_be_trusted_is_masked_and_counted(step: dict[int, float], fault: str) -> None:
    trace, faults = to_trace(counters([{IDLE: 1.0}, step]))
    assert trace.valid[0].tolist() == [True, False]
    assert (trace.values[0, 1] == 0).all()
    assert faults == Faults(**{fault: 1})


def test_the_seconds_after_a_reset_are_valid_again() -> None:
    trace, faults = to_trace(counters([{IDLE: 1.0}, {IDLE: -900.0}, {USER: 1.0}]))
    assert trace.valid[0].tolist() == [True, False, True]
    assert trace.values[0, 2].tolist() == [1, 0, 0, 0]
    assert faults == Faults(reset=1)


def test_a_gap_is_masked_for_as_long_as_it_lasted() -> None:
    trace, faults = to_trace(counters([{IDLE: 1.0}, {IDLE: 3.0}, {IDLE: 1.0}], [0, 1, 4, 5]))
    assert trace.valid[0].tolist() == [True, False, False, False, True]
    assert faults == Faults(gap=3)


def test_doubled_and_unordered_samples_change_nothing() -> None:
    clean = counters(busy(30))
    order = np.r_[0:10, 12, 10, 11, 13:31, 5, 30]
    messy = Counters("n1", (0,), clean.times_s[order], clean.seconds[:, order])
    trace, faults = to_trace(messy)
    np.testing.assert_array_equal(trace.values, to_trace(clean)[0].values)
    assert faults == Faults(late=3, doubled=2)


def test_a_thread_is_masked_while_it_is_missing() -> None:
    readings = [
        NodeReading("n1", EPOCH_S + k, cpus, np.full((len(cpus), 8), k / 8.0))
        for k, cpus in enumerate([(0, 1), (0, 1), (0,), (0,), (0, 1), (0, 1)])
    ]
    trace, faults = to_trace(stack(readings))
    assert trace.valid[0].all()
    assert trace.valid[1].tolist() == [True, False, False, False, True]
    assert faults == Faults(missing=3)


def test_start_and_end_limit_the_trace_for_any_samples() -> None:
    trace, faults = to_trace(counters(busy(5)), start_s=EPOCH_S - 2, end_s=EPOCH_S + 3)
    assert (trace.start_s, trace.end_s) == (EPOCH_S - 2, EPOCH_S + 3)
    assert trace.valid[0].tolist() == [False, False, True, True, True]
    assert faults.gap == 2


def test_no_samples_give_an_empty_trace() -> None:
    trace, faults = to_trace(Counters("n1", (0,), np.empty(0), np.empty((1, 0, 8))))
    assert trace.values.shape == (1, 0, 4)
    assert faults == Faults()


def test_a_time_in_the_far_future_is_refused_not_allocated() -> None:
    with pytest.raises(InputError, match=r"n1: samples span .* days"):
        to_trace(counters([{IDLE: 1.0}, {IDLE: 1.0}], [0, 1, 1e9]))


def test_a_coarser_cadence_is_a_setting() -> None:
    trace, faults = to_trace(counters([{USER: 6.0, IDLE: 9.0}] * 4, [4, 19, 34.2, 49, 64]), interval_s=15)
    np.testing.assert_allclose(trace.values[0, :, 0], 0.4)
    assert trace.start_s % 15 == 0
    assert faults == Faults()


def with_memory_and_io(memory: list[float], io_waiting_s: list[float]) -> Counters:
    """Two threads of one node; its memory in use as a ratio, its seconds of waiting for I/O since boot."""
    operands = np.zeros((len(memory), len(NODE), 2))
    operands[:, NODE.index("memory_used")] = [(1 - used, 1) for used in memory]
    operands[:, NODE.index("io_pressure"), 0] = io_waiting_s
    seconds = np.cumsum(np.full((2, len(memory), 8), 0.125), axis=1)
    return Counters("n1", (0, 1), np.arange(float(len(memory))), seconds, MODES, operands)


NODE_SAMPLES = with_memory_and_io([0.5, 0.25, 0.75, np.nan], [7.0, 7.1, 8.3, 8.4])


def test_node_channels_are_beside_the_threads_and_unknown_ones_mask_nothing() -> None:
    trace, faults = to_trace(NODE_SAMPLES)
    assert trace.schema == CPU
    assert trace.node_channels is not None
    values = dict(zip(trace.node_channels.schema.names, trace.node_channels.values.T, strict=True))
    np.testing.assert_allclose(values["memory_used"], [0.25, 0.75, np.nan])
    np.testing.assert_allclose(values["io_pressure"], [0.1, 1.0, 0.1], atol=1e-6)
    assert trace.valid.all()
    assert faults == Faults()


def test_in_a_wide_trace_every_thread_carries_the_node_channels_and_unknown_ones_mask_its_second() -> None:
    trace, faults = to_trace(NODE_SAMPLES, wide=True)
    assert trace.schema == CPU + SPREAD
    memory, io = trace.schema.index("memory_used"), trace.schema.index("io_pressure")
    np.testing.assert_allclose(trace.values[0, :2, [memory, io]], [[0.25, 0.75], [0.1, 1.0]], atol=1e-6)
    np.testing.assert_array_equal(trace.values[0], trace.values[1])
    assert trace.valid.tolist() == [[True, True, False]] * 2
    assert faults == Faults(missing=2)


def test_a_stream_gives_the_same_node_channels_as_the_range() -> None:
    stream = RateStream()
    live = [
        stream.push(NodeReading("n1", float(k), (0, 1), NODE_SAMPLES.seconds[:, k], operands=NODE_SAMPLES.operands[k]))
        for k in range(4)
    ]
    values = np.concatenate([trace.node_channels.values for trace in live if trace is not None])
    np.testing.assert_array_equal(values, to_trace(NODE_SAMPLES)[0].node_channels.values)


def test_after_a_gap_node_channels_are_unknown() -> None:
    counters_ = with_memory_and_io([0.5] * 6, [1.0] * 6)
    counters_.times_s[3:] += 5
    trace, _ = to_trace(counters_)
    assert np.isnan(trace.node_channels.values[2:8]).all()
    assert not np.isnan(trace.node_channels.values[[0, 1, 8, 9], NODE.index("memory_used")]).any()


@settings(max_examples=settings.default.max_examples // 4)
@example(phase=0.375, jitter=[0.140625] + [0.0] * 39)
@example(phase=0.36, jitter=[0.15] + [-0.15] * 39)
@given(phase=st.floats(0, 1), jitter=st.lists(st.floats(-0.15, 0.15), min_size=40, max_size=40))
def test_jitter_at_any_phase_neither_loses_nor_doubles_a_second(phase: float, jitter: list[float]) -> None:
    times = [k + phase + j for k, j in enumerate(jitter)]
    trace, faults = to_trace(counters(busy(39), times))
    np.testing.assert_allclose(trace.values[0, :, 0], np.arange(39) / 100, atol=1e-6)
    assert trace.valid.all()
    assert faults == Faults()


@pytest.mark.parametrize("period_s", [0.99, 0.999, 1.001, 1.01])
def test_a_sampler_that_runs_fast_or_slow_masks_nothing(period_s: float) -> None:
    times = [k * period_s for k in range(2001)]
    trace, faults = to_trace(counters([{USER: 0.5, IDLE: 0.5}] * 2000, times))
    assert trace.valid.all()
    assert abs(trace.values.shape[1] - 2000 * period_s) <= 1
    assert faults == Faults(doubled=2000 - trace.values.shape[1] if period_s < 1 else 0)


def test_two_scrapers_of_one_exporter_make_one_sample_a_second() -> None:
    rng = np.random.default_rng(0)
    times = np.sort(np.r_[np.arange(100) + 0.1, np.arange(100) + 0.6] + rng.uniform(0, 0.01, 200))
    clock = Boundaries()
    placed = [b for t in times if (b := clock.place(t)) is not None]
    assert placed == list(range(placed[0], placed[0] + len(placed)))
    assert len(placed) >= 99


odd = st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 0.0, 0.5, 1.0, 1.5, 1e12])


@st.composite
def messes(draw: st.DrawFn) -> Counters:
    """Two threads' counters as nobody should ever see them."""
    n = draw(st.integers(0, 6))
    times = draw(hnp.arrays(float, n, elements=st.floats(0, 20) | st.sampled_from([np.nan, np.inf])))
    return Counters("n1", (0, 1), times, draw(hnp.arrays(float, (2, n, 8), elements=odd)))


@settings(max_examples=2 * settings.default.max_examples)
@given(messes())
def test_for_any_counters_ratios_stay_in_range_and_sum_to_one(counters: Counters) -> None:
    trace, _ = to_trace(counters)
    assert ((trace.values >= 0) & (trace.values <= 1)).all()
    np.testing.assert_allclose(trace.values[trace.valid].sum(axis=1), 1, atol=1e-6)


def test_the_stream_gives_the_same_as_the_range() -> None:
    rng = np.random.default_rng(1)
    steps = rng.dirichlet(np.ones(8), size=(4, 120)) * rng.uniform(0.9, 1.1, (4, 120, 1))
    seconds = np.concatenate([np.zeros((4, 1, 8)), np.cumsum(steps, axis=1)], axis=1)
    seconds[2, 40:] -= 30  # a reset
    times = EPOCH_S + 0.48 + np.arange(121) + rng.uniform(-0.05, 0.05, 121)
    keep = np.delete(np.arange(121), [70, 71, 72])  # a gap
    stream = RateStream()
    readings = [NodeReading("n1", times[k], (0, 1, 2, 3), seconds[:, k]) for k in keep]
    parts = [part for reading in readings if (part := stream.push(reading)) is not None]
    whole, faults = to_trace(stack(readings))
    assert stream.faults == faults
    for part in parts:
        at = slice(part.start_s - whole.start_s, part.end_s - whole.start_s)
        np.testing.assert_array_equal(part.values, whole.values[:, at])
        np.testing.assert_array_equal(part.valid, whole.valid[:, at])
    assert sum(part.values.shape[1] for part in parts) == 120 - 4


def test_the_stream_follows_threads_and_jobs() -> None:
    stream = RateStream()
    job = JobCpus("17", (0, 1))
    stream.push(NodeReading("n1", 10.0, (0,), np.full((1, 8), 1.0), jobs=(job,)))
    trace = stream.push(NodeReading("n1", 11.0, (0, 1), np.full((2, 8), 1.125), jobs=(job,)))
    assert trace is not None
    assert trace.cpus == (0, 1)
    assert trace.valid[:, 0].tolist() == [True, False]
    assert trace.spans == (JobSpan("17", "n1", (0, 1), 10.0, 11.0),)
    assert stream.push(NodeReading("n1", 10.5, (0, 1), np.full((2, 8), 1.1))) is None
    assert stream.faults == Faults(late=1, missing=1)


def test_job_spans_begin_and_end_with_the_sightings_of_the_job() -> None:
    a, b, moved = JobCpus("1", (0, 1)), JobCpus("2", (2,)), JobCpus("1", (0, 3))
    spans = job_spans("n1", [(10, [a]), (11, [a, b]), (12, [moved, b]), (13, [moved])])
    assert spans == (
        JobSpan("1", "n1", (0, 1), 10, 12),
        JobSpan("2", "n1", (2,), 11, 13),
        JobSpan("1", "n1", (0, 3), 12, 13),
    )
