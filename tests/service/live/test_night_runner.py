"""Nightly learning: when it runs, for which day, how often, and how its process ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from datetime import datetime, time
from time import sleep
from zoneinfo import ZoneInfo

import httpx
import pytest
from tests.servers import document

from clustertwin.core.errors import SettingsError
from clustertwin.service.config import LearningSection, RecordingSection, ServiceConfig, SourceSection
from clustertwin.service.live.beside.night_runner import (
    LOG,
    NightlySchedule,
    due_s,
    execute,
    last_begun_s,
    learn,
    noted,
    shorten,
    tell_registry,
    watch,
)
from clustertwin.service.live.beside.side_work import fence_of
from clustertwin.service.live.problems import nights
from clustertwin.service.serving import _nightly
from clustertwin.telemetry.learning.champions.fencing_lock import Busy
from clustertwin.telemetry.learning.night.calendar_day import Day

ZONE = ZoneInfo("Europe/Berlin")
HALF_PAST_TWO = time(2, 30)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZONE).timestamp()


def lived(start: str, *looks: str) -> list[str]:
    """The days for which a service that starts at `start` and checks at these times runs a night."""
    days: list[str] = []
    nightly = NightlySchedule(HALF_PAST_TWO, lambda day: days.append(day.name), at(start), ZONE)
    for look in looks:
        nightly.check(at(look))
    return days


@pytest.mark.parametrize(
    ("looks", "days"),
    [
        (("2026-11-15 23:59", "2026-11-16 02:29:59", "2026-11-16 02:30", "2026-11-16 02:31"), ["2026-11-15"]),
        (("2026-11-16 02:30", "2026-11-16 23:00", "2026-11-17 02:31"), ["2026-11-15", "2026-11-16"]),
        # Suspended over the hour: the missed night runs, then the next one.
        (("2026-11-16 01:00", "2026-11-17 01:00", "2026-11-17 02:30"), ["2026-11-15", "2026-11-16"]),
        (("2026-11-20 08:00", "2026-11-20 08:01"), ["2026-11-19"]),
        # The clock is set back over the hour and passes it again.
        (("2026-11-16 02:31", "2026-11-16 02:10", "2026-11-16 02:31"), ["2026-11-15"]),
        # The clock is a year ahead and is set back: the next day still gets its night.
        (("2027-11-16 12:00", "2026-11-16 12:00", "2026-11-17 02:30"), ["2027-11-15", "2026-11-16"]),
    ],
)
def test_each_night_is_run_once_when_the_clock_passes_its_hour(looks, days):
    assert lived("2026-11-15 20:00", *looks) == days


def test_a_service_that_starts_after_the_hour_waits_for_the_next():
    assert lived("2026-11-15 09:00", "2026-11-15 09:01", "2026-11-15 23:59") == []


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_the_hour_passes_once_when_daylight_saving_time_changes(day):
    """02:30 does not exist in March, and exists twice in October."""
    start_s = at(f"{day} 00:00")
    assert len({due_s(start_s + minute * 60, HALF_PAST_TWO, ZONE) for minute in range(24 * 60)}) == 2


def test_a_new_home_has_missed_no_night_and_an_old_one_those_since_its_last(tmp_path):
    assert last_begun_s(tmp_path, 1000.0) == 1000.0
    os.utime(tmp_path / LOG, (400, 400))
    assert last_begun_s(tmp_path, 1000.0) == 400.0
    os.utime(tmp_path / LOG, (2000, 2000))  # the clock was ahead when the log was written
    assert last_begun_s(tmp_path, 1000.0) == 1000.0


BEGUN = "2026-11-16 02:30:04 -m clustertwin learn run --home home --day 2026-11-15\n"


@pytest.mark.parametrize(
    ("log", "resumed"),
    [
        (BEGUN, True),  # the machine or the service crashed
        (f"{BEGUN}exit code -15\n", True),  # the service was stopped
        (f"{BEGUN}exit code -15\n{BEGUN}", True),
        (f"{BEGUN}exit code 0\n", False),
        (f"{BEGUN}exit code 1\n", False),  # it failed, which is a problem of its own
        (f"{BEGUN}exit code -2\n", False),  # a person pressed Ctrl-C
        (3 * BEGUN, False),  # it may be why the service ends
        (f"{3 * BEGUN}exit code 1\n{BEGUN}", True),
        ("", False),
        ("exit code -15\n", False),  # the beginning is before the part of the log that is read
        (f"exit code {'9' * 5000}\n", False),
    ],
)
def test_a_night_that_ended_with_the_service_is_resumed_by_the_next_service(tmp_path, log, resumed):
    """The day of a night that a restart interrupted was never learned."""
    (tmp_path / LOG).write_text(log)
    os.utime(tmp_path / LOG, (at("2026-11-16 02:33"),) * 2)
    days: list[str] = []
    since_s = last_begun_s(tmp_path, at("2026-11-16 02:35"))
    nightly = NightlySchedule(HALF_PAST_TWO, lambda day: days.append(day.name), since_s, ZONE)
    nightly.check(at("2026-11-16 02:35"))
    assert days == (["2026-11-15"] if resumed else [])


@pytest.mark.medium
def test_a_night_runs_at_low_priority_and_its_output_and_exit_code_are_logged(tmp_path):
    code = "import os; print('niceness', os.nice(0)); raise SystemExit(75)"
    assert execute([sys.executable, "-c", code], tmp_path / LOG, threading.Event()) == 75
    assert (tmp_path / LOG).read_text().splitlines()[1:] == ["niceness 19", "exit code 75"]


def test_the_night_stops_with_the_service(tmp_path):
    stop = threading.Event()
    stop.set()
    assert execute([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / LOG, stop) == -15


def test_a_log_that_cannot_be_written_raises_nothing(tmp_path):
    assert execute([sys.executable, "-c", ""], tmp_path / "nowhere" / LOG, threading.Event()) is None


def test_a_night_that_cannot_be_started_is_named_and_tried_again(tmp_path):
    """If the disk was full at its hour, its day was not learned, and nobody was told."""
    (tmp_path / LOG).symlink_to("/dev/full")
    stop, problems, days = threading.Event(), {}, []
    run, fence = learn(tmp_path, [], stop), fence_of(problems, "nightly learning")

    def night(day: Day) -> None:
        run(day)
        days.append(day.name)

    nightly = NightlySchedule(HALF_PAST_TWO, night, at("2026-11-16 02:00"), ZONE)
    for look in ("2026-11-16 02:31", "2026-11-16 02:32"):
        with fence():
            nightly.check(at(look))
    assert "the night of 2026-11-15 cannot be started: is the disk full?" in problems["nightly learning"]
    (tmp_path / LOG).unlink()
    stop.set()  # its process is stopped at once
    for look in ("2026-11-16 09:00", "2026-11-16 09:01"):
        with fence():
            nightly.check(at(look))
    assert (days, problems) == (["2026-11-15"], {})


def test_a_night_runs_the_command_for_its_home_and_day(tmp_path):
    stop, times = threading.Event(), iter([at("2026-11-16 02:29"), at("2026-11-16 02:31")])

    def night(day: Day) -> None:
        stop.set()  # stop the process at once: the test only reads its line in the log
        learn(tmp_path, ["--match", "a"], stop)(day)

    watch(NightlySchedule(HALF_PAST_TWO, night, at("2026-11-16 02:00"), ZONE), stop, lambda: next(times), check_s=0)
    first = (tmp_path / LOG).read_text().splitlines()[0]
    assert first.endswith(f"-m clustertwin learn run --home {tmp_path} --day 2026-11-15 --match a")


def test_a_failed_night_that_a_timer_started_is_logged_too(tmp_path):
    day = Day("2026-11-15", 0, 86_400)
    with pytest.raises(SettingsError), noted(tmp_path, day):
        raise SettingsError("no recordings below recording")
    (problem,) = nights(tmp_path)
    assert problem.startswith(
        "learning failed in the night of 2026-11-15: no recordings below recording. The champion stays in service."
    )
    with pytest.raises(ZeroDivisionError), noted(tmp_path, day):
        raise ZeroDivisionError("by zero")
    assert "in the night of 2026-11-15: ZeroDivisionError: by zero" in nights(tmp_path)[0]
    with pytest.raises(Busy), noted(tmp_path, day):
        raise Busy("another retrainer is at work")
    assert nights(tmp_path) == ()
    with noted(tmp_path, day):
        pass
    assert (tmp_path / LOG).read_text().count("exit code 0") == 1


@pytest.mark.slow
def test_a_night_that_the_service_started_is_logged_once(tmp_path):
    day, code = "Day('2026-11-15', 0, 86_400)", "with noted(Path(home), day): raise SettingsError('no recordings')"
    imports = (
        "from pathlib import Path; from clustertwin.core.errors import SettingsError; "
        "from clustertwin.service.live.beside.night_runner import noted; "
        "from clustertwin.telemetry.learning.night.calendar_day import Day"
    )
    command = [sys.executable, "-c", f"{imports}; home, day = {str(tmp_path)!r}, {day}\n{code}"]
    assert execute(command, tmp_path / LOG, threading.Event()) == 1
    lines = (tmp_path / LOG).read_text().splitlines()
    assert lines[-2:] == ["clustertwin.core.errors.SettingsError: no recordings", "exit code 1"]
    assert lines.count("exit code 1") == 1


def test_a_home_without_mlflow_has_no_registry_to_update(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tell_registry(tmp_path) is None


def _until_it_answers(url: str) -> None:
    for _ in range(100):
        with contextlib.suppress(httpx.TransportError):
            httpx.get(url)
            return
        sleep(0.1)
    raise AssertionError(f"{url} does not answer")


@pytest.mark.real
def test_a_terminated_service_exits_with_zero(tmp_path):
    """The exit code is 0, not -15: the loop has stored its events, and the night is stopped."""
    command = [sys.executable, "-m", "clustertwin", "up", "--port", "0", "--no-browser", "--home", tmp_path, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _until_it_answers(document(process.stdout)["url"])
        process.terminate()
        _, wrong = process.communicate(timeout=120)
    assert (process.returncode, wrong) == (0, "")


@pytest.mark.parametrize(
    "config",
    [
        ServiceConfig(source=SourceSection(kind="exporters", urls=("http://n01",))),
        ServiceConfig(recording=RecordingSection(on=False)),
    ],
)
def test_nightly_learning_without_stored_data_is_refused_at_start(config, state):
    wanted = config.model_copy(update={"learning": LearningSection(nightly="02:30")})
    assert _nightly(config, state, threading.Event()) is None
    with pytest.raises(SettingsError, match="the data of the day is not stored"):
        _nightly(wanted, state, threading.Event())


def test_a_long_log_keeps_its_last_lines(tmp_path):
    log = tmp_path / "nights.log"
    log.write_text("".join(f"line {i:04d}\n" for i in range(1000)))  # 10 bytes each
    shorten(log, None)
    shorten(log, 10_000)
    assert log.stat().st_size == 10_000
    shorten(log, 9_999)
    lines = log.read_text().splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("line 0501", "line 0999", 499)
    shorten(tmp_path / "absent", 5)
