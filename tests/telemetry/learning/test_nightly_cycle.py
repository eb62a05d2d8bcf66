"""A night from end to end: outcomes, lineage, skipped days, damaged files, and a registry that is down."""

import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest
from tests.telemetry.learning.conftest import QUICK, small_day

from clustertwin.core.errors import OutputError, SourceError
from clustertwin.telemetry.learning.champions import champion_store, learning_state, registry_spool, version_store
from clustertwin.telemetry.learning.champions.fencing_lock import Busy, next_fence, retrainer_lock
from clustertwin.telemetry.learning.duel.duel_rule import DuelRule
from clustertwin.telemetry.learning.night import night_steps, nightly_cycle
from clustertwin.telemetry.learning.night.calendar_day import DayLimits
from clustertwin.telemetry.learning.night.day_census import DayCensus
from clustertwin.telemetry.learning.night.night_run import NightRun
from clustertwin.telemetry.learning.night.nightly_cycle import run_night
from clustertwin.telemetry.learning.night.step_journal import StepJournal
from clustertwin.telemetry.learning.night.verdicts import VettedSpan
from clustertwin.telemetry.recording.trace_archive import MemoryArchive

#: More than half of the nodes must be present.
STRICT = replace(QUICK.limits, coverage=0.6)


class StubRegistry:
    """A registry that can be down."""

    def __init__(self, down=False):
        self.down, self.records = down, []

    def add_night(self, record):
        if self.down:
            raise SourceError("down")
        self.records.append(record)
        return record.name

    def set_champion(self, version, directory, sha256):
        if self.down:
            raise SourceError("down")
        self.champion = version


def vetted(number, verdict):
    """A verdict on thread 0 of the first node, for five minutes of a small day."""
    day, traces = small_day(number)
    return [VettedSpan(traces[0].node, (0,), day.start_s + 600, day.start_s + 900, verdict)]


@pytest.mark.slow
def test_a_night_promotes_the_better_model_and_stores_its_lineage(make_context):
    context, day = make_context(2)
    night = run_night(context, day)
    assert night.outcome == "promoted", night
    assert champion_store.load_champion(context.home).version == night.champion != night.before
    lineage = version_store.find_version(context.home, night.champion).lineage
    assert lineage["night"] == day.name
    assert lineage["champion_then"] == night.before
    assert set(lineage["moments_sha256"]) == {"train", "validation", "held_out"}
    assert lineage["census"]["windows"] > 100
    assert learning_state.read_state(context.home).outcome == "promoted"
    assert champion_store.read_champion(context.home).baselines == (night.before, night.champion)


@pytest.mark.slow
def test_a_day_marked_as_new_normal_starts_new_baselines(make_context):
    night = run_night(*make_context(2, vetted(2, "new-normal")))
    assert night.outcome == "promoted", night
    assert champion_store.read_champion(make_context(2)[0].home).baselines == (night.champion,)
    assert any("marked as the new normal" in note for note in night.notes)


@pytest.mark.slow
def test_a_night_that_ended_is_not_run_twice(make_context):
    context, day = make_context(2)
    first = run_night(context, day)
    again = run_night(context, day)
    assert again.notes[-1] == "this night had already ended"
    assert (again.champion, again.outcome) == (first.champion, first.outcome)


@pytest.mark.slow
def test_later_nights_rehearse_earlier_days_and_start_warm(make_context):
    for number in (2, 3, 4):
        context, day = make_context(number, settings=replace(QUICK, starts=("scratch", "warm", "recalibrated")))
        night = run_night(context, day)
    rows = {row["name"]: row for row in night.contestants}
    assert set(rows) == {"champion", "linear/scratch", "linear/warm", "linear/recalibrated"}
    assert rows["linear/recalibrated"]["error"] == rows["champion"]["error"]
    plan = json.loads((context.home / "nights" / day.name / "plan.json").read_text())["result"]
    assert plan["replayed"] == ["2026-01-02", "2026-01-03"]
    assert not (context.home / "nights" / day.name / "moments").exists()


