"""A poisoned day: 30 % of its jobs go wrong and nobody notices. The gate keeps the champion's recall."""

import shutil
from dataclasses import replace

import pytest
from tests.telemetry.learning.conftest import QUICK, SMALL, small_day

from clustertwin.telemetry.learning.champions import champion_store
from clustertwin.telemetry.learning.duel.golden_set import evaluate_on_golden_set
from clustertwin.telemetry.learning.night.nightly_cycle import run_night
from clustertwin.telemetry.learning.night.verdicts import FixedVerdicts, VettedSpan
from clustertwin.telemetry.recording.trace_archive import MemoryArchive
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


def recall_of_bad_io(home, golden):
    return evaluate_on_golden_set(champion_store.load_champion(home), golden).recall["bad-io"]


@pytest.mark.slow
def test_the_gate_keeps_the_recall_that_a_poisoned_day_would_cost(make_context, small_golden):
    day, _ = small_day(3)
    poisoned = replace(SMALL, start_s=day.start_s, anomalies=("bad-io",), anomaly_ratio=0.3)
    traces = simulate(poisoned, read_signatures(), 3)
    archive = MemoryArchive(traces)
    context, first_day = make_context(2)
    run_night(context, first_day)
    before = recall_of_bad_io(context.home, small_golden)
    assert before > 0.95

    gated, _ = make_context(3, archive=archive)
    night = run_night(gated, day)
    assert night.outcome == "kept"
    assert "linear/scratch" in night.refused
    assert recall_of_bad_io(context.home, small_golden) >= before - 0.01

    shutil.rmtree(context.home / "nights" / day.name)  # the same night again; one thread is marked as new normal
    verdicts = FixedVerdicts([VettedSpan(traces[0].node, (0,), day.start_s + 600, day.start_s + 900, "new-normal")])
    night = run_night(replace(gated, verdicts=verdicts), day)
    assert (night.outcome, set(night.refused)) == ("kept", {"linear/scratch"})

    shutil.rmtree(context.home / "nights" / day.name)  # the same night again
    ungated = replace(gated, settings=replace(QUICK, rule=replace(QUICK.rule, gate=False)))
    night = run_night(ungated, day)
    assert night.outcome == "promoted"
    assert recall_of_bad_io(context.home, small_golden) < before - 0.3
