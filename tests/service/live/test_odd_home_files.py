"""Files of a home that are no files: the loop and the pages name them and go on. Before, a FIFO stopped both."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from clustertwin.core.errors import InputError, OutputError, TwinError
from clustertwin.service import serving
from clustertwin.service.live.feeds.source_setup import SourceSettings
from clustertwin.service.live.problems import problems
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.home_format import open_home
from clustertwin.telemetry.learning.champions.champion_store import read_champion
from clustertwin.telemetry.learning.champions.learning_state import parse_state, read_state
from clustertwin.telemetry.learning.champions.shadow import read_shadow
from clustertwin.telemetry.learning.champions.version_store import versions


def ends(call):
    """The result or the error of a call that must not block."""
    result = []

    def run() -> None:
        try:
            result.append(call())
        except TwinError as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert result, "it blocks"
    return result[0]


@pytest.mark.parametrize(
    ("name", "read"), [("champion.json", read_champion), ("learning.json", read_state), ("format.json", open_home)]
)
def test_a_fifo_in_a_home_is_refused(tmp_path, name, read):
    os.mkfifo(tmp_path / name)
    error = ends(lambda: read(tmp_path))
    assert isinstance(error, InputError)
    assert "not a regular file" in str(error)


def test_a_fifo_as_champion_does_not_stop_the_shadow(tmp_path):
    os.mkfifo(tmp_path / "champion.json")
    assert ends(lambda: read_shadow(tmp_path)).on


def test_a_fifo_as_log_of_the_nights_does_not_stop_the_pages(state):
    state.home.mkdir(exist_ok=True)
    os.mkfifo(state.home / "nights.log")
    assert ends(lambda: problems(state)) == ()


def test_a_fifo_beside_a_model_is_named(tmp_path):
    (tmp_path / "models" / "v1").mkdir(parents=True)
    os.mkfifo(tmp_path / "models" / "v1" / "model.json")
    assert "not a regular file" in str(ends(lambda: versions(tmp_path)))


@pytest.mark.parametrize(
    "text",
    [
        '{"ended_s": "x"}', '{"frozen": 5}', '{"halted": {"reason": 1, "day": "", "since_s": 0}}', "[" * 100_000,
        '{"shadow_ended_s": "a"}', '{"shadow_hours": []}', '{"because": null}', '{"night": "\\ud800"}', '{"halted": 7}',
    ],
)  # fmt: skip
def test_a_learning_state_of_other_types_is_refused(text):
    with pytest.raises(InputError, match="not a learning state"):
        parse_state(text)


def test_a_service_starts_although_it_cannot_note_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash on a full disk it ended at once, until there was room again, and nobody watched."""

    def full(*_: object) -> None:
        raise OutputError("source.json: cannot write: No space left on device")

    monkeypatch.setattr(serving, "write_source", full)
    state = ServiceState(tmp_path, None)  # type: ignore[arg-type]
    serving._remember_source(state, SourceSettings())
    assert "No space left on device" in problems(state)[0]