@pytest.mark.slow
def test_a_confirmed_anomaly_halts_learning_until_a_person_resumes(make_context):
    verdicts = vetted(2, "confirmed")
    context, day = make_context(2, verdicts)
    before = champion_store.read_champion(context.home)
    night = run_night(context, day)
    assert night.outcome == "halted"
    assert verdicts[0].node in night.because
    assert learning_state.read_state(context.home).status == "halted"
    later, next_day = make_context(3)
    assert run_night(later, next_day).outcome == "skipped"
    assert champion_store.read_champion(context.home) == before
    learning_state.resume(context.home)
    night = run_night(context, day)
    assert night.outcome == "promoted"
    lineage = version_store.find_version(context.home, night.champion).lineage
    assert lineage["census"]["left_out_s"]["confirmed"] > 0


@pytest.mark.slow
def test_a_frozen_home_skips_the_night(make_context):
    context, day = make_context(2)
    learning_state.freeze(context.home, "benchmarks")
    night = run_night(context, day)
    assert (night.outcome, night.because) == ("skipped", "frozen: benchmarks")


@pytest.mark.slow
def test_a_night_does_not_promote_after_a_person_has_frozen_learning(make_context):
    context, day = make_context(2)

    def freeze(place):
        if place == "after judge":
            learning_state.freeze(context.home, "benchmarks")

    night = run_night(replace(context, crash_point=freeze), day)
    assert (night.outcome, night.because) == ("skipped", "frozen: benchmarks")
    assert champion_store.read_champion(context.home).version == night.champion
    assert not list((context.home / "rehearsal").glob("*"))
    learning_state.resume(context.home)
    assert run_night(context, day).outcome == "promoted"


@pytest.mark.slow
def test_a_skipped_day_can_be_run_again(make_context):
    context, day = make_context(2, archive=MemoryArchive([]))
    night = run_night(context, day)
    assert (night.outcome, night.because) == ("skipped", "the day has no samples")
    context, _ = make_context(2)
    assert run_night(context, day).outcome == "promoted"


def _nan(traces):
    return [replace(t, values=np.full_like(t.values, np.nan)) for t in traces]


def _until(traces, second):
    """Traces whose clock jumps past midnight at this second."""
    return [replace(t, valid=t.valid & (np.arange(t.values.shape[1]) < second)) for t in traces]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("spoil", "because"),
    [
        (lambda traces: [], "the day has no samples"),
        (lambda traces: traces[:1], "1 of 2 nodes are missing"),
        (_nan, "no node has enough valid seconds"),
        (lambda traces: _until(traces, 300), "no node has enough valid seconds"),
    ],
    ids=["empty", "one node", "NaN", "a clock that jumps"],
)
def test_an_unfit_day_is_skipped_with_its_reason_and_the_champion_stays(
    make_context, make_detector, tmp_path, spoil, because
):
    day, traces = small_day(2)
    census = DayCensus(0, 1, {trace.node: 1.0 for trace in traces}, 32, 9000)
    serving = version_store.add_version(tmp_path, make_detector(0), {"census": asdict(census)})
    champion_store.promote(tmp_path, serving, 0, "first", 0.0)
    context, _ = make_context(2, archive=MemoryArchive(spoil(traces)), settings=replace(QUICK, limits=STRICT))
    night = run_night(context, day)
    assert night.outcome == "skipped"
    assert because in night.because
    assert night.champion == champion_store.load_champion(tmp_path).version == serving


@pytest.mark.slow
def test_a_site_whose_nodes_were_replaced_learns_again_after_three_nights(make_context, make_detector, tmp_path):
    """The nodes of the champion's own night were missing on every night, so no other champion could follow."""
    census = DayCensus(0, 1, {"old1": 1.0, "old2": 1.0}, 32, 9000)
    serving = version_store.add_version(tmp_path, make_detector(0), {"census": asdict(census)})
    champion_store.promote(tmp_path, serving, 0, "first", 0.0)
    nights = [run_night(*make_context(number, settings=replace(QUICK, limits=STRICT))) for number in range(2, 6)]
    assert [night.outcome for night in nights] == ["skipped", "skipped", "skipped", "promoted"]
    assert "2 of 2 nodes are missing" in nights[2].because


