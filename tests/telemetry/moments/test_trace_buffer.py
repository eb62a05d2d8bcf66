"""A buffer returns what was pushed and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.channels import CPU, NODE, Schema
from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.moments.trace_buffer import SILENT_S, TraceBuffer

LENGTH_S = 20


def trace(node: str, cpus: tuple[int, ...], start_s: int, seconds: int = 1, seed: int = 0, **more: object) -> Trace:
    rng = np.random.default_rng((seed, start_s, *cpus))
    values = rng.dirichlet(np.ones(4), (len(cpus), seconds)).astype(np.float32)
    valid = rng.random((len(cpus), seconds)) < 0.8
    return Trace(node, cpus, start_s, CPU, values, valid, **more)  # type: ignore[arg-type]


def span(job: str, cpus: tuple[int, ...], start_s: float, end_s: float) -> JobSpan:
    return JobSpan(job, "n1", cpus, start_s, end_s)


pushes = st.lists(
    st.builds(
        trace,
        node=st.sampled_from(["n1", "n2"]),
        cpus=st.sets(st.integers(0, 4), min_size=1).map(lambda cpus: tuple(sorted(cpus))),
        start_s=st.integers(1000, 1060),
        seconds=st.integers(1, 25),
        seed=st.integers(0, 9),
    ),
    min_size=1,
    max_size=12,
)


@given(pushes, st.integers(1005, 1090))
def test_a_moment_equals_a_plain_dictionary(pushed: list[Trace], end_s: int) -> None:
    buffer, expected, newest = TraceBuffer(CPU, LENGTH_S), {}, {}
    for each in sorted(pushed, key=lambda each: each.start_s):  # a node's seconds come in order, nodes in any
        buffer.push(each)
        newest[each.node] = max(newest.get(each.node, 0), each.end_s)
        for row, cpu in enumerate(each.cpus):
            expected.setdefault((each.node, cpu), {})
            for k in range(each.values.shape[1]):
                expected[each.node, cpu][each.start_s + k] = each.values[row, k] if each.valid[row, k] else None
    moment = buffer.moment(end_s)
    assert [(moment.nodes[n], c) for n, c in zip(moment.node, moment.cpu, strict=True)] == sorted(expected)
    for row, (node, cpu) in enumerate(sorted(expected)):
        for k in range(LENGTH_S):
            second = end_s - LENGTH_S + k
            if newest[node] - end_s > 30:
                continue  # so far ahead that its old seconds may be gone: tested below
            value = expected[node, cpu].get(second)
            assert moment.valid[row, k] == (value is not None)
            assert np.array_equal(moment.values[row, k], np.zeros(4) if value is None else value)


def test_seconds_of_a_node_whose_clock_is_far_ahead_wait_and_change_nothing() -> None:
    buffer = TraceBuffer(CPU, LENGTH_S)
    here, there = trace("n1", (0,), 1000, 20), trace("n2", (0,), 1000, 20)
    for each in (here, there, trace("n2", (0,), 900_000, 20)):
        buffer.push(each)
    assert np.array_equal(buffer.moment(1020).valid, np.concatenate([here.valid, there.valid]))
    back = replace(trace("n2", (0,), 1020), valid=np.ones((1, 1), np.bool_))
    buffer.push(back)  # its clock is set right again
    assert buffer.moment(1021).valid[1, -1]


def test_after_all_clocks_jump_the_newest_seconds_are_kept() -> None:
    buffer = TraceBuffer(CPU, LENGTH_S)
    buffer.push(trace("n1", (0,), 1000, 20))
    for start_s in (901_000, 5000):  # a machine that slept, and a clock that was set back
        later = [trace(node, (0,), start_s, 5) for node in ("n1", "n2")]
        for each in later:
            buffer.push(each)
        moment = buffer.moment(start_s + 5)
        for each in later:
            buffer.push(each)
        moment = buffer.moment(start_s + 5)
        assert np.array_equal(moment.valid[:, -5:], np.concatenate([each.valid for each in later]))
        assert not moment.valid[:, :-5].any()
    assert buffer.moment(5105).age_s.tolist() == [100, 100]


def test_no_second_is_lost_while_no_moment_is_taken() -> None:
    buffer = TraceBuffer(CPU, LENGTH_S)
    pushed = [trace("n1", (0,), start_s) for start_s in range(1000, 1500)]
    for each in pushed:
        buffer.push(each)
    wanted = np.concatenate([each.valid for each in pushed[-LENGTH_S:]], axis=1)
    assert np.array_equal(buffer.moment(1500).valid, wanted)


def test_a_moment_keeps_its_seconds_while_more_are_pushed() -> None:
    buffer = TraceBuffer(CPU, LENGTH_S)
    buffer.push(trace("n1", (0, 1), 1000, 20))
    moment = buffer.moment(1020)
    values, valid = moment.values.copy(), moment.valid.copy()
    for start_s in range(1020, 1300):
        buffer.push(trace("n1", (0, 1), start_s))
        buffer.push(trace("n2", (0, 1), start_s))
        buffer.moment(start_s + 1)
    assert np.array_equal(moment.values, values)
    assert np.array_equal(moment.valid, valid)


def test_making_room_in_advance_changes_no_moment() -> None:
    plain, prepared = TraceBuffer(CPU, LENGTH_S), TraceBuffer(CPU, LENGTH_S)
    for second in range(1000, 1400):
        for buffer in (plain, prepared):
            buffer.push(trace("n1", (0, 1), second))
        prepared.make_room(second + 1, 10)
        if second % 10 == 0:
            early, late = prepared.moment(second + 1), plain.moment(second + 1)
            np.testing.assert_array_equal(early.values, late.values)
            np.testing.assert_array_equal(early.valid, late.valid)


def test_second_by_second_it_gives_the_moments_of_a_recording() -> None:
    jobs = (span("a", (0, 1), 1004, 1031), span("b", (1, 2), 1031, 1070), span("c", (3,), 1050, 1052))
    traces = [trace("n1", (0, 1, 2, 3), 1000, 70, spans=jobs), trace("n2", (0, 1), 1000, 70)]
    buffer, recorded = TraceBuffer(CPU, LENGTH_S), {moment.end_s: moment for moment, _ in moments(traces, 1, LENGTH_S)}
    for now_s in range(1001, 1071):
        for each in traces:
            k = now_s - 1001
            buffer.push(
                replace(each, start_s=now_s - 1, values=each.values[:, k : k + 1], valid=each.valid[:, k : k + 1])
            )
        if now_s not in recorded:
            continue
        live, then = buffer.moment(now_s), recorded[now_s]
        assert (live.nodes, live.jobs) == (then.nodes, then.jobs)
        for name in ("values", "valid", "node", "cpu", "job"):
            assert np.array_equal(getattr(live, name), getattr(then, name)), (name, now_s)
        young = then.age_s < LENGTH_S  # older ends of jobs are forgotten
        assert np.array_equal(live.age_s[young], then.age_s[young])
        assert (live.age_s[~young] >= LENGTH_S).all()


def test_a_job_ends_with_a_newer_second_without_it_and_not_with_a_gap() -> None:
    buffer = TraceBuffer(CPU, LENGTH_S)
    buffer.push(trace("n1", (0, 1), 1000, 1))
    # A sampler that reads a little before the whole second sees the job at 1001.7 and 1002.7.
    buffer.push(trace("n1", (0, 1), 1001, 1, spans=(span("a", (0,), 1001.7, 1001.7),)))
    buffer.push(trace("n1", (0, 1), 1002, 1, spans=(span("a", (0,), 1001.7, 1002.7),)))
    for end_s in (1003, 1010):
        moment = buffer.moment(end_s)
        assert moment.jobs == ("a",)
        assert moment.job.tolist() == [0, -1]
        assert moment.age_s.tolist() == [end_s - 1002, end_s - 1000]
    buffer.push(trace("n1", (0, 1), 1010, 1))
    moment = buffer.moment(1011)
    assert moment.jobs == ()
    assert moment.age_s.tolist() == [1011 - 1003, 11]


def test_at_the_limit_threads_that_were_silent_for_a_minute_make_room() -> None:
    """They kept others out for the length of a window, though their source had given their room away."""
    buffer = TraceBuffer(CPU, most_threads=3)
    for start_s in (1000, 1000 + SILENT_S + 1):
        buffer.push(trace("here", (0,), start_s))
        if start_s == 1000:
            buffer.push(trace("gone", (0, 1), start_s))
    with pytest.raises(InputError, match="the limit of 3 threads"):
        buffer.push(trace("new", (0, 1), start_s))
    buffer.drop("new")  # as the loop does
    assert buffer.moment(start_s + 1).nodes == ("here",)
    buffer.push(trace("new", (0, 1), start_s))
    assert buffer.moment(start_s + 1).nodes == ("here", "new")


def test_threads_are_added_and_dropped() -> None:
    buffer = TraceBuffer(CPU, LENGTH_S, forget_s=50)
    buffer.push(trace("n1", (0, 2), 1000))
    buffer.push(trace("n2", (0,), 1000))
    buffer.push(trace("n1", (0, 1, 2), 1010))
    buffer.push(trace("n1", (0, 1), 1050))
    assert buffer.moment(1051).cpu.tolist() == [0, 1, 2, 0]
    assert buffer.moment(1055).nodes == ("n1",)
    assert buffer.moment(1062).cpu.tolist() == [0, 1]
    with pytest.raises(SettingsError, match="no node"):
        buffer.moment(2000)


def test_channels_are_matched_by_name_and_a_missing_bounded_one_is_nan() -> None:
    buffer, pushed = TraceBuffer(Schema((*NODE.channels, *CPU.channels)), LENGTH_S), trace("n1", (0, 1), 1000, 20)
    memory = Schema((*CPU.channels[::-1], *NODE.channels[:1]))
    values = np.concatenate([pushed.values[..., ::-1], np.full((2, 20, 1), 0.25, np.float32)], axis=-1)
    buffer.push(replace(pushed, schema=memory, values=values))
    moment = buffer.moment(1020)
    seconds = moment.values[moment.valid]
    np.testing.assert_array_equal(seconds[:, len(NODE) :], pushed.values[pushed.valid])
    assert (seconds[:, 0] == 0.25).all()
    assert np.isnan(seconds[:, 1 : len(NODE)]).all()
    assert not moment.values[~moment.valid].any()


def test_channels_that_the_buffer_does_not_hold_are_ignored() -> None:
    buffer, pushed = TraceBuffer(CPU, LENGTH_S), trace("n1", (0,), 1000, 20)
    more = np.concatenate([pushed.values, np.ones((1, 20, len(NODE)), np.float32)], axis=-1)
    buffer.push(replace(pushed, schema=CPU + NODE, values=more))
    assert np.array_equal(buffer.moment(1020).values, np.where(pushed.valid[..., None], pushed.values, 0))


def test_a_trace_without_a_simplex_or_at_another_interval_is_refused() -> None:
    buffer, pushed = TraceBuffer(CPU + NODE), trace("n1", (0,), 1000)
    with pytest.raises(SettingsError, match=r"n1: user every 1 s; the buffer needs user, system, .*memory_used"):
        buffer.push(replace(pushed, schema=Schema(CPU.channels[:1]), values=pushed.values[..., :1]))
    with pytest.raises(SettingsError, match="every 5 s"):
        buffer.push(replace(pushed, interval_s=5))
