"""The retrainers' lock and its fencing tokens."""

import subprocess
import sys
import time

import pytest

from clustertwin.core.errors import InputError
from clustertwin.telemetry.learning.champions.fencing_lock import Busy, next_fence, retrainer_lock


def test_tokens_grow(tmp_path):
    with retrainer_lock(tmp_path) as first:
        pass
    with retrainer_lock(tmp_path) as second:
        assert next_fence(tmp_path) > second > first


def test_a_second_retrainer_is_refused_and_can_try_later(tmp_path):
    with retrainer_lock(tmp_path), pytest.raises(Busy, match="another retrainer") as refused, retrainer_lock(tmp_path):
        pass
    assert refused.value.exit_code == 75
    with retrainer_lock(tmp_path):
        pass


def test_the_lock_of_a_killed_retrainer_is_released(tmp_path):
    code = (
        "import sys, time; from pathlib import Path\n"
        "from clustertwin.telemetry.learning.champions.fencing_lock import retrainer_lock\n"
        "with retrainer_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(Busy), retrainer_lock(tmp_path):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    time.sleep(0.01)
    with retrainer_lock(tmp_path):
        pass


def test_a_damaged_counter_is_an_error_and_is_not_reset(tmp_path):
    (tmp_path / "fence").write_text("x")
    with pytest.raises(InputError, match=r"fence.*not a number"):
        next_fence(tmp_path)
