"""Properties of every schedule, on random logs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies import POLICIES, find_policy
from clustertwin.workload.simulator import Schedule, SchedulingRules, simulate
from clustertwin.workload.simulator.admission import admit
from clustertwin.workload.simulator.simulate_log import schedule_records

PROCS = 8
row = st.tuples(st.integers(0, 30), st.integers(1, PROCS), st.integers(0, 20), st.integers(1, 20), st.integers(0, 2))


@st.composite
def logs(draw) -> Jobs:
    rows = sorted(draw(st.lists(row, min_size=1, max_size=25)))
    submit_s, cpus, run_s, request_s, user = zip(*rows, strict=True)
    return Jobs.build(submit_s=submit_s, run_s=run_s, request_s=request_s, cpus=cpus, user=user)


def busy(schedule: Schedule, time_s: float) -> int:
    """Processors in use at a moment; a job uses them from its start until just before its end."""
    running = (schedule.start_s <= time_s) & (schedule.end_s > time_s)
    return int(schedule.size[running].sum())


every = pytest.mark.parametrize(
    ("policy", "backfill", "hold"),
    [
        *[(policy, "none", True) for policy in POLICIES],
        *[(policy, "easy", hold) for policy in POLICIES for hold in (True, False)],
        *[(policy, "conservative", None) for policy in ("fcfs", "sjf", "wfp3", "multifactor")],
    ],
)


@pytest.mark.medium
@every
@settings(max_examples=settings.default.max_examples // 4)
@given(jobs=logs())
def test_a_schedule_is_feasible_and_work_conserving(policy: str, backfill: str, hold: bool, jobs: Jobs):
    schedule = simulate(jobs, PROCS, policy, backfill, hold=hold)
    assert (schedule.start_s >= schedule.jobs.submit_s).all()
    assert all(busy(schedule, time_s) <= PROCS for time_s in schedule.start_s)
    # Work conserving: a job waits only while another runs, and starts at an event.
    waited = np.flatnonzero(schedule.wait_s > 0)
    due_s = schedule.start_s + np.maximum(schedule.jobs.request_s, schedule.run_s)
    moments = np.concatenate([schedule.end_s, due_s, schedule.jobs.submit_s])  # a submission may change the head
    for job in waited:
        assert busy(schedule, schedule.start_s[job] - 0.5) > 0
        assert schedule.start_s[job] in moments


@settings(max_examples=2 * settings.default.max_examples)
@given(jobs=logs())
def test_easy_never_delays_the_reservation_of_the_head(jobs: Jobs):
    schedule = simulate(jobs, PROCS, "fcfs", "easy")
    estimate_s = np.maximum(schedule.jobs.request_s, schedule.run_s)
    due_s = schedule.start_s + estimate_s
    head_since_s = -np.inf
    for job in range(len(schedule)):
        head_since_s = max(head_since_s, schedule.jobs.submit_s[job])
        # The jobs that run when this job becomes the head, and their expected ends.
        running = (schedule.start_s <= head_since_s) & (schedule.end_s > head_since_s)
        running[job:] &= schedule.start_s[job:] < head_since_s
        moments = [head_since_s, *np.sort(due_s[running])]
        promised_s = next(
            m for m in moments if PROCS - schedule.size[running & (due_s > m)].sum() >= schedule.size[job]
        )
        # A later job that starts at the same moment can start before this job is the head, or after.
        if not (schedule.start_s[job + 1 :] == head_since_s).any():
            assert schedule.start_s[job] <= promised_s
        head_since_s = max(head_since_s, schedule.start_s[job])


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "wfp3"])
@given(jobs=logs())
def test_conservative_never_delays_a_reservation(policy: str, jobs: Jobs):
    records = admit(jobs, PROCS).records
    scheduled = schedule_records(records, find_policy(policy), SchedulingRules(PROCS, backfill="conservative"))
    assert (records["start_s"] <= scheduled.first_reserved_s).all()


@given(jobs=logs())
def test_a_run_time_has_no_effect_before_the_job_ends(jobs: Jobs):
    """Two logs that differ only in the run time of the last job to start give the same starts."""
    first = simulate(jobs, PROCS, "fcfs", "easy")
    last = int(np.argmax(first.start_s))
    request_s = np.maximum(jobs.request_s, jobs.run_s)
    run_s = first.jobs.run_s.copy()
    run_s[last] = request_s[last] if run_s[last] != request_s[last] else request_s[last] / 2
    if (first.start_s > first.start_s[last]).any() or (first.start_s == first.start_s[last]).sum() > 1:
        return
    second = simulate(Jobs.build(jobs.submit_s, run_s, request_s=request_s, cpus=jobs.cpus), PROCS, "fcfs", "easy")
    assert (second.start_s == first.start_s).all()
