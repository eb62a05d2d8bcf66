"""What happens at real sites and is no fault, or is one and must be named: drawn by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.telemetry.detection.drawn_jobs import Phase, draw, on_node, pages
from tests.telemetry.detection.test_questions import HALF, a_job, causes, in_cgroup, opened, watch

from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings

pytestmark = pytest.mark.slow

BUSY, IDLE = (0.97, 0.01, 0.0), (0.004, 0.002, 0.0)
FAULTS = 0.4  # page faults as their channel: 67 a second


def test_a_job_that_waited_for_its_input_before_it_worked_is_found_when_it_hangs() -> None:
    found = pages(draw([Phase(150, IDLE, network=60), Phase(420, BUSY), Phase(240, IDLE)], 4))
    assert found.keys() == {"idle"}
    assert found["idle"] <= 570 + 200


def test_a_job_that_pauses_may_pause_again_and_is_found_when_it_rests_many_times_as_long() -> None:
    pauses = [Phase(180, BUSY), Phase(60, IDLE)] * 2
    assert pages(draw([*pauses, Phase(240, BUSY), Phase(240, IDLE)], 4)) == {}
    found = pages(draw([*pauses, Phase(240, BUSY), Phase(1500, IDLE)], 4))
    assert 720 + 240 < found["idle"] <= 720 + 480


def test_a_hang_after_pauses_does_not_become_usual() -> None:
    trace = draw([*[Phase(180, BUSY), Phase(60, IDLE)] * 2, Phase(240, BUSY), Phase(1500, IDLE)], 4)
    *_, (now_s, last) = watch(trace)
    assert any(finding.cause == "idle" and finding.held(now_s) for finding in last.findings)


@pytest.mark.parametrize(
    ("lost", "cause"),
    [
        (Phase(300, (0.85, 0.01, 0.0), steal=0.13), "steal"),
        (Phase(300, (0.85, 0.01, 0.0), throttled=0.13, queued=0.13), "throttled"),
    ],
)
def test_time_that_something_takes_from_a_job_is_not_called_idle(lost: Phase, cause: str) -> None:
    assert pages(draw([Phase(300, BUSY), lost], 4)).keys() == {cause}


def test_the_hypervisor_takes_time_from_the_threads_that_want_to_run() -> None:
    """A job on half of the threads of a node loses 12 % of its time, which is 6 % of that of the node."""
    works = Phase(300, (0.85, 0.01, 0.0), steal=0.06)
    assert pages(draw([Phase(300, BUSY), works], 4, node_threads=8)).keys() == {"steal"}
    beside = draw([Phase(600, IDLE, steal=0.2)], 4, node_threads=8)
    beside.values[4:, :, 0], beside.values[4:, :, 3] = 0.8, 0.2
    assert pages(beside) == {}


def job_on_two_nodes(works: Phase, first: Phase, second: Phase) -> dict[str, int]:
    """Cause -> when: both nodes work, and then each does something else."""
    return pages(*(on_node(draw([works, then], 4, seed), f"n{seed}") for seed, then in enumerate((first, second), 1)))


def test_a_serial_phase_on_one_node_leaves_the_other_nodes_of_the_job_idle() -> None:
    works, rests = Phase(400, BUSY), Phase(400, IDLE)
    assert job_on_two_nodes(works, Phase(400, [BUSY, IDLE, IDLE, IDLE]), rests) == {}
    assert job_on_two_nodes(works, rests, rests).keys() == {"idle"}


def test_a_node_at_rest_while_the_other_nodes_of_its_job_work_is_left_behind() -> None:
    works, polls = (Phase(seconds, BUSY, memory=(0.4, 0.4), page_faults=FAULTS) for seconds in (400, 250))
    found = job_on_two_nodes(works, polls, Phase(250, IDLE, memory=(0.4, 0.4), page_faults=0.0))
    assert "idle" not in found
    assert found["hung-rank"] <= min(found.values())
    assert found["hung-rank"] <= 400 + 130


def test_a_node_whose_processes_are_done_is_not_left_behind() -> None:
    works, goes_on = (Phase(seconds, BUSY, memory=(0.4, 0.4), page_faults=FAULTS) for seconds in (400, 250))
    assert job_on_two_nodes(works, goes_on, Phase(250, IDLE, memory=(0.02, 0.02), page_faults=0.0)) == {}


def test_a_job_that_computes_on_a_gpu_is_not_misbound_because_the_exporter_reads_the_run_queue() -> None:
    """Without pressure (cgroup v1, psi=0). Whatever reads the run queue runs at that time and counts itself."""
    one_thread = (900, [BUSY, IDLE, IDLE, IDLE])
    assert causes(a_job(one_thread, run_queue=2 / 6)) == set()
    assert causes(a_job(one_thread, run_queue=5 / 9)) == {"misbound"}


def test_tasks_of_another_job_that_wait_do_not_make_a_serial_job_misbound() -> None:
    """Without pressure, nobody knows whose tasks wait: four of the other job, and the one that reads the run queue."""
    trace = a_job((900, [BUSY, IDLE, IDLE, IDLE, *[BUSY] * 4]), threads=8, run_queue=10 / 18)
    spans = (replace(trace.spans[0], cpus=(0, 1, 2, 3)), replace(trace.spans[0], job="other", cpus=(4, 5, 6, 7)))
    assert causes(replace(trace, spans=spans)) == set()


@pytest.mark.parametrize(("major_faults", "found"), [(0.0, set()), (0.5, {"swapping"})])
def test_without_pressure_only_a_job_that_reads_pages_back_swaps(major_faults: float, found: set[str]) -> None:
    trace = a_job((300, HALF), (300, HALF), swap_traffic=(0.0, 0.75))
    assert causes(in_cgroup(trace, 300, job_cpu=(0.52, 0.52), job_major_faults=(0.0, major_faults))) == found


def test_without_pressure_a_daemon_that_transfers_the_data_of_a_job_takes_nothing_from_it() -> None:
    """Kernel threads and the daemons of parallel file systems work outside of the job's cgroup, on its threads."""
    writes = a_job((600, BUSY), (300, (0.30, 0.15, 0.45)), disk_traffic=(0.0, 0.5))
    assert causes(in_cgroup(writes, 300, job_cpu=(0.98, 0.30))) == set()
    competes = a_job((600, BUSY), (300, BUSY), disk_traffic=(0.0, 0.5))
    assert causes(in_cgroup(competes, 300, job_cpu=(0.98, 0.55))) == {"cpu-contention"}


