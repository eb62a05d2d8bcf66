"""Forecasts of starts in the service: a process with a budget, a board with its age, and a record of its own errors."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clustertwin.core.errors import SourceError
from clustertwin.core.job_health import JobHealth
from clustertwin.service.live.queue import start_watch
from clustertwin.service.live.queue.queue_settings import QueueSettings
from clustertwin.service.live.queue.start_board import StartBoard, StartJudge, waiting_jobs
from clustertwin.service.live.queue.start_watch import StartWatch, run_twin


def row(job: str, p10_s: float, likeliest_s: float, p90_s: float) -> dict[str, Any]:
    return {
        "job": job, "user": "ann", "p10_s": p10_s, "p50_s": likeliest_s, "p90_s": p90_s, "likeliest_s": likeliest_s,
        "by_limits_s": 900.0, "within_s": 3600.0, "within_probability": 1.0, "futures": 20, "basis": "user",
    }  # fmt: skip


def document(asked_s: float, waiting: Sequence[dict[str, Any]], **running: float) -> dict[str, Any]:
    return {
        "asked_s": asked_s, "held": 1, "starts": list(waiting), "not_used": ["a note"],
        "running_jobs": [{"job": job.removeprefix("j"), "elapsed_s": elapsed_s} for job, elapsed_s in running.items()],
    }  # fmt: skip


def test_the_first_forecast_of_a_job_is_judged_when_the_job_runs():
    judge = StartJudge()
    judge.look(document(1000.0, [row("1", 100, 200, 400), row("2", 10, 20, 30), row("3", 0, 0, 5)]))
    # The later forecast of job 1 would be right to the second; the first one counts, and misses by 100 s.
    judge.look(document(1100.0, [row("1", 190, 200, 210), row("2", 5, 10, 20)], j3=98.0))
    record = judge.look(document(1400.0, [], j1=100.0, j3=398.0))
    assert (record.forecasts, record.judged, record.lost) == (3, 2, 1)  # job 2 was never seen running
    assert record.within_minute_ratio == 0.5  # job 3 started two seconds after 1000, job 1 at 1300 instead of 1200
    assert record.interval_ratio == 1.0  # 1100 to 1400, and 1000 to 1005


def test_a_start_outside_of_the_interval_is_counted_as_one():
    judge = StartJudge()
    judge.look(document(1000.0, [row("1", 10, 20, 30)]))
    record = judge.look(document(1060.0, [], j1=20.0))  # 40 s after the question
    assert (record.within_minute_ratio, record.interval_ratio) == (1.0, 0.0)


def test_intervals_widen_by_what_the_judged_forecasts_missed():
    """Jobs start 600 s after a question that said 90 to 110 s: after 20 of them the interval reaches 600 s."""
    judge = StartJudge()
    for k in range(24):
        judge.look(document(1000.0 * k, [row(str(k), 90, 100, 110)]))
        record = judge.look(document(1000.0 * k + 700.0, [], **{f"j{k}": 100.0}))
    assert record.interval_ratio == 4 / 24
    (wide,) = judge.widened(waiting_jobs(document(0.0, [row("x", 90, 100, 110)])))
    assert wide.p10_s == 600.0  # no job starts earlier
    assert wide.p90_s == 600.0
    (other,) = judge.widened(waiting_jobs(document(0.0, [row("x", 1000, 2000, 3000)])))
    assert other.p90_s > 3000


def test_a_failed_forecast_keeps_the_last_one_and_says_why():
    boards: list[StartBoard] = []
    answers = iter([json.dumps(document(1000.0, [row("1", 10, 20, 30)])), SourceError("squeue did not answer"), "[]"])

    def run(arguments: Sequence[str], budget_s: float) -> str:
        answer = next(answers)
        if isinstance(answer, SourceError):
            raise answer
        return answer

    starts = StartWatch(QueueSettings(past="log.swf"), boards.append, run)
    for _ in range(3):
        starts.turn()
    assert [board.asked_s for board in boards] == [1000.0] * 3
    assert (boards[0].problem, boards[0].held, boards[0].notes) == ("", 1, ("a note",))
    assert boards[1].problem == "no forecast of starts: squeue did not answer"
    assert "cannot be read" in boards[2].problem
    assert boards[2].age_s(1060.0) == 60.0


def test_the_first_forecast_may_compile_and_later_ones_have_the_budget():
    budgets: list[float] = []
    answers = iter([SourceError("no"), "ok", "ok"])

    def run(arguments: Sequence[str], budget_s: float) -> str:
        budgets.append(budget_s)
        answer = next(answers)
        if isinstance(answer, SourceError):
            raise answer
        return json.dumps(document(1000.0, []))

    starts = StartWatch(QueueSettings(past="log.swf", budget_s=30.0), lambda board: None, run)
    for _ in range(3):
        starts.turn()
    assert budgets == [900.0, 900.0, 30.0]


def test_the_command_names_only_what_is_configured():
    command = QueueSettings(site="/etc/slurm", futures=5).command()
    assert command == ["sched", "start", "--json", "--futures", "5", "--hours", "24", "--site", "/etc/slurm"]
    assert not QueueSettings().on


def test_jobs_that_hang_by_their_evidence_are_part_of_the_question():
    asked: list[list[str]] = []

    def run(arguments: Sequence[str], budget_s: float) -> str:
        asked.append(list(arguments))
        return json.dumps(document(1000.0, []))

    known = {"42": JobHealth("42", True, 0.97), "43": JobHealth("43", False, 1.0)}
    for settings in (QueueSettings(past="log.swf"), QueueSettings(site="/etc/slurm")):
        StartWatch(settings, lambda board: None, run, health=lambda: known).turn()
    assert asked[0][-2:] == ["--hangs", "42=0.970"]
    assert "--hangs" not in asked[1]  # without a past all jobs run to their limits


@pytest.mark.medium
def test_a_forecast_is_ended_when_its_budget_is_used_up(monkeypatch, tmp_path: Path):
    (tmp_path / "clustertwin").mkdir()
    (tmp_path / "clustertwin" / "__init__.py").touch()
    (tmp_path / "clustertwin" / "__main__.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="longer than its budget of 1 s"):
        run_twin([], 1.0)


@pytest.mark.slow
def test_twin_answers_in_a_process_of_its_own(monkeypatch, tmp_path: Path):
    """A program called squeue answers as Slurm would; the rest is real but for its priority.

    Beside eight busy processes, the lowest priority gets a five-hundredth of a CPU where sessions do not share it out.
    """
    (tmp_path / "nice").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    (tmp_path / "nice").chmod(0o755)
    programs = {
        "squeue": "11|ann|RUNNING|8|1|1:00:00|10:00|None\\n12|bo|PENDING|8|1|30:00|0:00|Resources\\n",
        "sinfo": "8/0/0/8\\n",
    }
    for name, answer in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '{answer}'\n")
        (tmp_path / name).chmod(0o755)
    jobs = "".join(f"{k} {60 * k} 0 600 8 -1 -1 8 1800 -1 1 1 1 -1 -1 -1 -1 -1\n" for k in range(1, 40))
    (tmp_path / "past.swf").write_text(f"; MaxProcs: 8\n{jobs}")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    boards: list[StartBoard] = []
    settings = QueueSettings(past=str(tmp_path / "past.swf"), budget_s=300.0, futures=3, hours=0.0)
    StartWatch(settings, boards.append).turn()
    (board,) = boards
    assert board.problem == ""
    assert [job.job for job in board.waiting] == ["12"]
    (tmp_path / "squeue").write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
    with pytest.raises(SourceError, match="no controller"):
        start_watch.run_twin(settings.command(), 300.0)


def test_a_machine_that_can_start_no_process_is_one_sentence(monkeypatch):
    """It ended the thread of forecasts, and was an error 500 on /try."""

    def refuse(*args, **options):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    with pytest.raises(SourceError, match="no process can be started: Resource temporarily unavailable"):
        run_twin(["sched", "start"], 5.0)
