"""A long command tells its steps, also into a file."""

import subprocess
import sys

import pytest

from clustertwin.cli.step_progress import StepLines


def test_every_new_step_is_a_line_and_a_long_step_is_repeated():
    now_s, lines = 0.0, []
    steps = StepLines(lines.append, lambda: now_s)
    steps.show("data", 0, 0)
    now_s = 30.0
    steps.show("training", 0, 8)
    steps.show("training", 1, 8)
    now_s = 80.0
    steps.beat(60)
    assert lines == ["0 s: data", "30 s: training, 0 of 8"]
    now_s = 95.0
    steps.beat(60)
    steps.beat(60)
    assert lines[2:] == ["1 min 35 s: training, 1 of 8"]


@pytest.mark.medium
def test_the_heartbeat_ends_with_the_command():
    code = (
        "from clustertwin.cli.step_progress import StepLines\n"
        "import time\n"
        "with StepLines(print).heartbeat(0.05): time.sleep(0.5)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("0 s: starting\n")
    assert done.stderr == ""


@pytest.mark.slow
def test_a_study_that_writes_into_a_file_shows_its_steps(twin, tmp_path):
    done = twin("study", "sampling", "--preset", "quick", "--out", tmp_path / "study", "--json")
    assert done.returncode == 0, done.stderr
    assert [line.partition(": ")[2] for line in done.stderr.splitlines()][:2] == ["data", "sampling"]
