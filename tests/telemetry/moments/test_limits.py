"""A source that invents jobs or threads does not fill the memory of the trace buffer."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.errors import InputError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.moments import node_jobs
from clustertwin.telemetry.moments.node_jobs import MOST_SPAN_THREADS, MOST_SPANS, NodeJobs
from clustertwin.telemetry.moments.trace_buffer import MOST_THREADS, TraceBuffer


def trace(start_s: int, cpus: tuple[int, ...], *spans: JobSpan, node: str = "n1") -> Trace:
    shape = len(cpus), 1
    return Trace(node, cpus, start_s, CPU, np.zeros((*shape, len(CPU)), np.float32), np.ones(shape, np.bool_), spans)


@pytest.mark.medium
def test_a_node_with_new_jobs_every_second_keeps_the_newest_spans():
    jobs = NodeJobs(remember_s=300)
    for second in range(100):
        spans = [JobSpan(f"{second}-{i}", "n1", (0,), second, second + 1) for i in range(200)]
        jobs.push(trace(second, (0,), *spans))
    left = jobs.spans_at(200)
    assert len(left) == MOST_SPANS
    assert {span.job for span in left} >= {f"99-{i}" for i in range(200)}


def test_new_jobs_in_late_traces_keep_to_the_limit_too():
    """A node that sets its clock back again and again sends late traces only, and they were never counted."""
    jobs = NodeJobs(remember_s=300)
    jobs.push(trace(1000, (0,), JobSpan("running", "n1", (0,), 0, 1001)))
    for number in range(30):
        jobs.push(trace(800, (0,), *(JobSpan(f"{number}-{i}", "n1", (0,), 800, 801) for i in range(200))))
    left = jobs.spans_at(1001)
    assert len(left) == MOST_SPANS
    assert "running" in {span.job for span in left}


def test_the_threads_of_all_spans_of_a_node_have_a_limit():
    """A thousand jobs a minute, each with all threads of a large node, would take gigabytes."""
    jobs, cpus = NodeJobs(remember_s=300), tuple(range(MOST_SPAN_THREADS // 8))
    for second in range(20):
        jobs.push(trace(second, (0,), JobSpan(str(second), "n1", cpus, second, second + 1)))
    assert [span.job for span in jobs.spans_at(20)] == [str(second) for second in range(12, 20)]


def test_the_job_of_each_thread_is_found_at_once_for_all_spans(monkeypatch):
    """One look-up for each of thousands of spans took a third of a second for each node whose jobs change."""
    looks = []
    find = node_jobs.np.searchsorted
    monkeypatch.setattr(node_jobs.np, "searchsorted", lambda *given: looks.append(given) or find(*given))
    monkeypatch.setattr(node_jobs.np, "isin", lambda *given: pytest.fail("one look-up for each span"))
    jobs = NodeJobs(remember_s=300)
    for second in range(20):
        spans = [JobSpan(f"{second}-{i}", "n1", (i % 4, 9), second, second + 1) for i in range(200)]
        jobs.push(trace(second, (0, 1, 2, 3), *spans))
    at = jobs.jobs_at((0, 2, 3), 20)
    assert [at.jobs[job] for job in at.job] == ["19-196", "19-198", "19-199"]
    assert at.since_s.tolist() == [19, 19, 19]
    assert len(looks) == 1


def test_a_job_that_runs_when_its_recording_ends_has_an_open_end():
    jobs = NodeJobs(remember_s=300)
    for second in range(3):
        jobs.push(trace(second, (0,), JobSpan("1", "n1", (0,), 0, np.inf), JobSpan("2", "n1", (0,), 99, np.inf)))
    assert [(span.job, span.end_s) for span in jobs.spans_at(3)] == [("1", np.inf)]
    assert [span.end_s for span in jobs.spans_at(100)] == [np.inf, np.inf]


@pytest.mark.medium
def test_a_node_with_new_threads_every_second_is_refused_at_the_limit_and_the_other_stays():
    buffer = TraceBuffer(CPU)
    buffer.push(trace(0, (0, 1), node="honest"))
    for begin in range(0, MOST_THREADS, 4096):
        buffer.push(trace(1, tuple(range(begin, begin + 4096)), node="liar"))
    with pytest.raises(InputError, match=f"liar: {MOST_THREADS + 1} threads; the limit is {MOST_THREADS}"):
        buffer.push(trace(1, (MOST_THREADS,), node="liar"))
    buffer.drop("liar")
    assert buffer.moment(2).nodes == ("honest",)


def test_the_threads_of_all_nodes_have_a_limit_and_silent_ones_make_room():
    """A sender that renames its nodes every minute would hold the threads of an hour."""
    buffer, many = TraceBuffer(CPU, most_threads=1000), tuple(range(800))
    buffer.push(trace(0, tuple(range(100)), node="honest"))
    buffer.push(trace(0, many, node="liar-0"))
    for number in range(1, 6):
        second, liar = 310 * number, f"liar-{number}"
        buffer.moment(second)  # moves on to these seconds
        buffer.push(trace(second, tuple(range(100)), node="honest"))
        with pytest.raises(InputError, match=f"{liar}: the limit of 1000 threads of all nodes is reached"):
            buffer.push(trace(second, many, node=liar))
        buffer.drop(liar)
        assert buffer.moment(second + 1).nodes == ("honest",)
        buffer.push(trace(second, many, node=liar))
        assert len(buffer.moment(second + 1)) == 900


def test_a_trace_far_ahead_that_is_over_a_limit_does_not_stop_the_others():
    buffer = TraceBuffer(CPU, most_threads=3)
    buffer.push(trace(0, (0, 1), node="honest"))
    buffer.push(trace(250, (0, 1), node="liar"))
    buffer.push(trace(200, (0, 1), node="honest"))
    assert buffer.moment(251).nodes == ("honest",)


def test_a_trace_ahead_of_the_clock_does_not_make_the_others_silent():
    buffer = TraceBuffer(CPU, most_threads=3)
    buffer.push(trace(0, (0, 1), node="honest"))
    assert buffer.moment(11).nodes == ("honest",)
    with pytest.raises(InputError, match="the limit of 3 threads"):
        buffer.push(trace(100, (0, 1), node="liar"))
    assert buffer.moment(12).nodes == ("honest",)
