"""Looks at the processes of a job are recorded without what tells of the host, and say the same when they are read."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace

import pytest

from clustertwin.core.errors import RecordingError, SourceError
from clustertwin.telemetry.campaign.zoo.look_taker import looking
from clustertwin.telemetry.campaign.zoo.raw_run import RawWriter, lines_of, parse_raw_run, read_raw_run
from clustertwin.telemetry.campaign.zoo.recorded_look import MOST_PROCESSES, RecordedLook, kept, line_of, parse_line
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, ProcessEvidence, Stack, Waiting
from clustertwin.telemetry.diagnosis.evidence_subprocess import take_in_subprocess
from clustertwin.telemetry.diagnosis.job_processes import find_group
from clustertwin.telemetry.diagnosis.odd_rank import find

SECRET = "ada-lovelace"
FILE = f"/home/{SECRET}/run 7/solver.py"


def in_mpi(rank: int, call: str = "MPI_Allreduce", line: int = 41) -> ProcessEvidence:
    stack = Stack(("sched_yield", f"P{call}", f"step [{FILE}+0x1f]"), (f"step ({FILE}:{line})", f"main ({FILE}:3)"))
    return ProcessEvidence(SECRET, 100 + rank, rank, "waits-in-mpi", "R", mpi_call=call, stack=stack)


def of(*processes: ProcessEvidence, **values) -> JobEvidence:
    settings = {"size": len(processes), "messages_pass": False, "cgroup": {"used_usec": 7, "oom_kill": 1}, **values}
    return JobEvidence(SECRET, (SECRET,), 1.7e9, 2.0, tuple(processes), cpu_s=0.25, **settings)


SPINS = ProcessEvidence(SECRET, 7, None, "spins", "R", stack=Stack(("?", f"solve [{FILE}+0x2]", "main")), cpu_s=2.0)
BLOCKED = replace(in_mpi(2), does="blocked", state="S", mpi_call="", waiting=Waiting("read", FILE), wchan="pipe_read")
SLEEPS = replace(SPINS, does="sleeps", waiting=Waiting("wait4"), kernel_stack=("do_wait",), note=f"no {FILE}")
CASES = {
    "ranks wait": of(in_mpi(0), in_mpi(1), in_mpi(2)),
    "one rank is in another call": of(in_mpi(0, "MPI_Recv", 12), in_mpi(1), in_mpi(2)),
    "a rank is at another place": of(in_mpi(0), in_mpi(1), in_mpi(2, "MPI_Barrier", 50), in_mpi(3)),
    "one rank reads": of(in_mpi(0), in_mpi(1), BLOCKED),
    "a program spins and its shell waits": of(SPINS, SLEEPS, size=None),
    "a program works": of(replace(SPINS, does="computes"), size=None),
    "its stack is not known": of(replace(SPINS, does="computes", stack=Stack(), note="no stack"), size=None),
    "all sleep": of(SLEEPS, size=None),
}


@pytest.mark.parametrize("evidence", CASES.values(), ids=CASES)
def test_a_recorded_look_says_the_same_and_names_no_user_file_or_host(evidence):
    line = line_of(RecordedLook(1.7e9, 2.5, evidence))
    assert SECRET not in str(line)
    assert "/" not in str(line)
    look = parse_line(line)
    assert (look.at_s, look.took_s, look.evidence) == (1.7e9, 2.5, kept(evidence))
    before, after = find(evidence), find(look.evidence)
    same = ("kind", "hang", "ranks", "sure", "since_s")
    assert [getattr(before, name) for name in same] == [getattr(after, name) for name in same]


def test_a_look_at_many_processes_is_bounded():
    processes = [replace(in_mpi(rank), stack=Stack(("x" * 200,) * 40)) for rank in range(500)]
    look = parse_line(line_of(RecordedLook(0.0, 1.0, of(*processes))))
    assert len(look.evidence.processes) <= MOST_PROCESSES
    assert look.evidence.left_out == 500 - len(look.evidence.processes)


def test_looks_are_read_back_from_a_raw_run_between_its_samples(tmp_path):
    path = tmp_path / "a-0.jsonl.xz"
    writer = RawWriter(path, {"program": "a"})
    looks = [RecordedLook(1.25, 2.0, evidence) for evidence in (of(SPINS), None)]
    for second, look in enumerate(looks):
        writer.add(second, {"counter": second})
        writer.add_look(look)
    writer.finish({"imposed": []})
    run = read_raw_run(path)
    assert run.looks == (replace(looks[0], evidence=kept(of(SPINS))), looks[1])
    assert list(run.values["counter"]) == [0, 1]
    assert not lines_of(path).exists()


def test_a_run_without_looks_is_read():
    assert parse_raw_run(b'{"format":1}\n["+","x"]\n[0,0,1]\n{}\n').looks == ()


@pytest.mark.parametrize("line", [b'["@",1,2]', b'["@",1,2,{}]', b'["@",1,2,{"format":99}]', b'["@","x",2,null]'])
def test_a_damaged_look_is_named(line):
    with pytest.raises(RecordingError, match=r"run:2: "):
        parse_raw_run(b"{}\n" + line + b"\n{}", "run")


def test_looks_are_taken_at_even_times_and_a_failed_one_counts():
    answers = iter([of(SPINS), SourceError("no helper")])

    def take() -> JobEvidence | None:
        answer = next(answers, None)
        if isinstance(answer, SourceError):
            raise answer
        return answer

    looks, begin_s, began_s = [], time.monotonic(), time.time()
    with looking(take, every_s=0.02) as new:
        while len(looks) < 3 and time.monotonic() < begin_s + 30:
            looks += new()
            time.sleep(0.005)
    assert [look.evidence is not None for look in looks[:3]] == [True, False, False]
    assert all(looks[i].at_s > began_s + 0.02 * (i + 1) - 0.001 for i in range(3))


@pytest.fixture
def group(tmp_path):
    """A directory like that of a cgroup, with one process that sleeps."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        (tmp_path / "cgroup.procs").write_text(f"{sleeper.pid}\n")
        (tmp_path / "cpuacct.usage").write_text("5000000\n")
        yield tmp_path, sleeper.pid
        sleeper.kill()


def test_the_processes_of_a_job_are_found_in_the_directory_of_its_group(group):
    folder, pid = group
    found = find_group(str(folder))
    assert [rank.pid for rank in found.ranks] == [pid]
    assert found.groups == (str(folder),)
    assert find_group(str(folder / "none")).ranks == ()


@pytest.mark.slow
@pytest.mark.real
def test_evidence_of_a_group_is_taken_by_the_program_of_the_service(group):
    folder, pid = group
    entered = folder / "entered"
    evidence = take_in_subprocess("zoo", None, "zoo", 120, str(folder), lambda: entered.write_text(str(os.getpid())))
    assert [process.pid for process in evidence.processes] == [pid]
    assert find(evidence).kind == "idle"
    assert int(entered.read_text()) not in (os.getpid(), pid)
    (folder / "cgroup.procs").write_text("")
    assert take_in_subprocess("zoo", None, "zoo", 120, str(folder)) is None
