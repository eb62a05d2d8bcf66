"""Real processes of a user who does not want to be looked at: names, mappings, threads and children that mislead."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.telemetry.diagnosis.test_processes import QUICK, only, settled, start

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.diagnosis import take_evidence
from clustertwin.telemetry.diagnosis.evidence import (
    MAX_BYTES,
    JobEvidence,
    ProcessEvidence,
    Stack,
    Waiting,
    parse_evidence,
    to_json,
)
from clustertwin.telemetry.diagnosis.evidence_subprocess import take_in_subprocess
from clustertwin.telemetry.diagnosis.job_processes import JobProcesses, find_processes, find_tree
from clustertwin.telemetry.diagnosis.odd_rank import find
from clustertwin.telemetry.diagnosis.process_files import look
from clustertwin.telemetry.diagnosis.rank_state import TwoLooks, state_of
from clustertwin.telemetry.diagnosis.stack_snapshot import _first_page, _mappings
from clustertwin.telemetry.diagnosis.stack_tools import run_tool
from clustertwin.telemetry.diagnosis.take_evidence import take

__all__ = ["start"]  # a fixture
SLEEP = "print('ready', flush=True); import time; time.sleep(60)"


@pytest.mark.parametrize("name", ["se.exec_start:.", "se.exec_start:9", "\\n----------", "\\x1b[2J<b>) R 1 "])
def test_the_name_of_a_program_is_not_read_as_one_of_the_kernels_fields(start, name):
    process = start(f"import ctypes; ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0); {SLEEP}")
    settled(process, "S")
    seen = look(process.pid)
    assert seen is not None
    assert seen.ran_s is None or seen.ran_s > 10
    assert seen.parent == os.getpid()


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory that is not below /dev, as `tmp_path` may be: nothing below /dev is read."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def test_a_pipe_in_the_place_of_a_mapped_file_is_not_opened(start, on_disk):
    path = str(on_disk / "library")
    code = f"open({path!r}, 'wb').write(b'\\x7fELF' + b'x' * 8192); import mmap, os; "
    code += (
        f"m = mmap.mmap(os.open({path!r}, os.O_RDONLY), 8192, prot=mmap.PROT_READ); os.link({path!r}, {path + '2'!r}); "
    )
    process = start(code + SLEEP)
    (mapping,) = [mapping for mapping in _mappings(process.pid) if mapping.path == path]
    assert _first_page(mapping).startswith(b"\x7fELF")
    os.unlink(path)
    os.mkfifo(path)
    assert _first_page(mapping) == b""  # and this test ends


@pytest.mark.medium
def test_a_process_whose_first_thread_has_ended_has_not_ended(start):
    process = start(
        "import ctypes, threading\n"
        "def work():\n    print('ready', flush=True)\n    while True: pass\n"
        "threading.Thread(target=work).start()\nctypes.CDLL(None).pthread_exit(0)"
    )
    settled(process, "Z")
    assert take("1", only(process), "n1", QUICK).processes[0].does in ("computes", "unknown")


@pytest.mark.medium
@pytest.mark.parametrize(("work", "does"), [("[0 for _ in iter(int, 1)]", "sleeps"), ("time.sleep(60)", "blocked")])
def test_a_rank_that_reads_from_a_program_which_works_does_not_hang(start, work, does):
    child = [sys.executable, "-c", f"import time; print('ready', flush=True); {work}"]
    code = f"import subprocess; p = subprocess.Popen({child!r}, stdout=subprocess.PIPE); p.stdout.readline(); "
    process = start(code + "print(p.pid, flush=True); p.stdout.read()")
    settled(process, "S")
    (rank,) = only(process).ranks
    (other,) = (seen.pid for seen in find_tree(process.pid).ranks if seen.pid != process.pid)
    try:
        seen = take("1", JobProcesses((replace(rank, beside=(other,)),), None, 1, 0), "n1", QUICK).processes[0]
    finally:
        os.kill(other, 9)
    assert seen.does == does


@pytest.mark.slow
def test_a_job_that_forks_without_end_is_cut_and_stays_within_the_budget(start):
    code = "import os, signal\nfor i in range(700):\n    if os.fork() == 0: signal.pause()\n"
    process = start(f"{code}{SLEEP}", env={**os.environ, "SLURM_JOB_ID": "918273"}, start_new_session=True)
    try:
        evidence = take_in_subprocess("918273", os.getuid(), "n1")
        assert evidence is not None
        assert evidence.left_out >= 701 - 512
        assert evidence.cpu_s < 1
        assert not find(evidence).hang
    finally:
        os.killpg(process.pid, 9)


def test_texts_in_other_scripts_do_not_make_a_document_too_large():
    process = ProcessEvidence(
        "n1", 4_000_000, 0, "blocked", "S", waiting=Waiting("read", "\u2603" * 200), note="\u2603" * 200
    )
    evidence = JobEvidence("1", ("n1",), 1.0, 2.0, tuple(replace(process, rank=i) for i in range(512)))
    document = to_json(evidence)
    assert len(document) <= MAX_BYTES
    kept = parse_evidence(document)
    assert kept.processes
    assert len(kept.processes) + kept.left_out == 512


def test_a_tool_that_uses_too_much_cpu_time_is_killed():
    assert run_tool([sys.executable, "-c", "print('x'); import itertools; [0 for _ in itertools.count()]"], 0.1) == b""
    assert run_tool(["/bin/echo", "x"], 0.1) == b"x\n"


def test_a_tool_that_prints_without_end_does_not_fill_the_memory():
    """eu-stack prints the names of functions, which the owner of a program chooses."""
    code = (
        "import resource; from clustertwin.telemetry.diagnosis.stack_tools import run_tool\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\n"
        "print(len(run_tool(['cat', '/dev/zero'], 60.0)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == (f"{1 << 20}\n", 0), done.stderr[-500:]


@pytest.mark.medium
def test_the_stack_of_a_later_process_with_the_same_pid_is_not_kept(start, monkeypatch):
    process = start(SLEEP)
    settled(process, "S")

    def stack_of_another(pid, state, cpu_s):
        process.kill()
        process.wait()
        return Stack(("secret",)), 0.0, ""

    found = only(process)
    monkeypatch.setattr(take_evidence, "stack_of", stack_of_another)
    evidence = take("1", found, "n1", QUICK)
    assert b"secret" not in to_json(evidence)
    assert evidence.processes[0].does == "ended"


def test_evidence_that_blocks_its_reader_is_one_sentence(start):
    start(SLEEP, env={**os.environ, "SLURM_JOB_ID": "918274"})
    assert find_processes("918274").ranks
    with pytest.raises(SourceError, match="no evidence of job 918274: it took longer than 0 s"):
        take_in_subprocess("918274", os.getuid(), "n1", timeout_s=0.2)


def test_a_process_that_could_run_and_gets_no_cpu_does_not_sleep():
    first = replace(look(os.getpid()), state="R")
    starved = TwoLooks(first, replace(first), (Stack(), Stack()))
    assert state_of(starved) == "unknown"
    assert state_of(replace(starved, last=replace(first, state="S"))) == "sleeps"


@pytest.mark.medium
def test_the_stack_of_one_look_counts_if_the_other_could_not_be_read(start, monkeypatch):
    process = start(SLEEP)
    settled(process, "S")
    stacks = [Stack(("PMPI_Recv", "main")), Stack()]
    monkeypatch.setattr(take_evidence, "stack_of", lambda *_: (stacks.pop(0), 0.0, ""))
    (seen,) = take("1", only(process), "n1", QUICK).processes
    assert (seen.does, seen.mpi_call) == ("waits-in-mpi", "MPI_Recv")


def test_an_unseen_rank_makes_a_hang_less_certain():
    waits = tuple(ProcessEvidence("n1", 9 + r, r, "waits-in-mpi", "R", mpi_call="MPI_Allreduce") for r in range(3))
    blocked = ProcessEvidence("n1", 20, 3, "blocked", "S", waiting=Waiting("read", "/x"))
    unread = ProcessEvidence("n1", 21, 4, "unknown", "R")
    all_seen = JobEvidence("42", ("n1",), 0.0, 2.0, (*waits, blocked), size=4, messages_pass=False)
    assert find(all_seen).sure == 0.97
    assert find(replace(all_seen, processes=(*waits, blocked, unread), size=5)).sure == 0.75
    assert find(replace(all_seen, left_out=1)).sure == 0.75
    finding = find(replace(all_seen, processes=(*waits, replace(unread, rank=3))))
    assert finding.sentence == "3 of 4 ranks were seen, and all wait in MPI_Allreduce; no message passed in 2 s."
    assert (finding.kind, finding.sure) == ("stalled", 0.75)
