"""The process of a service whose loop fails in every second: it ends with an error, for its supervisor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SERVICE = """
import sys
from clustertwin.core.errors import TwinError
from clustertwin.service import serving
from clustertwin.service.config import ServiceConfig, ServiceSection, RecordingSection
from clustertwin.service.live import turn_failures
from clustertwin.telemetry.ingest.rates import Faults

class Broken:
    source, pace, patient, faults, problems = "broken", 1.0, False, Faults(), ()
    now_s = staticmethod(lambda: 1000.0)
    take = staticmethod(lambda: 1 / 0)
    close = staticmethod(lambda: None)

turn_failures.GIVE_UP_AFTER = 3
serving.live_feed = lambda *_: Broken()
try:
    serving.run(ServiceConfig(service=ServiceSection(home=sys.argv[1], port=0)))
except TwinError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.mark.slow
def test_a_loop_that_fails_in_every_second_ends_the_process_with_an_error(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", SERVICE, str(tmp_path / "home")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 70, done.stderr
    assert "the loop failed 3 times in a row, the last time with: ZeroDivisionError" in done.stdout
