"""The end of `twin serve`: a thread that hangs keeps the process for a while only."""

from __future__ import annotations

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
