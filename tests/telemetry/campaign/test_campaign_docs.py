"""Every job type and anomaly is on the page for users."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustertwin.telemetry.campaign.catalogue import JOB_TYPES

PAGE = Path(__file__).parents[3] / "docs" / "campaigns.md"


@pytest.mark.parametrize("name", JOB_TYPES)
def test_every_job_type_is_documented_with_what_it_should_give(name: str) -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and f"`{name}`" in line]
    assert rows
    if not JOB_TYPES[name].anomaly or name == "bad-io":
        assert all(str(expected) in rows[0] for expected in JOB_TYPES[name].expectations)
