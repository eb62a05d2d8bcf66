"""Every job type and anomaly is on the page for users."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustertwin.telemetry.campaign.catalogue import JOB_TYPES
from clustertwin.telemetry.campaign.zoo.program_table import PROGRAMS
from clustertwin.telemetry.campaign.zoo.zoo_faults import FAULTS

PAGE = Path(__file__).parents[3] / "docs" / "campaigns.md"


@pytest.mark.parametrize("name", JOB_TYPES)
def test_every_job_type_is_documented_with_what_it_should_give(name: str) -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and f"`{name}`" in line]
    assert rows
    if not JOB_TYPES[name].anomaly or name == "bad-io":
        assert all(str(expected) in rows[0] for expected in JOB_TYPES[name].expectations)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_of_the_zoo_is_documented(name: str) -> None:
    assert f"| `{name}` | {PROGRAMS[name].kind} | {PROGRAMS[name].about} |" in PAGE.read_text()


@pytest.mark.parametrize("name", FAULTS)
def test_every_imposed_fault_is_documented(name: str) -> None:
    assert f"| `{name}` | {FAULTS[name].about} | {FAULTS[name].cause} |" in PAGE.read_text()
