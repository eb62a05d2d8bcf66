"""Jobs of many shapes: what a sentence says of them is true, or says that it cannot tell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.telemetry.diagnosis.test_processes import QUICK, only, settled, start

from clustertwin.telemetry.diagnosis import job_processes
from clustertwin.telemetry.diagnosis.evidence import (
    UNSEEN,
    USED,
    JobEvidence,
    ProcessEvidence,
    Stack,
    Waiting,
    merge,
)
from clustertwin.telemetry.diagnosis.job_activity import WholeJob, activity, moment
from clustertwin.telemetry.diagnosis.job_processes import find_processes, find_tree
from clustertwin.telemetry.diagnosis.kernel import job_cgroup
from clustertwin.telemetry.diagnosis.odd_rank import find
from clustertwin.telemetry.diagnosis.process_files import (
    ProcessStat,
    ignores_children,
    look,
    other_thread_can_run,
    stat_of,
)
from clustertwin.telemetry.diagnosis.rank_state import TwoLooks, state_of
from clustertwin.telemetry.diagnosis.running_threads import RunningThreads
from clustertwin.telemetry.diagnosis.take_evidence import Budget, take

__all__ = ["start"]  # a fixture
SHORT = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done"
WORKERS = """import threading
def work():
    while True: pass
thread = threading.Thread(target=work, daemon=True)
thread.start()
print('ready', flush=True)
thread.join()"""
NO_STACKS = Budget(cpu_s=0.0, window_s=0.0)


def slept(pid: int, waiting: str = "wait4", **values) -> ProcessEvidence:
    return replace(ProcessEvidence("n1", pid, None, "sleeps", "S", waiting=Waiting(waiting, "")), **values)


def of(*processes: ProcessEvidence, **counters: int) -> JobEvidence:
    return JobEvidence("42", ("n1",), 1e9, 2.0, processes, cgroup=counters)


def stat(parent: int, cpu_s: float, children_cpu_s: float = 0.0, started: int = 1) -> ProcessStat:
    return ProcessStat("S", parent, 0, cpu_s, children_cpu_s, 1, started, 0)


def eventually(holds) -> None:
    end_s = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_programs_that_start_and_end_between_the_looks_are_work(start):
    """hmmsearch in a loop of a batch script: 'No process uses CPU time: all 2 sleep at wait4'."""
    process = start(f"echo ready; while :; do sh -c '{SHORT}'; done", shell=True)

    def used(_: float) -> None:
        before = stat_of(process.pid)
        eventually(lambda: stat_of(process.pid).children_cpu_s > before.children_cpu_s + 0.1)

    finding = find(take("1", find_tree(process.pid), "n1", QUICK, sleep=used))
    assert (finding.kind, finding.hang) == ("progress", False), finding


def test_a_process_whose_threads_can_run_and_get_no_cpu_does_not_sleep(start):
    process = start(WORKERS)
    settled(process, "S")  # its first thread waits for the other one
    finding = find(take("1", only(process), "n1", NO_STACKS, sleep=lambda _: None))
    assert finding.kind == "progress"
    assert "No process uses CPU time" not in finding.sentence


def test_threads_that_are_too_many_to_look_at_are_not_called_asleep(start):
    process = start(WORKERS.replace("while True: pass", "threading.Event().wait()"))
    settled(process, "S")
    eventually(lambda: other_thread_can_run(process.pid, 2) is False)
    assert other_thread_can_run(process.pid, 1) is None
    seen = look(process.pid)
    looks = TwoLooks(seen, replace(seen, other_can_run=None), ())
    assert state_of(looks) == "unknown"


def test_a_process_that_can_run_outside_mpi_and_gets_no_cpu_is_starved_and_not_asleep():
    first = replace(look(os.getpid()), state="R")
    assert state_of(TwoLooks(first, first, (Stack(("main",)), Stack(("main",))))) == "starved"
    ranks = [
        ProcessEvidence("n1", 10, 0, "starved", "R", stack=Stack(("step",))),
        *(ProcessEvidence("n1", 10 + r, r, "waits-in-mpi", "R", mpi_call="MPI_Bcast") for r in (1, 2)),
    ]
    finding = find(replace(of(*ranks), size=3, messages_pass=False))
    assert (finding.kind, finding.hang, finding.ranks) == ("straggler", False, (0,))
    assert finding.sentence == (
        "Rank 0 of 3 can run and used hardly any CPU time in 2 s, and the others wait in MPI_Bcast."
    )


def test_a_thread_that_works_excludes_that_the_first_one_spins():
    """The first thread waits in a loop for a worker that writes to a large array: it was called a hang."""
    stack = Stack(("main",))
    first = replace(look(os.getpid()), state="R", cpu_s=1.0)
    before = RunningThreads({1: 1.0}, elsewhere_s=0.0, registers=7, kernel_writes=(), stopped_s=0.0)
    after = replace(before, cpu_s={1: 3.0})
    looks = TwoLooks(first, replace(first, cpu_s=3.0), (stack, stack), memory=(7, 7), running=(before, after))
    assert state_of(looks) == "spins"
    sleeps_at_the_looks = replace(after, elsewhere_s=1.0)
    assert state_of(replace(looks, running=(before, sleeps_at_the_looks))) == "computes"
    waits_for_a_cpu = (replace(before, cpu_s={1: 1.0, 2: 0.5}), replace(after, cpu_s={1: 3.0, 2: 0.5}))
    assert state_of(replace(looks, running=waits_for_a_cpu)) == "computes"
    assert state_of(replace(looks, running=(before, replace(after, cpu_s={2: 3.0})))) == "computes"


@pytest.mark.parametrize(
    ("process", "counters", "kind"),
    [
        (ProcessEvidence("n1", 3, None, "ended", ""), {USED: 1_900_000}, "progress"),
        (ProcessEvidence("n1", 3, None, "ended", ""), {USED: 0, UNSEEN: 1}, "unknown"),
        (ProcessEvidence("n1", 3, None, "ended", ""), {}, "unknown"),  # evidence of an earlier version
        (ProcessEvidence("n1", 3, None, "unknown", "R"), {USED: 0}, "unknown"),
        (ProcessEvidence("n1", 3, None, "unknown", "S"), {USED: 0}, "unknown"),
        (ProcessEvidence("n1", 3, None, "starved", "R"), {USED: 0}, "progress"),
        (ProcessEvidence("n1", 3, None, "ended", ""), {USED: 1000}, "idle"),  # the sleep of a shell that polls
    ],
)
def test_a_job_is_idle_only_if_all_of_it_is(process, counters, kind):
    finding = find(of(slept(1), slept(2), process, **counters))
    assert (finding.kind, finding.hang) == (kind, False)
    assert ("No process uses CPU time" in finding.sentence) == (kind == "idle")


def test_processes_that_can_run_are_counted_whether_their_stacks_were_read_or_not():
    starved, unread = ProcessEvidence("n1", 3, None, "starved", "R"), ProcessEvidence("n1", 4, None, "unknown", "R")
    text = "2 of 3 processes can run and used hardly any CPU time in 2 s."
    assert find(of(slept(1), starved, unread)).sentence == text
    assert find(of(unread)).sentence == "The only process can run, and what it does could not be read."


def test_a_reader_of_programs_that_come_and_go_does_not_hang():
    """`while :; do program; done | tee log` was a hang of tee."""
    reader = ProcessEvidence("n1", 2, None, "blocked", "S", waiting=Waiting("read", "pipe:[7]"))
    gone = ProcessEvidence("n1", 3, None, "ended", "")
    assert find(of(slept(1), reader, **{USED: 0})).hang
    for counters in ({USED: 900_000}, {USED: 0, UNSEEN: 1}, {USED: 0}, {}):
        assert not find(of(slept(1), reader, gone, **counters)).hang
    assert not find(of(slept(1), reader, replace(gone, does="unknown", state="R"), **{USED: 0})).hang
    assert not find(of(slept(1), replace(reader, does="stopped", state="T"), gone, **{USED: 900_000})).hang


def test_an_idle_job_says_how_many_sleep_and_where():
    loop = slept(2, "clock_nanosleep", stack=Stack(("sleep",)))
    assert find(of(loop, **{USED: 0})).sentence == "No process uses CPU time: its only process sleeps at sleep."
    assert find(of(loop, loop, **{USED: 0})).sentence == "No process uses CPU time: all 2 sleep at sleep."
    assert find(of(slept(1), loop)).sentence == "No process uses CPU time: all 2 sleep, 1 of them at sleep."
    two = find(of(loop, replace(loop, stack=Stack(("poll",))), **{USED: 0}))
    assert two.sentence == "No process uses CPU time: all 2 sleep."
    stopped = replace(loop, does="stopped", state="T")
    assert find(of(loop, stopped)).sentence == "No process uses CPU time: 1 of 2 sleep at sleep."
    assert find(of(loop, **{USED: 20_000})).sentence.startswith("Only 0.02 s of CPU time in 2 s was used: ")


def test_a_job_that_was_frozen_during_the_look_is_suspended():
    """Slurm sends SIGTSTP, waits for two seconds, and freezes the cgroup."""
    first = look(os.getpid())
    frozen = replace(first, is_frozen=True)
    assert [state_of(TwoLooks(*two, ())) for two in ((first, frozen), (frozen, frozen))] == ["stopped"] * 2
    assert state_of(TwoLooks(frozen, first, ())) == "unknown"
    held = [slept(pid, does="stopped") for pid in (1, 2)]
    assert find(of(*held)).sentence.startswith("All 2 processes are stopped by the freezer of a cgroup")


def test_ranks_that_use_cpu_time_and_have_no_stack_are_not_said_to_work():
    """Without eu-stack or the right to attach, ranks that wait for a message in a loop were said to compute."""
    blind = ProcessEvidence("n1", 1, 0, "computes", "R", note="the native stack could not be read: not permitted")
    both = (blind, replace(blind, pid=2, rank=1))
    finding = find(replace(of(*both, **{USED: 4_000_000}), size=2))
    assert (finding.kind, finding.hang) == ("unknown", False)
    text = "All 2 processes use CPU time; without a stack, work and a wait in MPI look the same."
    assert finding.sentence == text
    alone = find(of(replace(blind, rank=None)))
    assert (alone.kind, alone.sentence) == ("progress", text.replace("All 2 processes use", "The only process uses"))
    assert find(of(replace(blind, stack=Stack(("solve",))))).sentence == "The job works: its process computes."


def test_a_process_that_a_debugger_holds_does_not_hang():
    held = ProcessEvidence("n1", 2, 1, "stopped", "t")
    finding = find(replace(of(ProcessEvidence("n1", 1, 0, "waits-in-mpi", "R", mpi_call="MPI_Recv"), held), size=2))
    assert (finding.kind, finding.hang) == ("suspended", False)
    assert finding.sentence == "1 of 2 processes is stopped by a debugger."


def test_cpu_time_of_a_child_counts_once_whether_it_ended_or_not():
    shell = {10: stat(1, 1.0)}
    first = WholeJob(None, {**shell, 11: stat(10, 5.0)})
    ended = WholeJob(None, {10: stat(1, 1.0, 7.0), 12: stat(10, 0.5)})  # 11 used 2 s more, and 12 has begun
    assert activity(first, ended, unread=0) == {USED: 2_500_000, UNSEEN: 0}
    assert activity(first, WholeJob(None, {11: stat(1, 6.0)}), unread=0) == {USED: 1_000_000, UNSEEN: 1}
    assert activity(first, first, unread=3) == {USED: 0, UNSEEN: 3}
    assert activity(replace(first, deaf=frozenset({10})), ended, unread=0)[UNSEEN] == 2  # who waited for 11?
    assert activity(WholeJob(4.0, {}), WholeJob(4.5, {}), unread=3) == {USED: 500_000}  # a cgroup sees everything
    assert activity(WholeJob(4.0, {}), WholeJob(None, {}), unread=0)[UNSEEN]


def test_cpu_time_of_a_grandchild_counts_once_if_its_parent_ended_too():
    """'The job works: it used 3600.0 s of CPU time in 2 s.'"""
    first = WholeJob(None, {10: stat(1, 1.0), 11: stat(10, 1.0), 12: stat(11, 3600.0)})
    ended = WholeJob(None, {10: stat(1, 1.0, 3603.0)})  # 11 and 12 used 2 s more
    assert activity(first, ended, unread=0) == {USED: 2_000_000, UNSEEN: 1}
    circle = WholeJob(None, {11: stat(12, 1.0), 12: stat(11, 1.0)})  # of pids that were used again
    assert activity(circle, WholeJob(None, {}), unread=0) == {USED: 0, UNSEEN: 2}


def test_what_ended_on_a_node_with_an_older_helper_may_have_worked():
    new = of(slept(1), **{USED: 0})
    other = replace(of(slept(2), ProcessEvidence("n2", 3, None, "ended", "")), nodes=("n2",))
    assert find(merge([new, other])).kind == "unknown"
    assert find(merge([new, replace(other, cgroup={USED: 1000})])).kind == "idle"


def test_a_word_of_a_newer_helper_is_no_evidence_of_a_hang():
    reader = ProcessEvidence("n1", 2, None, "blocked", "S", waiting=Waiting("read", "pipe:[7]"))
    newer = ProcessEvidence("n1", 3, None, "dances", "R")
    assert find(of(reader)).hang
    finding = find(of(reader, newer))
    assert (finding.kind, finding.hang) == ("unknown", False)
    assert finding == find(of(reader, replace(newer, does="unknown")))
    assert find(of(newer)).kind == "unknown"


def test_children_of_a_process_that_ignores_their_end_are_not_counted_and_it_is_said(start):
    code = "import signal, time; signal.signal(signal.SIGCHLD, signal.SIG_IGN); print('ready', flush=True)"
    process = start(f"{code}; time.sleep(60)")
    assert ignores_children(process.pid)
    assert not ignores_children(os.getpid())
    whole = moment(find_tree(process.pid))
    assert activity(whole, whole, unread=0) == {USED: 0, UNSEEN: 1}


def test_a_program_that_begins_after_the_first_look_is_of_the_job(start):
    shell = start("echo ready; read line; sleep 60 & wait", shell=True, stdin=subprocess.PIPE)
    found = find_tree(shell.pid)
    assert moment(found).members.keys() == {shell.pid}
    shell.stdin.write(b"\n")
    shell.stdin.close()
    eventually(lambda: len(moment(found).members) == 2)
    (child,) = moment(found).members.keys() - {shell.pid}
    os.kill(child, signal.SIGKILL)


def test_a_process_whose_first_thread_has_ended_is_of_its_job(start):
    """Its environment is readable through another thread only."""
    code = WORKERS.replace("while True: pass", "threading.Event().wait()").replace(
        "thread.join()", "import ctypes; ctypes.CDLL(None).pthread_exit(0)"
    )
    process = start(code, env={**os.environ, "SLURM_JOB_ID": "77126"})
    settled(process, "Z")
    assert [rank.pid for rank in find_processes("77126").ranks] == [process.pid]


def test_a_look_from_inside_a_job_is_not_a_process_of_the_job(start):
    environment = {**os.environ, "SLURM_JOB_ID": "77127"}
    process = start("import time; print('ready', flush=True); time.sleep(60)", env=environment)
    code = (
        "from clustertwin.telemetry.diagnosis.job_processes import find_processes; print(find_processes('77127').pids)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"({process.pid},)"


def test_a_process_of_another_namespace_is_refused_and_a_partial_hierarchy_has_no_cpu_time(start, monkeypatch):
    one, two = (start("echo ready; exec sleep 60", shell=True).pid for _ in range(2))
    listed = {"/all": {0, one, two}, "/some": {one}}
    monkeypatch.setattr(job_processes, "_in_cgroups", lambda job: listed)
    found = find_processes("77128")
    assert (found.pids, found.refused, found.groups) == ((one, two), 1, ("/all",))


def test_the_cpu_time_of_a_cgroup_is_read_from_either_version(tmp_path: Path):
    for name, file, text in (
        ("cpuset", "cpuset.cpus", "0-3\n"),
        ("cpu", "cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"),
        ("cpuacct", "cpuacct.usage", "2500000000\n"),
        ("unified", "cpu.stat", "usage_usec 1500000\nuser_usec 1\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    assert job_cgroup.cpu_s([f"{tmp_path}/{name}" for name in ("cpuset", "cpu", "cpuacct")]) == 2.5
    assert job_cgroup.cpu_s([f"{tmp_path}/unified"]) == 1.5
    assert job_cgroup.cpu_s([f"{tmp_path}/cpuset", f"{tmp_path}/gone"]) is None


def test_a_process_is_frozen_by_either_version_and_with_a_group_above_it(tmp_path: Path, monkeypatch):
    """On a hybrid host a process has a group of both versions."""
    monkeypatch.setattr(job_cgroup, "ROOT", str(tmp_path))
    monkeypatch.setattr(job_cgroup, "ROOTS_V2", (str(tmp_path), f"{tmp_path}/unified"))
    monkeypatch.setattr(job_cgroup, "_paths", lambda pid: {"freezer": "/old", "": "/job/step"})
    for group in ("freezer/old", "unified/job/step"):
        (tmp_path / group).mkdir(parents=True)
    old, new, above = (
        tmp_path / name
        for name in ("freezer/old/freezer.state", "unified/job/step/cgroup.freeze", "unified/job/cgroup.freeze")
    )
    for states in (("FROZEN", "0", "0"), ("FREEZING", "0", "0"), ("THAWED", "1", "0"), ("THAWED", "0", "1")):
        for file, state in zip((old, new, above), states, strict=True):
            file.write_text(f"{state}\n")
        assert job_cgroup.is_frozen(1), states
    above.write_text("0\n")
    assert not job_cgroup.is_frozen(1)


#: Files that freeze, in the hierarchies of this host: parent of the group, file, word to freeze, word to thaw.
FREEZERS = [
    freezer
    for freezer in (
        *((root, "cgroup.freeze", "1", "0") for root in job_cgroup.ROOTS_V2),
        (f"{job_cgroup.ROOT}/freezer", "freezer.state", "FROZEN", "THAWED"),
    )
    if Path(freezer[0], "cgroup.procs").exists()
]


@pytest.fixture(params=FREEZERS, ids=lambda freezer: freezer[0])
def freezer(request) -> Iterator[tuple[Path, str, str]]:
    """A cgroup of this test's own, the file that freezes it, and the word for it."""
    root, name, freeze, thaw = request.param
    group = Path(root) / f"clustertwin-test-{os.getpid()}"
    if not os.access(root, os.W_OK):
        pytest.skip(f"no cgroup can be made in {root}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made in {root}: {error.strerror}")
    yield group, name, freeze
    (group / name).write_text(thaw)
    for pid in (group / "cgroup.procs").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


@pytest.mark.medium
@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(60)"])
def test_a_frozen_job_is_suspended_and_does_not_hang(start, freezer, code):
    """In version 1 it was blocked in the kernel, with a hang; in version 2 it was idle."""
    group, name, freeze = freezer
    if not (group / name).exists():
        pytest.skip("this hierarchy has no freezer")
    process = start(f"print('ready', flush=True)\n{code}")
    (group / "cgroup.procs").write_text(str(process.pid))
    (group / name).write_text(freeze)
    eventually(lambda: job_cgroup.is_frozen(process.pid))
    evidence = take("1", only(process), "n1", Budget(window_s=0.1))
    assert evidence.processes[0].does == "stopped"
    finding = find(evidence)
    assert (finding.kind, finding.hang) == ("suspended", False)
    assert finding.sentence == "The only process is stopped by the freezer of a cgroup, as scontrol suspend does."
