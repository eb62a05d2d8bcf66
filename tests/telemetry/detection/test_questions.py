"""The three questions on jobs drawn by hand: shares of each thread in phases, assessed every ten seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from clustertwin.core.channels import CPU, Channel, Schema
from clustertwin.core.traces import JobChannels, JobSpan, NodeChannels, Trace
from clustertwin.telemetry.detection.events.causes import CAUSES
from clustertwin.telemetry.detection.forecast.memory_forecast import MemoryForecast
from clustertwin.telemetry.detection.questions.assess import Assessment, assess
from clustertwin.telemetry.detection.questions.finding import FINDING_CAUSES, Finding, naming_finding
from clustertwin.telemetry.detection.questions.question_memory import JobLabel, QuestionMemory
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.detection.questions.usual import programs_from_json, programs_to_json
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer

BUSY, IDLE, HALF = (0.98, 0.01, 0.0), (0.005, 0.003, 0.0), (0.5, 0.02, 0.0)
THREADS = 4
Shares = tuple[float, float, float] | Sequence[tuple[float, float, float]]  # of all threads, or of each


def a_job(*phases: tuple[int, Shares], job: str = "j", seed: int = 0, threads: int = THREADS, **node: float) -> Trace:
    """Phases of (seconds, user system iowait); node channels are constants, or two numbers: before the last phase
    and in it."""
    rng, parts = np.random.default_rng(seed), []
    for seconds, shares in phases:
        each = np.broadcast_to(np.array(shares, np.float64), (threads, 3))[:, None]
        each = np.clip(each + rng.normal(0, 0.004, (threads, seconds, 3)) * (each > 0), 0, 1)
        each = each / np.maximum(each.sum(-1, keepdims=True), 1)
        parts.append(np.concatenate([each, 1 - each.sum(-1, keepdims=True)], -1))
    values = np.concatenate(parts, axis=1).astype(np.float32)
    length = values.shape[1]
    channels = None
    if node:
        last = length - phases[-1][0]
        columns = np.empty((length, len(node)), np.float32)
        for i, level in enumerate(node.values()):
            before, then = level if isinstance(level, tuple) else (level, level)
            columns[:last, i], columns[last:, i] = before, then
        channels = NodeChannels(Schema(tuple(Channel(name, scope="node") for name in node)), columns)
    span = JobSpan(job, "n1", tuple(range(threads)), 0, length)
    valid = np.ones((threads, length), np.bool_)
    return Trace("n1", tuple(range(threads)), 0, CPU, values, valid, (span,), node_channels=channels)


def in_cgroup(trace: Trace, last_s: int, **levels: tuple[float, float]) -> Trace:
    """With channels of its job: two numbers each, before the last seconds and in them."""
    values = np.empty((1, trace.values.shape[1], len(levels)), np.float32)
    for i, (before, then) in enumerate(levels.values()):
        values[:, :-last_s, i], values[:, -last_s:, i] = before, then
    schema = Schema(tuple(Channel(name, scope="job") for name in levels))
    return replace(trace, job_channels=JobChannels(schema, (trace.spans[0].job,), values))


def quiet_scores(moment: Moment, peers: float = 9.0, score: float = 1.0) -> Scores:
    """The peers view always finds a deviation significant: the floors must hold without its help."""
    n = len(moment)
    surprise = np.full((n, 1), peers, np.float32)
    return Scores(np.full(n, score, np.float32), surprise, ("peers",), np.zeros(n, np.float32), np.zeros((n, 2)))


def watch(
    trace: Trace,
    memory: QuestionMemory | None = None,
    label: str = "",
    score: float = 1.0,
    from_s: int = 0,
    user: str = "",
    suspended_s: range = range(0),
) -> list[tuple[int, Assessment]]:
    memory, out, buffer = memory or QuestionMemory(), [], TraceBuffer(CPU)
    for now_s in range(10, trace.end_s + 1, 10):
        part = slice(now_s - 10, now_s)
        channels = trace.node_channels and replace(trace.node_channels, values=trace.node_channels.values[part])
        of_jobs = trace.job_channels and replace(trace.job_channels, values=trace.job_channels.values[:, part])
        buffer.push(
            replace(
                trace,
                start_s=now_s - 10,
                values=trace.values[:, part],
                valid=trace.valid[:, part],
                node_channels=channels,
                job_channels=of_jobs,
            )
        )
        moment = buffer.moment(now_s)
        if now_s >= from_s:
            labels = {trace.spans[0].job: JobLabel(label, user, now_s in suspended_s)} if label else None
            out.append((now_s, assess(moment, quiet_scores(moment, score=score), memory, 3.0, labels)))
    return out


def opened(seen: list[tuple[int, Assessment]]) -> dict[str, tuple[int, Finding]]:
    """Cause -> when it would open an event, and the finding."""
    out: dict[str, tuple[int, Finding]] = {}
    for now_s, assessment in seen:
        for finding in assessment.findings:
            if finding.opens_event and finding.held(now_s):
                out.setdefault(finding.cause, (now_s, finding))
    return out


def causes(trace: Trace, **options: object) -> set[str]:
    return set(opened(watch(trace, **options)))  # type: ignore[arg-type]


@pytest.mark.medium
@pytest.mark.parametrize("shares", [BUSY, IDLE, HALF, (0.3, 0.6, 0.0), (0.3, 0.1, 0.2)])
def test_steady_work_of_any_kind_is_neither_harm_nor_change(shares: tuple[float, float, float]) -> None:
    assert causes(a_job((1500, shares))) == set()


def test_a_job_that_stops_working_is_found_within_three_minutes() -> None:
    when_s, finding = opened(watch(a_job((600, BUSY), (400, IDLE))))["idle"]
    assert 600 < when_s <= 780
    assert finding.question == "change"
    assert finding.compared_with == "own past"
    assert finding.value > 0.9
    assert finding.usual < 0.05


def test_a_job_that_is_idle_from_its_start_rests_by_design() -> None:
    assert causes(a_job((1500, IDLE))) == set()


@pytest.mark.medium
def test_a_job_whose_threads_all_work_a_tenth_less_is_found() -> None:
    assert causes(a_job((600, (0.85, 0.06, 0.0)), (400, (0.75, 0.05, 0.0)))) == {"idle"}
    assert causes(a_job((600, (0.85, 0.06, 0.0)), (400, (0.80, 0.05, 0.0)))) == set()


def test_two_threads_that_both_work_half_of_the_time_are_no_serial_phase() -> None:
    """iqtree, slowed to half of its speed on two CPUs, keeps just one of them busy in all."""
    assert causes(a_job((600, BUSY), (200, (0.49, 0.01, 0.0)), threads=2)) == {"idle"}


@pytest.mark.medium
def test_a_task_that_moves_between_two_threads_is_a_serial_phase() -> None:
    moves = [(4, [BUSY, IDLE]), (3, [IDLE, BUSY])] * 28
    assert causes(a_job((600, BUSY), *moves, threads=2)) == set()
    # Short processes, one after the other, run on both threads in every second; they touch new memory all the time.
    script = a_job((600, BUSY), (200, (0.49, 0.01, 0.0)), threads=2)
    assert causes(in_cgroup(script, 200, job_page_faults=(0.1, 0.9))) == set()


@pytest.mark.medium
def test_a_shift_of_two_points_is_no_event_however_steady_the_job_was() -> None:
    assert causes(a_job((1500, BUSY), (600, (0.96, 0.03, 0.0)))) == set()


@pytest.mark.medium
def test_a_serial_phase_of_six_minutes_is_no_event_and_one_of_thirteen_is() -> None:
    serial = [BUSY, IDLE, IDLE, IDLE]
    assert causes(a_job((600, BUSY), (400, serial), (400, BUSY))) == set()
    assert causes(a_job((600, BUSY), (800, serial))) == {"one-thread-left"}
    # One of two ranks that hangs looks the same, and is less often a serial phase.
    assert causes(a_job((600, BUSY), (400, serial[:2]), threads=2)) == {"one-thread-left"}


@pytest.mark.medium
def test_a_phase_that_the_job_had_before_is_no_change() -> None:
    writing = (0.3, 0.1, 0.3)
    once = a_job((600, BUSY), (200, writing), (600, BUSY))
    assert "stalled-io" in causes(once)
    later = a_job((60, BUSY), (120, writing), (600, BUSY), (200, writing), (300, BUSY))
    assert causes(later) == set()


@pytest.mark.medium
def test_a_phase_that_came_and_went_twice_is_learnt() -> None:
    phase = (200, (0.3, 0.1, 0.3))
    seen = watch(a_job((600, BUSY), phase, (400, BUSY), phase, (400, BUSY), phase, (400, BUSY)))
    times = [now_s for now_s, a in seen if any(f.cause == "stalled-io" and f.held(now_s) for f in a.findings)]
    assert any(600 < t < 900 for t in times)
    assert any(1200 < t < 1500 for t in times)
    assert not any(t > 1750 for t in times)


@pytest.mark.medium
def test_bursts_of_lost_time_are_found_and_do_not_become_usual() -> None:
    stalls = (0.3, 0.35, 0.35)
    bursts = [phase for _ in range(8) for phase in ((20, stalls), (40, BUSY))]
    assert "stall-bursts" in causes(a_job((600, BUSY), *bursts))
    assert causes(a_job((600, BUSY), (20, stalls), (400, BUSY))) == set()  # one burst is no change
    assert causes(a_job(*bursts, *bursts)) == set()  # it was so from the start


@pytest.mark.medium
def test_more_kernel_time_with_more_work_is_load_and_with_less_work_it_is_a_change() -> None:
    assert causes(a_job((600, (0.3, 0.1, 0.0)), (400, (0.6, 0.2, 0.0)))) == set()
    assert "kernel-time" in causes(a_job((600, (0.3, 0.1, 0.0)), (400, (0.2, 0.2, 0.0))))


@pytest.mark.medium
def test_waiting_for_io_that_transfers_is_a_phase_and_without_traffic_it_is_harm() -> None:
    waiting = (0.1, 0.05, 0.6)
    assert "stalled-io" in causes(a_job((600, BUSY), (300, waiting), disk_traffic=(0.0, 0.0)))
    assert causes(a_job((600, BUSY), (300, waiting), disk_traffic=(0.0, 0.5))) == set()


def test_a_job_that_waits_for_io_from_its_start_is_harmed() -> None:
    when_s, finding = opened(watch(a_job((600, (0.02, 0.1, 0.7)))))["stalled-io"]
    assert finding.question == "harm"
    assert finding.compared_with == "limit"
    assert when_s < 300


def test_a_thread_that_stops_while_the_others_work_is_left_behind() -> None:
    rest = (0.38, 0.61, 0.0)
    when_s, finding = opened(watch(a_job((600, BUSY), (400, [rest, rest, IDLE, rest]))))["hung-rank"]
    assert finding.cpus == (2,)
    assert finding.compared_with == "ranks"
    assert when_s <= 780


def naming(cause: str, since_s: int, cpus: tuple[int, ...] = (0, 1, 2, 3)) -> Finding:
    return Finding("change", cause, "j", "n1", cpus, "system", 0.5, 0.1, "own past", since_s, 5.0)


def test_a_finding_that_explains_a_symptom_names_the_event() -> None:
    """Seven ranks poll for one that stopped: the mean of the kernel time moves first, and says least."""
    polling, hung = naming("kernel-time", 1000), naming("hung-rank", 1020, (2,))
    assert naming_finding([polling, hung], 1080) is None  # none has lasted
    assert naming_finding([polling, hung], 1090) is hung
    assert naming_finding([polling, replace(hung, since_s=1065)], 1090) is polling  # it may be chance
    assert naming_finding([polling], 1090) is polling
    stopped = naming("idle", 1010)
    assert naming_finding([stopped, hung], 1120) is stopped  # both say why: the one that holds longest
    quota = replace(naming("throttled", 1030), clear_s=30)
    assert naming_finding([stopped, quota], 1090) is quota  # it has lasted, and the older one has not yet
    assert naming_finding([], 1120) is None


def test_a_thread_that_deviates_is_one_finding_whatever_it_is_called() -> None:
    rest = (0.6, 0.38, 0.0)
    slow, stopped = (0.98, 0.01, 0.0), IDLE
    seen = watch(a_job((600, rest), (60, [rest, rest, slow, rest]), (300, [rest, rest, stopped, rest])))
    named = {f.cause: f for _, each in seen for f in each.findings if f.channel == "apart"}
    assert set(named) == {"straggler", "hung-rank"}
    assert named["hung-rank"].since_s == named["straggler"].since_s < 660


def test_a_master_that_rests_from_the_start_is_not_left_behind() -> None:
    assert causes(a_job((1500, [IDLE, BUSY, BUSY, BUSY]))) == set()


@pytest.mark.medium
def test_other_work_on_the_node_is_contention() -> None:
    """One task more than threads: the run queue grows, and the job waits at its barriers."""
    alone, crowded = 4 / 8, 4.6 / 8.6
    trace = a_job((600, BUSY), (400, (0.93, 0.02, 0.0)), run_queue=(alone, crowded))
    assert causes(trace) == {"cpu-contention"}
    fewer = 3.8 / 7.8  # as many tasks as threads that work
    assert causes(a_job((600, BUSY), (400, (0.93, 0.02, 0.0)), run_queue=(alone, fewer))) == set()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("channel", "cause"), [("memory_pressure", "memory-pressure"), ("steal", "steal"), ("swap_traffic", "swapping")]
)
def test_a_limit_holds_for_any_program_and_a_missing_channel_is_silent(channel: str, cause: str) -> None:
    assert causes(a_job((300, HALF), (300, HALF), **{channel: (0.0, 0.5)})) == {cause}
    assert causes(a_job((300, HALF), (300, HALF), **{channel: (0.0, float("nan"))})) == set()


@pytest.mark.medium
def test_other_work_harms_a_job_only_while_the_job_waits_for_a_cpu() -> None:
    fills = a_job((600, IDLE), (400, BUSY))  # the threads are busy, and the job uses as little as before
    assert causes(in_cgroup(fills, 400, job_cpu=(0.008, 0.008), job_cpu_pressure=(0.0, 0.0))) == set()
    competes = a_job((600, BUSY), (400, BUSY))
    assert causes(in_cgroup(competes, 400, job_cpu=(0.99, 0.5), job_cpu_pressure=(0.0, 0.5))) == {"cpu-contention"}
    assert causes(in_cgroup(competes, 400, job_cpu=(0.99, 0.5))) == {"cpu-contention"}  # a kernel without PSI


@pytest.mark.medium
def test_other_work_that_runs_while_a_quota_stops_the_job_takes_nothing_from_it() -> None:
    filled = a_job((600, BUSY), (400, BUSY))
    channels = {"job_cpu": (0.99, 0.5), "job_cpu_pressure": (0.0, 0.5), "job_throttled": (0.0, 0.48)}
    assert "cpu-contention" not in causes(in_cgroup(filled, 400, **channels))
    assert "throttled" in causes(in_cgroup(filled, 400, **channels))


def test_a_cause_is_as_clear_as_its_clearest_rule() -> None:
    """The limit over 100 s speaks later and less clearly than the change over 30 s."""
    trace = in_cgroup(a_job((600, BUSY), (400, BUSY)), 400, job_cpu=(0.99, 0.8), job_cpu_pressure=(0.0, 0.2))
    found = [(now_s, f) for now_s, each in watch(trace) for f in each.findings if f.cause == "cpu-contention"]
    now_s, last = found[-1]
    assert last.clear_s == now_s - last.since_s > 200


def test_a_stopped_job_is_found_although_other_work_fills_its_threads() -> None:
    filled = a_job((600, BUSY), (400, BUSY))
    assert causes(in_cgroup(filled, 400, job_cpu=(0.99, 0.0), job_cpu_pressure=(0.0, 0.0))) == {"idle"}


def test_a_job_that_waits_for_io_is_found_although_other_work_fills_its_threads() -> None:
    filled = a_job((600, BUSY), (400, BUSY))
    channels = {"job_cpu": (0.99, 0.0), "job_cpu_pressure": (0.0, 0.0), "job_io_pressure": (0.0, 1.0)}
    assert "stalled-io" in causes(in_cgroup(filled, 400, **channels))


def test_io_of_other_work_on_its_threads_is_not_the_jobs() -> None:
    waits = a_job((600, IDLE), (400, (0.005, 0.003, 0.6)))
    assert causes(in_cgroup(waits, 400, job_cpu=(0.008, 0.008), job_io_pressure=(0.0, 0.0))) == set()


@pytest.mark.medium
def test_a_clear_finding_from_outside_opens_in_half_of_the_time() -> None:
    clear, faint = (
        opened(
            watch(in_cgroup(a_job((600, BUSY), (400, BUSY)), 400, job_cpu=(0.99, own), job_cpu_pressure=(0, 1 - own)))
        )
        for own in (0.5, 0.92)
    )
    assert clear["cpu-contention"][0] <= 710
    assert clear["cpu-contention"][0] + 60 <= faint["cpu-contention"][0] <= 800


@pytest.mark.medium
def test_steady_growth_of_memory_is_a_leak_and_a_jump_is_not() -> None:
    trace = a_job((300, BUSY), (600, BUSY), memory_used=(0.2, 0.2))
    leaking = trace.node_channels.values.copy()  # type: ignore[union-attr]
    leaking[300:, 0] = 0.2 + np.arange(600) * 3e-4
    jump = leaking.copy()
    jump[300:, 0] = 0.5
    channels = trace.node_channels
    assert causes(replace(trace, node_channels=replace(channels, values=leaking))) == {"leak"}  # type: ignore[type-var]
    assert causes(replace(trace, node_channels=replace(channels, values=jump))) == set()  # type: ignore[type-var]


def test_a_forecast_of_a_node_that_was_left_out_since_is_no_finding() -> None:
    """A node whose data was refused a moment ago stopped the scoring of all others."""
    buffer = TraceBuffer(CPU)
    buffer.push(a_job((300, BUSY)))
    moment = buffer.moment(300)
    gone = MemoryForecast("gone", "7", 300, 600.0, 500.0, 700.0, 0.5, 1e-3, 300.0)
    findings = assess(moment, quiet_scores(moment), QuestionMemory(), 3.0, forecasts=[gone]).findings
    assert "gone" not in {finding.node for finding in findings}


def test_all_work_on_one_thread_from_the_start_is_misbound() -> None:
    assert causes(a_job((900, [BUSY, IDLE, IDLE, IDLE]))) == {"misbound"}


@pytest.mark.medium
@pytest.mark.parametrize(("pressure", "found"), [((0.01, 0.98), {"misbound"}), ((0.01, 0.02), set())])
def test_in_cgroup_v1_the_pressure_of_a_node_tells_that_the_job_which_holds_it_is_misbound(pressure, found) -> None:
    job = a_job((600, BUSY), (200, [BUSY, IDLE]), threads=2, cpu_pressure=pressure)
    assert causes(job) == found


def test_the_pressure_of_a_node_says_nothing_about_a_job_that_holds_a_part_of_it() -> None:
    trace = a_job((600, [BUSY, BUSY, IDLE]), (200, [BUSY, IDLE, IDLE]), threads=3, cpu_pressure=(0.01, 0.98))
    assert causes(replace(trace, spans=(replace(trace.spans[0], cpus=(0, 1)),))) == set()


def test_new_work_never_opens_an_event() -> None:
    seen = watch(a_job((900, HALF)), score=30.0)
    new = [f for _, a in seen for f in a.findings if f.question == "new"]
    assert new
    assert not any(f.opens_event for f in new)
    assert opened(seen) == {}


@pytest.mark.medium
def test_a_program_is_new_until_it_has_run_three_times_and_is_then_compared_with_its_runs() -> None:
    memory = QuestionMemory(QuestionSettings(learn_runs=3))
    for run in range(3):
        seen = watch(replace(a_job((600, BUSY), seed=run)), memory, "solver", score=30.0)
        assert any(f.question == "new" for _, a in seen for f in a.findings)
        memory.end_jobs(10**6)
    half = watch(a_job((600, (0.6, 0.02, 0.0))), memory, "solver", score=30.0)
    assert not any(f.question == "new" for _, a in half for f in a.findings)
    when_s, finding = opened(half)["idle"]
    assert finding.compared_with == "program"
    assert when_s < 300
    assert opened(watch(a_job((600, (0.6, 0.02, 0.0))))) == {}


@pytest.mark.medium
def test_a_fault_of_some_runs_does_not_become_usual_and_a_phase_of_all_runs_does() -> None:
    memory = QuestionMemory(QuestionSettings(learn_runs=3))
    paging = (0.8, 0.18, 0.0)
    for run, phases in enumerate([[(600, BUSY)], [(300, BUSY), (300, paging)], [(600, BUSY)]]):
        watch(a_job(*phases, seed=run), memory, "solver")
        memory.end_jobs(10**6)
    for run in range(3):
        watch(a_job((300, BUSY), (300, paging), seed=run), memory, "phases")
        memory.end_jobs(10**6)
    again = a_job((300, BUSY), (300, paging), seed=9)
    assert set(opened(watch(again, memory, "solver"))) == {"kernel-time", "stall-bursts"}
    assert opened(watch(again, memory, "phases")) == {}


def with_memory(trace: Trace, used: np.ndarray) -> Trace:
    """With the memory of its job, a part of the limit in each second."""
    schema = Schema((Channel("job_memory", scope="job"),))
    return replace(
        trace, job_channels=JobChannels(schema, (trace.spans[0].job,), used.astype(np.float32)[None, :, None])
    )


@pytest.mark.medium
def test_a_known_program_with_a_larger_input_does_not_leak_while_it_takes_its_memory() -> None:
    memory, second = QuestionMemory(QuestionSettings(learn_runs=3)), np.arange(900)
    for run in range(3):
        watch(with_memory(a_job((900, BUSY), seed=run), np.minimum(second / 100, 0.2)), memory, "solver")
        memory.end_jobs(10**6)
    larger = with_memory(a_job((900, BUSY)), np.minimum(second / 500, 0.5))
    assert opened(watch(larger, memory, "solver")) == {}
    leaking = with_memory(a_job((900, BUSY), job="k"), 0.2 + np.maximum(second - 400, 0) / 1000)
    assert set(opened(watch(leaking, memory, "solver"))) == {"leak"}


@pytest.mark.medium
def test_a_known_program_that_leaves_a_thread_unused_is_unlike_its_runs() -> None:
    memory = QuestionMemory(QuestionSettings(learn_runs=1))
    watch(a_job((600, BUSY), threads=2), memory, "solver")
    memory.end_jobs(10**6)
    half_used = a_job((600, [BUSY, IDLE]), threads=2)
    assert "unlike-program" in opened(watch(half_used, memory, "solver"))
    assert opened(watch(half_used)) == {}


@pytest.mark.medium
def test_a_job_that_starts_a_second_copy_of_itself_is_information_and_no_event() -> None:
    trace = in_cgroup(a_job((600, BUSY), (300, BUSY)), 300, job_cpu=(0.99, 0.99), job_cpu_pressure=(0.01, 0.95))
    seen = watch(trace)
    found = [(now_s, f) for now_s, a in seen for f in a.findings if f.cause == "oversubscribed"]
    assert 610 <= found[0][0] <= 630
    assert found[-1][0] == 900  # it lasts
    assert found[-1][1].channel == "queued"
    assert opened(seen) == {}
    quota = in_cgroup(
        a_job((600, BUSY), (300, HALF)), 300, job_cpu=(0.99, 0.5), job_cpu_pressure=(0.01, 0.95), job_throttled=(0, 0.5)
    )
    assert not any(f.cause == "oversubscribed" for _, a in watch(quota) for f in a.findings)


def test_the_tables_of_programs_survive_their_file() -> None:
    memory = QuestionMemory(QuestionSettings(learn_runs=1))
    watch(a_job((600, BUSY)), memory, "solver")
    memory.end_jobs(10**6)
    again = programs_from_json(programs_to_json(memory.programs))
    np.testing.assert_allclose(again["solver"].summary(), memory.programs["solver"].summary(), atol=1e-4)


def test_a_memory_that_starts_late_takes_the_past_from_the_moment() -> None:
    trace = a_job((600, BUSY), (300, IDLE))
    late = opened(watch(trace, from_s=560))
    assert set(late) == {"idle"}


def test_ended_jobs_are_forgotten() -> None:
    memory = QuestionMemory()
    watch(a_job((300, BUSY)), memory)
    assert len(memory.past) == 1
    memory.end_jobs(10**6)
    assert len(memory.past) == 0


@pytest.mark.slow
def test_the_past_of_a_job_is_bounded() -> None:
    memory = QuestionMemory(QuestionSettings(most_blocks=16))
    assert causes(a_job((3000, BUSY)), memory=memory) == set()
    assert opened(watch(a_job((2000, BUSY), (300, IDLE)), QuestionMemory(QuestionSettings(most_blocks=16)))).keys() == {
        "idle"
    }


def test_every_cause_that_opens_an_event_has_a_text() -> None:
    assert {name for name, row in FINDING_CAUSES.items() if row.opens_event} <= set(CAUSES)


def test_jobs_that_end_in_their_start_up_are_not_remembered() -> None:
    """The past of a part takes 12 KB: a node that renames a thousand jobs at each scoring would hold 300 MB."""
    memory, buffer = QuestionMemory(), TraceBuffer(CPU)
    for now_s in range(10, 200, 10):
        part = a_job((10, BUSY), job=f"j{now_s}")
        span = replace(part.spans[0], start_s=now_s - 10, end_s=now_s)
        buffer.push(replace(part, start_s=now_s - 10, spans=(span,)))
        moment = buffer.moment(now_s)
        assess(moment, quiet_scores(moment), memory, 3.0, {span.job: JobLabel("solver", "ann")})
    assert (len(memory.past), len(memory._labels)) == (0, 1)