@pytest.mark.parametrize(("name", "user", "found"), [("run.sh", "ada", True), ("run.sh", "bob", False)])
def test_the_same_name_of_another_user_is_another_program(name: str, user: str, found: bool) -> None:
    memory = QuestionMemory(QuestionSettings(learn_runs=3))
    for run in range(3):
        watch(a_job((600, BUSY), seed=run), memory, name, user="ada")
        memory.end_jobs(10**6)
    assert ("idle" in opened(watch(a_job((600, (0.6, 0.02, 0.0))), memory, name, user=user))) == found


def test_a_job_that_nobody_named_is_compared_with_no_other() -> None:
    memory = QuestionMemory(QuestionSettings(learn_runs=3))
    for run in range(3):
        watch(a_job((600, BUSY), seed=run), memory, "wrap", user="ada")
        memory.end_jobs(10**6)
    assert opened(watch(a_job((600, (0.6, 0.02, 0.0))), memory, "wrap", user="ada")) == {}


@pytest.mark.parametrize(("shares", "found"), [((0.97, 0.9, 0.6), False), ((0.97, 0.96, 0.95), True)])
def test_a_name_whose_runs_are_not_alike_is_no_program(shares: tuple[float, ...], found: bool) -> None:
    memory = QuestionMemory(QuestionSettings(learn_runs=3))
    for run, share in enumerate(shares):
        watch(a_job((600, (share, 0.01, 0.0)), seed=run), memory, "run.sh", user="ada")
        memory.end_jobs(10**6)
    assert bool(opened(watch(a_job((600, (0.1, 0.02, 0.0))), memory, "run.sh", user="ada"))) == found


