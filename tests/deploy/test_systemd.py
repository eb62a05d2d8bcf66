"""The units, checked by systemd itself: it knows every key, and the exposure level is low."""

import subprocess
from pathlib import Path

import pytest
from tests.servers import binary

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
MOST_EXPOSED_TENTHS = 25  # 2.5 of 10


@pytest.mark.real
@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_a_service_exposes_little(unit: Path):
    command = [
        binary("systemd-analyze"),
        "security",
        "--offline=true",
        "--no-pager",
        f"--threshold={MOST_EXPOSED_TENTHS}",
    ]
    checked = subprocess.run([*command, str(unit)], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout[-2000:] + checked.stderr
    assert "Overall exposure level" in checked.stdout


@pytest.mark.real
def test_systemd_knows_every_key(tmp_path: Path):
    for unit in UNITS.iterdir():
        text = unit.read_text().replace("/opt/clustertwin/bin/twin", "/bin/true")  # not installed there
        (tmp_path / unit.name).write_text(text)
    command = [binary("systemd-analyze"), "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))]
    verified = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_every_timer_has_its_service():
    timers = list(UNITS.glob("*.timer"))
    assert timers
    for timer in timers:
        assert timer.with_suffix(".service") in SERVICES


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_systemd_never_gives_up_on_a_service(unit: Path):
    """Five starts within ten seconds are its limit: an exporter whose address came late stayed dead."""
    keys = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and line[0] != "#")
    assert "Restart" not in keys or float(keys["RestartSec"]) * 5 > 10


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.name)
def test_no_unit_puts_a_password_into_arguments(unit: Path):
    assert not [line for line in unit.read_text().splitlines() if "FLAGS=" in line and "PASSWORD" in line]
