"""Secrets are read from files in one way: with a limit, and with an error that names the file but not its content."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from clustertwin.cli import endpoint
from clustertwin.core.errors import SettingsError
from clustertwin.core.foreign_files import MOST_SECRET_BYTES, read_secret
from clustertwin.service.act.evidence_sources import HelperSettings, from_helpers
from clustertwin.service.act.slurm_rest import RestSettings, SlurmRest
from clustertwin.service.live.feeds.source_setup import SourceSettings


def by_option(path: Path) -> None:
    endpoint.build("http://h:1", SimpleNamespace(username="", password_file=path, token_file=None, ca_file=None))


def by_source(path: Path) -> None:
    SourceSettings("exporters", token_file=str(path)).endpoint("http://h:1")


def by_helpers(path: Path) -> None:
    from_helpers(HelperSettings("https://{node}:1", password_file=str(path)))


def by_slurm(path: Path) -> None:
    SlurmRest(RestSettings("http://localhost:1", token_file=str(path)))(["squeue"])


UNUSABLE = {
    "not a text: byte 6 is not UTF-8": b"secret\xff",
    "longer than": b"secret" * MOST_SECRET_BYTES,
    "the file is empty": b" \n",
    "No such file": None,
}


@pytest.mark.parametrize("read", [by_option, by_source, by_helpers, by_slurm])
@pytest.mark.parametrize("reason", UNUSABLE)
def test_an_unusable_file_is_one_sentence_without_its_content(tmp_path, read, reason):
    """Two of the four readers had no limit, and a file that is no text ended two of them with a traceback."""
    path, content = tmp_path / "token", UNUSABLE[reason]
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(SettingsError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: {reason}")
    assert "secretsecret" not in str(caught.value)
    assert "0xff" not in str(caught.value)


def test_white_space_around_a_secret_is_no_part_of_it(tmp_path):
    (tmp_path / "token").write_text("  word\n")
    assert read_secret(tmp_path / "token") == "word"


def test_a_secret_comes_from_a_pipe(tmp_path):
    """As in --token-file <(secret-tool lookup …)."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("word\n",), daemon=True)
    writer.start()
    assert read_secret(pipe) == "word"
    writer.join()


def test_a_secret_lies_below_the_home_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "token").write_text("word")
    assert read_secret("~/token") == "word"


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_private_secret_that_others_can_read_is_refused(tmp_path, mode):
    path = tmp_path / "token"
    path.write_text("word")
    path.chmod(mode)
    with pytest.raises(SettingsError, match="run chmod 600"):
        read_secret(path, private=True)