def test_the_next_program_of_a_job_is_not_compared_with_the_one_before() -> None:
    other = (0.70, 0.15, 0.0)
    first, pause = Phase(300, BUSY, memory=(0.3, 0.3)), Phase(15, IDLE, memory=(0.004, 0.004))
    second = [Phase(10, other, memory=(0.01, 0.5)), Phase(300, other, memory=(0.5, 0.5))]
    assert pages(draw([first, pause, *second], 4)) == {}
    assert "idle" in pages(draw([first, Phase(300, other, memory=(0.3, 0.3))], 4))
    found = pages(draw([first, pause, *second, Phase(200, IDLE, memory=(0.5, 0.5))], 4))
    assert found.keys() == {"idle"}
    assert found["idle"] > 625


def test_a_job_whose_program_ended_is_idle_although_it_has_no_memory_any_more() -> None:
    ended = Phase(200, IDLE, memory=(0.004, 0.004))
    assert pages(draw([Phase(300, BUSY, memory=(0.3, 0.3)), ended], 4)).keys() == {"idle"}


def test_a_program_that_frees_all_of_its_memory_again_and_again_keeps_its_past() -> None:
    cycles = [Phase(20, BUSY, memory=(0.01, 0.5))] * 20
    assert "idle" in pages(draw([*cycles, Phase(200, IDLE, memory=(0.3, 0.3))], 4))


@pytest.mark.parametrize(
    ("name", "found"), [("interactive", set()), ("sys/dashboard/sys/jupyter", set()), ("cfd", {"idle"})]
)
def test_a_session_rests_while_its_user_thinks(name: str, found: set[str]) -> None:
    assert set(opened(watch(a_job((400, BUSY), (300, IDLE)), label=name, user="ada"))) == found


def test_other_changes_of_a_session_are_found() -> None:
    hangs = a_job((600, BUSY), (400, [(0.38, 0.61, 0.0)] * 3 + [IDLE]))
    assert "hung-rank" in opened(watch(hangs, label="interactive"))


def test_a_job_that_the_scheduler_suspends_rests_without_a_fault() -> None:
    """Slurm is asked once a minute, so the state is known a minute late."""
    trace = a_job((600, BUSY), (900, IDLE), (400, BUSY))
    assert "idle" in opened(watch(trace, label="cfd"))
    assert opened(watch(trace, label="cfd", suspended_s=range(670, 1570))) == {}


def test_a_rest_in_suspension_excuses_no_hang_after_it() -> None:
    trace = a_job((600, BUSY), (900, IDLE), (400, BUSY), (900, IDLE))
    when_s, _ = opened(watch(trace, label="cfd", suspended_s=range(670, 1570)))["idle"]
    assert 1900 < when_s <= 1900 + 600


def test_a_suspended_job_that_is_harmed_is_still_found() -> None:
    waits = a_job((400, BUSY), (300, (0.01, 0.01, 0.9)), disk_traffic=(0.0, 0.0))
    assert "stalled-io" in opened(watch(waits, label="cfd", suspended_s=range(400, 800)))


def test_rounds_whose_last_tasks_end_late_are_a_phase_after_the_second() -> None:
    """Tasks of a list run on six threads; in each round the longest two go on. The next list begins a minute later."""
    works = Phase(70, BUSY, memory=(0.3, 0.3), page_faults=FAULTS)
    ends = Phase(300, [BUSY, BUSY, *[IDLE] * 4], memory=(0.1, 0.1), page_faults=FAULTS)
    assert pages(draw([replace(works, seconds=180), ends, works, ends, works, ends], 6)) == {}


def test_reading_the_input_again_is_no_straggler() -> None:
    reads = Phase(240, [(0.35, 0.05, 0.4), *[IDLE] * 3], disk=120)
    works = Phase(500, (0.85, 0.01, 0.0))
    assert pages(draw([reads, works, reads, works], 4)) == {}
