"""The data package of the project: every run can be used, and the card lists it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clustertwin.telemetry.campaign.zoo.program_table import PROGRAMS
from clustertwin.telemetry.campaign.zoo.raw_run import SUFFIX, read_raw_run
from clustertwin.telemetry.campaign.zoo.zoo_data import zoo_run_of
from clustertwin.telemetry.campaign.zoo.zoo_faults import FAULTS

PACKAGE = Path(__file__).parents[4] / "data" / "zoo"
FILES = sorted(PACKAGE.glob(f"*{SUFFIX}"))

pytestmark = pytest.mark.skipif(not FILES, reason="this checkout has no data package (data/zoo)")


def test_the_package_is_small():
    assert sum(path.stat().st_size for path in FILES) < 15e6


@pytest.mark.medium
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_run_is_complete_and_on_the_card(path):
    run = zoo_run_of(read_raw_run(path))
    assert run.program in PROGRAMS
    assert run.name == path.name.removesuffix(SUFFIX)
    assert f"| {run.name} |" in (PACKAGE / "README.md").read_text()
    assert {phase.fault for phase in run.phases} <= FAULTS.keys()
    onset_s = min((phase.onset_s for phase in run.phases), default=run.trace.end_s)
    assert onset_s - run.trace.start_s > 100
    assert all(phase.end_s - phase.onset_s > 60 for phase in run.phases)
    assert run.trace.valid.mean() > 0.98
    np.testing.assert_allclose(run.trace.values[run.trace.valid].sum(axis=-1), 1, atol=1e-5)
    assert run.raw.labels["failures"] <= 2
