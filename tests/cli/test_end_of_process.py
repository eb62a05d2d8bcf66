"""The end of a process: a thread that hangs keeps it for a while only, and standard streams may be unusable."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: What a service is like whose Ray never answered: Python waits for the threads of pools when it ends.
HANGS = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import clustertwin.cli as cli

def hang():
    ThreadPoolExecutor(1).submit(threading.Event().wait)
    sys.exit({code})

cli.LINGER_S, cli._main = 0.1, hang
sys.argv = ["twin", "serve"]
cli.process()
"""


@pytest.mark.medium
@pytest.mark.parametrize(("code", "status"), [("0", 0), ("None", 0), ("3", 3), ("'the port is in use'", 1)])
def test_a_thread_that_hangs_does_not_keep_a_service_that_was_stopped(code: str, status: int) -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS.format(code=code)], check=False, timeout=60)
    assert ended.returncode == status


#: Standard streams as a service manager, a full disk or an old terminal gives them, and how the command ends.
STREAMS = {
    "trace generators >&-": (0, ""),
    "trace describe - <&-": (1, "twin: {}: the file is empty"),
    "version >/dev/full": (1, "twin: cannot write the output: No space left on device"),
    "trace generators --json >/dev/full": (1, "twin: cannot write the output: No space left on device"),
}


@pytest.mark.medium
@pytest.mark.parametrize("line", STREAMS)
def test_a_standard_stream_that_is_closed_or_full_is_no_traceback(line: str) -> None:
    command = f"{sys.executable} -m clustertwin {line.replace('version', '--version')}"
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    code, sentence = STREAMS[line]
    assert ended.returncode == code
    before, _, after = sentence.partition("{}")
    assert ended.stderr.startswith(before)
    assert ended.stderr.rstrip("\n").endswith(after)
    assert len(ended.stderr.splitlines()) == bool(sentence)


@pytest.mark.medium
def test_a_terminal_without_a_character_gets_its_number() -> None:
    code = "import clustertwin.cli as cli; cli._main = lambda: print('5 \u2013 6'); cli.process()"
    command, ascii_only = [sys.executable, "-c", code], os.environ | {"PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(command, env=ascii_only, stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "5 \\u2013 6\n")
