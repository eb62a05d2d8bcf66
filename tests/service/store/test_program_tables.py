"""What is usual for programs survives a restart and a kill; a file that cannot be used is named and stops nothing."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tests.service.conftest import Clock

from clustertwin.core.channels import CPU
from clustertwin.core.errors import InputError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.store import backup, program_tables
from clustertwin.service.store.home_check import check_home
from clustertwin.service.store.home_format import HomeFormatError, create_home
from clustertwin.service.store.program_tables import (
    FILE,
    LONGEST_NAME,
    MOST_BYTES,
    MOST_NAMES,
    MOST_STORED_RUNS,
    SAVE_S,
    ProgramTables,
    read_tables,
    tables_document,
)
from clustertwin.telemetry.detection.questions.job_parts import SIGNALS
from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory
from clustertwin.telemetry.detection.questions.usual import NO_RUNS, ProgramUsual
from clustertwin.telemetry.ingest.rates import Faults

N = len(SIGNALS)


def usual(*levels: float) -> ProgramUsual:
    """One run for each level; its last signal is unknown."""
    table = NO_RUNS
    for level in levels:
        run = np.full((4, N), level, np.float32)
        run[:, -1] = np.nan
        table = table.add(run)
    return table


def memory_of(programs: dict[str, ProgramUsual], users: dict[str, ProgramUsual] | None = None) -> QuestionMemory:
    memory = QuestionMemory(programs=programs, users=users)
    memory.learnt_runs = sum(table.total for table in programs.values())
    return memory


def document(**changes: object) -> bytes:
    content = json.loads(tables_document({"solver": usual(0.25)}, {"ada": usual(0.5)}))
    return json.dumps({**content, **changes}).encode()


def with_row(**changes: object) -> bytes:
    row = json.loads(document())["programs"]["solver"]
    return document(programs={"solver": {**row, **changes}})


def test_tables_survive_their_file(tmp_path):
    memory = memory_of({"solver": usual(0.25, 0.5), "other": usual(0.75)}, {"ada": usual(0.125)})
    ProgramTables(tmp_path).save(memory, now=True)
    programs, users = ProgramTables(tmp_path).load()
    assert list(programs) == ["solver", "other"]  # the one that was learnt from last is last
    assert [table.total for table in programs.values()] == [2, 1]
    for name, table in programs.items():
        np.testing.assert_array_equal(table.runs, memory.programs[name].runs)
    np.testing.assert_array_equal(users["ada"].runs, memory.users["ada"].runs)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_the_file_is_bounded_and_keeps_what_is_newest(tmp_path):
    many = {f"p{i}": usual(0.5) for i in range(MOST_NAMES + 10)}
    many["often"] = usual(*(i / 64 for i in range(32)))
    many["x" * (LONGEST_NAME + 1)] = many["\ud800"] = many[""] = usual(0.5)
    (tmp_path / FILE).write_bytes(tables_document(many, {}))
    programs, users = read_tables(tmp_path / FILE)
    assert list(programs) == [*(f"p{i}" for i in range(11, MOST_NAMES + 10)), "often"]
    assert programs["often"].total == 32
    newest = [i / 64 for i in range(32)][-MOST_STORED_RUNS:]
    np.testing.assert_allclose(programs["often"].runs[:, 0, 0], newest, atol=1e-5)
    assert users == {}
    assert (tmp_path / FILE).stat().st_size < MOST_BYTES / 4


def test_it_is_written_only_when_something_was_learnt_and_at_most_every_few_minutes(tmp_path):
    clock = Clock(1000.0)
    tables, memory = ProgramTables(tmp_path, clock), QuestionMemory()
    tables.load()
    clock.now_s += SAVE_S
    tables.save(memory)
    assert not (tmp_path / FILE).exists()
    memory.programs["a"], memory.learnt_runs = usual(0.5), 1
    tables.save(memory)
    assert list(read_tables(tmp_path / FILE)[0]) == ["a"]
    memory.programs["b"], memory.learnt_runs = usual(0.5), 2
    clock.now_s += SAVE_S - 1
    tables.save(memory)
    assert list(read_tables(tmp_path / FILE)[0]) == ["a"]
    clock.now_s += 1
    tables.save(memory)
    assert list(read_tables(tmp_path / FILE)[0]) == ["a", "b"]


def test_signals_of_another_release_are_matched_by_name(tmp_path):
    content = json.loads(document())
    content["signals"] = [*SIGNALS[1:], "of another release"]
    (tmp_path / FILE).write_text(json.dumps(content))
    programs, _ = read_tables(tmp_path / FILE)
    np.testing.assert_array_equal(programs["solver"].runs[0, 0, :3], [np.nan, 0.25, 0.25])


HOSTILE = {
    "empty": b"",
    "not UTF-8": b"\xff\xfe{\x00",
    "another document": b'{"format": 1}',
    "a list": b"[]",
    "null": b"null",
    "cut": document()[:-40],
    "deep": b"[" * 100_000,
    "a version that is none": document(version="1"),
    "version 0": document(version=0),
    "no users": json.dumps({k: v for k, v in json.loads(document()).items() if k != "users"}).encode(),
    "programs are a list": document(programs=[1]),
    "signals twice": document(signals=["user"] * N),
    "signals of another number": document(signals=list(SIGNALS)[:-1]),
    "signals are no names": document(signals=[[]] * N),
    "runs are a text": with_row(runs="abc"),
    "no runs": with_row(runs=[]),
    "ragged runs": with_row(runs=[[[0.5] * N] * 4, [[0.5] * N] * 3]),
    "endless numbers": document().replace(b"0.25", b"1e999"),
    "huge numbers": document().replace(b"0.25", b"1" + b"0" * 400),
    "large numbers": document().replace(b"0.25", b"1e7"),
    "a negative total": with_row(total=-1),
    "fewer than it has": with_row(total=0),
    "a total that is none": with_row(total=True),
    "a long name": document(users={"x" * 1000: json.loads(document())["users"]["ada"]}),
    "half a character": document(users={"\ud800": json.loads(document())["users"]["ada"]}),
    "many names": document(users={f"u{i}": {} for i in range(MOST_NAMES + 1)}),
}


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in HOSTILE.items()])
def test_a_file_that_cannot_be_used_is_named_set_aside_and_learnt_again(tmp_path, data):
    home = create_home(tmp_path / "home")
    (home / FILE).write_bytes(data)
    tables = ProgramTables(home, wall_clock=lambda: 0.0)
    assert tables.load() == ({}, {})
    assert "what is usual for programs is learnt again" in tables.problem
    assert (home / "set-aside/19700101T000000" / FILE).read_bytes() == data
    tables.save(memory_of({"solver": usual(0.5)}), now=True)
    assert tables.problem == ""
    assert list(read_tables(home / FILE)[0]) == ["solver"]


@pytest.mark.parametrize("kind", ["fifo", "directory", "too large", "no right to read", "a link to itself"])
def test_a_file_that_is_no_file_stops_nothing(tmp_path, monkeypatch, kind):
    home = create_home(tmp_path / "home")
    path = home / FILE
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "too large":
        with path.open("wb") as file:
            file.truncate(MOST_BYTES + 1)
    elif kind == "a link to itself":
        path.symlink_to(path)
    else:
        path.write_bytes(document())

        def refuse(path: Path, most_bytes: int) -> bytes:  # root may read everything
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        monkeypatch.setattr(program_tables, "read_regular", refuse)
    tables = ProgramTables(home)
    assert tables.load() == ({}, {})
    assert FILE in tables.problem
    assert [found.part for found in check_home(home) if not found.ok] == []  # it was set aside


def test_a_file_of_a_newer_release_stays_as_it_is(tmp_path):
    home = create_home(tmp_path / "home")
    newer = document(version=2, written_by="clustertwin 9.0")
    (home / FILE).write_bytes(newer)
    tables = ProgramTables(home)
    assert tables.load() == ({}, {})
    assert "clustertwin 9.0 wrote this with format 2" in tables.problem
    tables.save(memory_of({"solver": usual(0.5)}), now=True)
    assert (home / FILE).read_bytes() == newer
    with pytest.raises(HomeFormatError):
        read_tables(home / FILE)
    (found,) = [found for found in check_home(home, repair=True) if not found.ok]
    assert found.part == FILE
    assert (home / FILE).read_bytes() == newer


def test_a_disk_that_refuses_the_file_is_a_problem_until_it_takes_it(tmp_path):
    tables, memory = ProgramTables(tmp_path / "home"), memory_of({"solver": usual(0.5)})
    tables.save(memory, now=True)
    assert "what is usual for programs is not stored" in tables.problem
    (tmp_path / "home").mkdir()
    tables.save(memory, now=True)
    assert tables.problem == ""
    assert list(read_tables(tmp_path / "home" / FILE)[0]) == ["solver"]


def test_the_doctor_counts_the_tables_and_moves_a_damaged_file_away(tmp_path):
    home = create_home(tmp_path / "home")
    (home / FILE).write_bytes(document())
    assert {found.part: found.detail for found in check_home(home)}[FILE] == "tables of 1 programs and 1 users"
    (home / FILE).write_bytes(b"{}")
    assert [found.part for found in check_home(home) if not found.ok] == [FILE]
    assert all(found.ok for found in check_home(home, repair=True))
    assert not (home / FILE).exists()


def test_a_backup_has_the_tables(tmp_path):
    home = create_home(tmp_path / "home")
    (home / FILE).write_bytes(document())
    backup.back_up(home, tmp_path / "b.tar")
    backup.restore(tmp_path / "b.tar", tmp_path / "restored")
    assert list(read_tables(tmp_path / "restored" / FILE)[0]) == ["solver"]


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_writes_leaves_whole_tables(tmp_path):
    code = f"""
    from pathlib import Path
    from tests.service.store.test_program_tables import memory_of, usual
    from clustertwin.service.store.program_tables import ProgramTables
    tables, runs = ProgramTables(Path({str(tmp_path)!r})), 0
    memory = memory_of({{f"p{{i}}": usual(*[0.5] * 8) for i in range(300)}})
    while True:
        memory.learnt_runs += 1
        memory.programs["counter"] = usual(*[0.5] * (memory.learnt_runs % 8 + 1))
        tables.save(memory, now=True)
        print("saved", flush=True)
    """
    for saves in (1, 3):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, env={**os.environ}
        ) as writes:
            assert writes.stdout is not None
            for _ in range(saves):
                assert writes.stdout.readline() == b"saved\n"
            writes.send_signal(signal.SIGKILL)
        tables = ProgramTables(tmp_path)
        programs, _ = tables.load()
        assert tables.problem == ""
        assert len(programs) == 301


class NamedJobs:
    """A feed of one node whose two threads run a job of one program after the other, four minutes each."""

    source, pace, patient, faults, problems = "test", 1.0, False, Faults(), ()

    def __init__(self, clock: Clock) -> None:
        self.clock, self.begin_s = clock, int(clock.now_s)

    def now_s(self) -> float:
        return self.clock.now_s

    def take(self) -> list[Trace]:
        start_s = int(self.clock.now_s) - 1
        number = (start_s - self.begin_s) // 240
        values = np.zeros((2, 1, 4), np.float32)
        values[..., 0] = 1.0
        first_s = self.begin_s + 240 * number
        span = JobSpan(str(number), "n1", (0, 1), first_s, first_s + 240, name="solver", user="ada")
        return [Trace("n1", (0, 1), start_s, CPU, values, np.ones((2, 1), np.bool_), (span,))]

    def close(self) -> None:
        pass


def run_for(loop, clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        clock.now_s += 1
        loop.turn()


@pytest.mark.slow
def test_a_service_that_is_killed_knows_its_programs_after_the_restart(loop_of, state, clock):
    clock.now_s = 1_700_000_000.0
    feed = NamedJobs(clock)
    killed = loop_of(feed, clock=clock)
    run_for(killed, clock, 1200)
    assert killed._questions.programs["ada/solver"].total >= 3  # and no more is asked of it: it does not close
    loop = loop_of(feed, clock=clock)
    run_for(loop, clock, 150)
    assert loop._questions.programs["ada/solver"].total >= 3
    assert loop._questions.users["ada"].total >= 3
    assert not any("usual for programs" in problem for problem in state.snapshot.problems)


def test_a_service_with_a_damaged_file_names_it_and_goes_on(loop_of, state, clock):
    clock.now_s = 1_700_000_000.0
    state.home.mkdir(exist_ok=True)
    (state.home / FILE).write_bytes(b"\xff")
    loop = loop_of(NamedJobs(clock), clock=clock)
    run_for(loop, clock, 150)
    assert any("what is usual for programs is learnt again" in problem for problem in state.snapshot.problems)
    assert state.snapshot.phase == "watching"


def test_a_replay_neither_reads_nor_writes_the_tables(loop_of, state, clock):
    clock.now_s = 1_700_000_000.0
    state.home.mkdir(exist_ok=True)
    (state.home / FILE).write_bytes(document())
    state.replayed = True
    loop = loop_of(NamedJobs(clock), clock=clock)
    run_for(loop, clock, 150)
    assert loop._questions.programs == {}
    loop._store_usual(now=True)
    assert (state.home / FILE).read_bytes() == document()


def test_an_unreadable_path_is_an_input_error(tmp_path: Path):
    with pytest.raises(InputError):
        read_tables(tmp_path)
