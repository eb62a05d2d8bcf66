"""A day on which three jobs in ten go wrong and nobody notices: what the gate is for."""

import shutil
from dataclasses import replace

import pytest
from tests.telemetry.learning.conftest import QUICK, SMALL, small_day

from clustertwin.telemetry.learning.champions import champion_store
from clustertwin.telemetry.learning.duel.golden_set import detect
from clustertwin.telemetry.learning.night.nightly_cycle import run
from clustertwin.telemetry.learning.night.verdicts import Told, Vetted
from clustertwin.telemetry.recording.trace_archive import MemoryArchive
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


@pytest.mark.slow
def test_the_gate_keeps_the_sight_that_a_poisoned_day_would_cost(make_site, small_golden):
    day, _ = small_day(3)
    poisoned = replace(SMALL, start_s=day.start_s, anomalies=("bad-io",), anomaly_ratio=0.3)
    traces = simulate(poisoned, read_signatures(), 3)
    past = MemoryArchive(traces)
    site, first_day = make_site(2)
    run(site, first_day)
    before = detect(champion_store.champion(site.home), small_golden).recall["bad-io"]
    assert before > 0.95

    gated, _ = make_site(3, past=past)
    night = run(gated, day)
    assert night.outcome == "kept"
    assert "linear/scratch" in night.refused
    assert detect(champion_store.champion(site.home), small_golden).recall["bad-io"] >= before - 0.01

    shutil.rmtree(site.home / "nights" / day.name)  # the same night again; one thread was called the new normal
    said = Told([Vetted(traces[0].node, (0,), day.start_s + 600, day.start_s + 900, "new-normal")])
    night = run(replace(gated, verdicts=said), day)
    assert (night.outcome, set(night.refused)) == ("kept", {"linear/scratch"})

    shutil.rmtree(site.home / "nights" / day.name)  # the same night again
    open_door = replace(gated, settings=replace(QUICK, rule=replace(QUICK.rule, gate=False)))
    night = run(open_door, day)
    assert night.outcome == "promoted"
    assert detect(champion_store.champion(site.home), small_golden).recall["bad-io"] < before - 0.3
