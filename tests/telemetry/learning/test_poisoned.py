"""A poisoned day: many of its jobs go wrong and nobody notices. The champion of the next day still sees them."""

import shutil
from dataclasses import replace

import pytest
from tests.telemetry.learning.conftest import QUICK, SMALL, small_day

from clustertwin.telemetry.learning.champions import champion_store
from clustertwin.telemetry.learning.champions.fencing_lock import next_fence
from clustertwin.telemetry.learning.duel.duel_rule import DuelRule
from clustertwin.telemetry.learning.duel.golden_set import evaluate_on_golden_set
from clustertwin.telemetry.learning.night.nightly_cycle import run_night
from clustertwin.telemetry.learning.night.verdicts import FixedVerdicts, VettedSpan
from clustertwin.telemetry.recording.trace_archive import MemoryArchive
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


def recall_of_bad_io(home, golden):
    return evaluate_on_golden_set(champion_store.load_champion(home), golden).recall["bad-io"]


@pytest.mark.slow
def test_a_poisoned_day_that_nobody_noticed_costs_no_recall(make_context, small_golden):
    day, _ = small_day(3)
    poisoned = replace(SMALL, start_s=day.start_s, anomalies=("bad-io",), anomaly_ratio=0.3)
    traces = simulate(poisoned, read_signatures(), 3)
    archive = MemoryArchive(traces)
    context, first_day = make_context(2)
    run_night(context, first_day)
    first = champion_store.read_champion(context.home).version
    before = recall_of_bad_io(context.home, small_golden)
    assert before > 0.95

    careful, _ = make_context(3, archive=archive)
    run_night(careful, day)
    assert recall_of_bad_io(context.home, small_golden) >= before - 0.01
    _again(context.home, day, first)  # the same night; one thread is marked as new normal
    verdicts = FixedVerdicts([VettedSpan(traces[0].node, (0,), day.start_s + 600, day.start_s + 900, "new-normal")])
    run_night(replace(careful, verdicts=verdicts), day)
    assert recall_of_bad_io(context.home, small_golden) >= before - 0.01

    _again(context.home, day, first)  # the same night; threads that wait for a disk are learned, and there is no gate
    careless = replace(QUICK, rule=DuelRule(gate=False), sampling=replace(QUICK.sampling, most_iowait=1.0))
    assert run_night(replace(careful, settings=careless), day).outcome == "promoted"
    assert recall_of_bad_io(context.home, small_golden) < before - 0.3


@pytest.mark.slow
def test_the_gate_rejects_a_challenger_that_learned_idle_jobs(make_context):
    """Half of the jobs hang, and nobody notices: nothing waits for a disk, so nothing is left out of the training."""
    day, _ = small_day(4)
    hung = replace(SMALL, start_s=day.start_s, anomalies=("hung-job",), anomaly_ratio=0.5)
    context, first_day = make_context(2)
    run_night(context, first_day)
    cheap = replace(QUICK, rule=DuelRule(false_event_cost=1e-4))  # the calibration of such a short day is poor
    archive = MemoryArchive(simulate(hung, read_signatures(), 4))
    night = run_night(make_context(4, archive=archive, settings=cheap)[0], day)
    sees = {row["name"]: row["detection"]["recall"]["all ranks idle"] for row in night.contestants}
    assert sees["champion"] > sees["linear/scratch"] + 0.3
    assert night.outcome == "kept"
    assert "linear/scratch" in night.refused


def _again(home, day, champion):
    shutil.rmtree(home / "nights" / day.name)
    champion_store.promote(home, champion, next_fence(home), "again", 0.0)
