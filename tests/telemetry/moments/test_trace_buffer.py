"""A ring gives back what was pushed, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.channels import CPU, NODE
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer

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
def test_a_moment_is_what_a_plain_dictionary_holds(pushed: list[Trace], end_s: int) -> None:
    ring, told, newest = TraceBuffer(CPU, LENGTH_S), {}, {}
    for one in sorted(pushed, key=lambda one: one.start_s):  # a node's seconds come in order, nodes in any
        ring.push(one)
        newest[one.node] = max(newest.get(one.node, 0), one.end_s)
        for row, cpu in enumerate(one.cpus):
            told.setdefault((one.node, cpu), {})
            for k in range(one.values.shape[1]):
                told[one.node, cpu][one.start_s + k] = one.values[row, k] if one.valid[row, k] else None
    moment = ring.moment(end_s)
    assert [(moment.nodes[n], c) for n, c in zip(moment.node, moment.cpu, strict=True)] == sorted(told)
    for row, (node, cpu) in enumerate(sorted(told)):
        for k in range(LENGTH_S):
            second = end_s - LENGTH_S + k
            if newest[node] - end_s > 30:
                continue  # so far ahead that its old seconds may be gone: tested below
            value = told[node, cpu].get(second)
            assert moment.valid[row, k] == (value is not None)
            assert np.array_equal(moment.values[row, k], np.zeros(4) if value is None else value)


def test_seconds_of_a_node_whose_clock_is_far_ahead_wait_and_harm_nothing() -> None:
    ring = TraceBuffer(CPU, LENGTH_S)
    here, there = trace("n1", (0,), 1000, 20), trace("n2", (0,), 1000, 20)
    for one in (here, there, trace("n2", (0,), 900_000, 20)):
        ring.push(one)
    assert np.array_equal(ring.moment(1020).valid, np.concatenate([here.valid, there.valid]))
    back = replace(trace("n2", (0,), 1020), valid=np.ones((1, 1), np.bool_))
    ring.push(back)  # its clock is set right again
    assert ring.moment(1021).valid[1, -1]


def test_after_a_leap_of_all_clocks_the_newest_seconds_are_there() -> None:
    ring = TraceBuffer(CPU, LENGTH_S)
    ring.push(trace("n1", (0,), 1000, 20))
    for start_s in (901_000, 5000):  # a machine that slept, and a clock that was set back
        later = [trace(node, (0,), start_s, 5) for node in ("n1", "n2")]
        for one in later:
            ring.push(one)
        moment = ring.moment(start_s + 5)
        for one in later:
            ring.push(one)
        moment = ring.moment(start_s + 5)
        assert np.array_equal(moment.valid[:, -5:], np.concatenate([one.valid for one in later]))
        assert not moment.valid[:, :-5].any()
    assert ring.moment(5105).age_s.tolist() == [100, 100]


def test_nothing_is_lost_while_nobody_asks_for_a_moment() -> None:
    ring = TraceBuffer(CPU, LENGTH_S)
    pushed = [trace("n1", (0,), start_s) for start_s in range(1000, 1500)]
    for one in pushed:
        ring.push(one)
    wanted = np.concatenate([one.valid for one in pushed[-LENGTH_S:]], axis=1)
    assert np.array_equal(ring.moment(1500).valid, wanted)


def test_a_moment_keeps_its_seconds_while_the_ring_goes_on() -> None:
    ring = TraceBuffer(CPU, LENGTH_S)
    ring.push(trace("n1", (0, 1), 1000, 20))
    moment = ring.moment(1020)
    values, valid = moment.values.copy(), moment.valid.copy()
    for start_s in range(1020, 1300):
        ring.push(trace("n1", (0, 1), start_s))
        ring.push(trace("n2", (0, 1), start_s))
        ring.moment(start_s + 1)
    assert np.array_equal(moment.values, values)
    assert np.array_equal(moment.valid, valid)


def test_making_room_beforehand_changes_no_moment() -> None:
    plain, prepared = TraceBuffer(CPU, LENGTH_S), TraceBuffer(CPU, LENGTH_S)
    for second in range(1000, 1400):
        for ring in (plain, prepared):
            ring.push(trace("n1", (0, 1), second))
        prepared.make_room(second + 1, 10)
        if second % 10 == 0:
            one, other = prepared.moment(second + 1), plain.moment(second + 1)
            np.testing.assert_array_equal(one.values, other.values)
            np.testing.assert_array_equal(one.valid, other.valid)


def test_second_by_second_it_sees_what_a_recording_of_the_same_seconds_shows() -> None:
    jobs = (span("a", (0, 1), 1004, 1031), span("b", (1, 2), 1031, 1070), span("c", (3,), 1050, 1052))
    whole = [trace("n1", (0, 1, 2, 3), 1000, 70, spans=jobs), trace("n2", (0, 1), 1000, 70)]
    ring, recorded = TraceBuffer(CPU, LENGTH_S), {moment.end_s: moment for moment, _ in moments(whole, 1, LENGTH_S)}
    for now_s in range(1001, 1071):
        for one in whole:
            k = now_s - 1001
            ring.push(replace(one, start_s=now_s - 1, values=one.values[:, k : k + 1], valid=one.valid[:, k : k + 1]))
        if now_s not in recorded:
            continue
        live, then = ring.moment(now_s), recorded[now_s]
        assert (live.nodes, live.jobs) == (then.nodes, then.jobs)
        for name in ("values", "valid", "node", "cpu", "job"):
            assert np.array_equal(getattr(live, name), getattr(then, name)), (name, now_s)
        young = then.age_s < LENGTH_S  # older ends of jobs are forgotten
        assert np.array_equal(live.age_s[young], then.age_s[young])
        assert (live.age_s[~young] >= LENGTH_S).all()


def test_a_job_ends_when_a_newer_second_does_not_have_it_and_not_in_silence() -> None:
    ring = TraceBuffer(CPU, LENGTH_S)
    ring.push(trace("n1", (0, 1), 1000, 1))
    # A sampler a little before the whole second sees the job at 1001.7 and 1002.7.
    ring.push(trace("n1", (0, 1), 1001, 1, spans=(span("a", (0,), 1001.7, 1001.7),)))
    ring.push(trace("n1", (0, 1), 1002, 1, spans=(span("a", (0,), 1001.7, 1002.7),)))
    for end_s in (1003, 1010):
        moment = ring.moment(end_s)
        assert moment.jobs == ("a",)
        assert moment.job.tolist() == [0, -1]
        assert moment.age_s.tolist() == [end_s - 1002, end_s - 1000]
    ring.push(trace("n1", (0, 1), 1010, 1))
    moment = ring.moment(1011)
    assert moment.jobs == ()
    assert moment.age_s.tolist() == [1011 - 1003, 11]


def test_threads_come_and_go_and_are_forgotten_in_the_end() -> None:
    ring = TraceBuffer(CPU, LENGTH_S, forget_s=50)
    ring.push(trace("n1", (0, 2), 1000))
    ring.push(trace("n2", (0,), 1000))
    ring.push(trace("n1", (0, 1, 2), 1010))
    ring.push(trace("n1", (0, 1), 1050))
    assert ring.moment(1051).cpu.tolist() == [0, 1, 2, 0]
    assert ring.moment(1055).nodes == ("n1",)
    assert ring.moment(1062).cpu.tolist() == [0, 1]
    with pytest.raises(SettingsError, match="no node"):
        ring.moment(2000)


def test_a_trace_of_other_channels_is_refused() -> None:
    ring = TraceBuffer(CPU + NODE)
    with pytest.raises(SettingsError, match="memory_used"):
        ring.push(trace("n1", (0,), 1000))
