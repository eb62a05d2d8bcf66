"""Programs of others: their output and their exit code, or an error after a limit of bytes or time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from clustertwin.core.foreign_files import read_output


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def test_output_errors_and_the_exit_code_are_returned():
    done = read_output(shell("echo out; echo err >&2; echo $NAME; exit 3"), 1000, 60.0, {"NAME": "x"})
    assert (done.stdout, done.stderr, done.returncode) == (b"out\nx\n", b"err\n", 3)


def test_a_long_output_within_the_budget_is_whole():
    done = read_output([sys.executable, "-c", "print('x' * 3_000_000)"], 4_000_000, 60.0)
    assert len(done.stdout) == 3_000_001


@pytest.mark.parametrize("script", ["exec yes", "exec yes >&2"])
def test_a_program_that_prints_without_end_is_ended_at_the_budget(script):
    with pytest.raises(OSError, match="prints more than 1,000,000 bytes"):
        read_output(shell(script), 1_000_000, 60.0)


@pytest.mark.medium
@pytest.mark.parametrize("script", ["exec sleep 60", "exec >&- 2>&-; exec sleep 60", "sleep 60 & exit"])
def test_a_program_that_hangs_is_given_up(script):
    with pytest.raises(subprocess.TimeoutExpired):
        read_output(shell(script), 1000, 0.2)


def test_a_program_that_is_missing_is_named():
    with pytest.raises(FileNotFoundError):
        read_output(["no-such-program"], 1000, 1.0)