def test_nights_without_any_data_do_not_tell_which_nodes_are_gone(make_context):
    """After three nights without a collector, a day of one node of a hundred was learned."""
    context, day = make_context(5)
    for number in range(2, 5):
        earlier = StepJournal(context.home / "nights" / make_context(number)[1].name)
        earlier.once("gather", lambda: asdict(DayCensus(0, 0)))
    census = DayCensus(0, 1, {"n1": 1.0, "n2": 1.0}, 32, 9000)
    run = NightRun(context, day, 9, StepJournal(context.home / "nights" / day.name))
    assert night_steps._without_gone_nodes(run, census) == census


@pytest.mark.medium
def test_a_day_that_is_too_short_is_skipped_with_the_needed_length(make_context):
    context, day = make_context(2, settings=replace(QUICK, limits=DayLimits(thread_hours=1e6)))
    assert "at least 1e+06 thread-hours are needed" in run_night(context, day).because


@pytest.mark.slow
def test_a_corrupt_champion_is_replaced_by_its_predecessor(make_context, make_detector):
    context, day = make_context(2)
    good = champion_store.read_champion(context.home).version
    bad = version_store.add_version(context.home, make_detector(1), {})
    champion_store.promote(context.home, bad, 1, "better", 0.0)
    (context.home / "models" / bad / "weights.safetensors").write_bytes(b"x")
    next_fence(context.home)
    night = run_night(context, day)
    assert "rolled back" in night.notes[0]
    assert night.before == good


@pytest.mark.slow
def test_a_person_who_promotes_during_the_night_outranks_it(make_context, make_detector):
    context, day = make_context(2)
    by_hand = version_store.add_version(context.home, make_detector(1), {})

    def promote_by_hand(place):
        if place == "before promote":
            champion_store.promote(context.home, by_hand, next_fence(context.home), "by hand", 0.0)

    night = run_night(replace(context, crash_point=promote_by_hand), day)
    assert night.outcome == "kept"
    assert "fencing token" in night.because
    assert champion_store.load_champion(context.home).version == by_hand


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", ["noted begin", "noted judge"])
def test_a_person_who_promotes_before_a_killed_night_is_resumed_outranks_it(make_context, make_detector, killed_at):
    """The resumed night took a new token, and replaced what the person had chosen since it began."""
    context, day = make_context(2)
    by_hand = version_store.add_version(context.home, make_detector(1), {})

    def killed(place):
        if place == killed_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_night(replace(context, crash_point=killed), day)
    champion_store.promote(context.home, by_hand, next_fence(context.home), "by hand", 0.0)
    night = run_night(context, day)
    assert night.outcome == "kept"
    assert "fencing token" in night.because
    assert champion_store.load_champion(context.home).version == by_hand


@pytest.mark.slow
def test_a_night_changes_nothing_in_a_home_that_was_restored_while_it_ran(make_context, tmp_path):
    """It promoted its winner in the restored home, whose lock it does not hold."""
    context, day = make_context(2, home=tmp_path / "home")
    restored = tmp_path / "restored"

    def restore(place):
        if place == "before promote":
            shutil.copytree(context.home, restored)
            context.home.rename(tmp_path / "old")
            restored.rename(context.home)

    before = champion_store.read_champion(context.home)
    with pytest.raises(OutputError, match="restored while this night ran; the night ends before promote"):
        run_night(replace(context, crash_point=restore), day)
    assert champion_store.read_champion(context.home) == before


def test_two_retrainers_never_run_at_once(make_context):
    context, day = make_context(2)
    with retrainer_lock(context.home), pytest.raises(Busy):
        run_night(context, day)


@pytest.mark.slow
def test_a_registry_that_is_down_gets_the_record_after_the_next_night(make_context):
    registry = StubRegistry(down=True)
    context, day = make_context(2, open_registry=lambda: registry)
    night = run_night(context, day)
    assert night.outcome == "promoted"
    assert "waits: down" in night.registry
    assert [record.name for record in registry_spool.waiting(context.home)] == [day.name]
    registry.down = False
    context, day = make_context(3, open_registry=lambda: registry)
    assert run_night(context, day).registry == "2 records sent"
    assert [record.name for record in registry.records] == ["2026-01-02", "2026-01-03"]
    assert registry.records[0].params["champion"] == night.champion
    assert registry.champion == champion_store.read_champion(context.home).version
    assert registry_spool.waiting(context.home) == []


def test_a_registry_that_was_down_gets_the_champion_that_a_person_promoted(make_context, make_detector):
    context, _ = make_context(2)
    registry = StubRegistry(down=True)
    by_hand = version_store.add_version(context.home, make_detector(1), {})
    champion_store.promote(context.home, by_hand, next_fence(context.home), "by hand", 0.0)
    status = registry_spool.open_and_sync(context.home, lambda: registry)
    assert status == "0 records sent; the rest waits: down"
    registry.down = False
    assert registry_spool.open_and_sync(context.home, lambda: registry) == "champion is up to date"
    assert registry.champion == by_hand


@pytest.mark.slow
def test_every_architecture_is_registered_and_losers_are_removed_with_their_night(make_context):
    registry = StubRegistry()
    settings = replace(QUICK, architectures=("linear", "patch"), keep_nights=1)
    context, day = make_context(2, settings=settings, open_registry=lambda: registry)
    night = run_night(context, day)
    (record,) = registry.records
    assert set(record.runs) == {"champion", "linear/scratch", "patch/scratch"}
    assert all({"bits", "false_events", "informedness"} <= set(metrics) for metrics in record.runs.values())
    (loser,) = record.others.values()
    assert {loser.version, record.version} <= {version.version for version in version_store.versions(context.home)}
    assert version_store.digest(context.home / "models" / loser.version) == loser.sha256
    later, next_day = make_context(3, settings=settings, open_registry=lambda: registry)
    run_night(later, next_day)
    remaining = {version.version for version in version_store.versions(context.home)}
    assert loser.version not in remaining
    assert {night.before, night.champion} <= remaining


@pytest.mark.slow
def test_a_loser_that_a_person_promotes_while_old_nights_are_removed_stays(make_context, monkeypatch):
    """champion.json named a version that was deleted."""
    settings = replace(QUICK, architectures=("linear", "patch"), keep_nights=1)
    context, day = make_context(2, settings=settings)
    night = run_night(context, day)
    (loser,) = {v.version for v in version_store.versions(context.home)} - {night.before, night.champion}
    versions = version_store.versions

    def promoted_after_the_list(home):
        stored = versions(home)
        champion_store.promote(context.home, loser, next_fence(context.home), "by hand", 0.0)
        return stored

    monkeypatch.setattr(nightly_cycle.version_store, "versions", promoted_after_the_list)
    run = NightRun(context, day, 9, StepJournal(context.home / "nights" / day.name))
    nightly_cycle._remove_old_versions(run, {day.name})
    assert champion_store.load_champion(context.home).version == loser


@pytest.mark.slow
def test_a_damaged_challenger_does_not_compete_and_the_others_do(make_context):
    context, day = make_context(2, settings=replace(QUICK, architectures=("linear", "patch")))

    def damage(place):
        if place == "before judge":
            challenger = context.home / "nights" / day.name / "challengers" / "linear-scratch"
            (challenger / "weights.safetensors").write_bytes(b"x")

    night = run_night(replace(context, crash_point=damage), day)
    assert [row["name"] for row in night.contestants] == ["champion", "patch/scratch"]
    assert any("linear/scratch does not compete" in note for note in night.notes)


@pytest.mark.slow
def test_the_gate_can_be_turned_off(make_context):
    context, day = make_context(2, settings=replace(QUICK, rule=DuelRule(gate=False)))
    assert run_night(context, day).refused == {}
