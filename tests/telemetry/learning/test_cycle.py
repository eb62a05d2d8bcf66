import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from tests.telemetry.learning.conftest import QUICK, small_day

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.learning.champions import champion_store, learning_state, registry_spool
from clustertwin.telemetry.learning.champions.fencing_lock import Busy, next_fence, only_retrainer
from clustertwin.telemetry.learning.duel.verdict_of_duel import Rule
from clustertwin.telemetry.learning.night.day_checks import Limits, check
from clustertwin.telemetry.learning.night.night_data import Census, Material
from clustertwin.telemetry.learning.night.nightly_cycle import run
from clustertwin.telemetry.learning.night.verdicts import Vetted
from clustertwin.telemetry.recording.trace_archive import MemoryArchive

#: More than half of the nodes must be there.
STRICT = replace(QUICK.limits, coverage=0.6)


class Book:
    """A registry that may be down."""

    def __init__(self, down=False):
        self.down, self.taken = down, []

    def enter(self, record):
        if self.down:
            raise SourceError("down")
        self.taken.append(record)
        return record.name

    def serve(self, version, directory, sha256):
        if self.down:
            raise SourceError("down")
        self.serving = version


@pytest.mark.slow
def test_a_night_promotes_the_better_model_and_says_where_it_came_from(make_site):
    site, day = make_site(2)
    night = run(site, day)
    assert night.outcome == "promoted", night
    assert champion_store.champion(site.home).version == night.champion != night.before
    lineage = champion_store.find(site.home, night.champion).lineage
    assert lineage["night"] == day.name
    assert lineage["champion_then"] == night.before
    assert set(lineage["moments_sha256"]) == {"train", "validation", "held_out"}
    assert lineage["census"]["windows"] > 100
    assert learning_state.read_state(site.home).outcome == "promoted"
    assert champion_store.read_champion(site.home).binding == (night.before, night.champion)


@pytest.mark.slow
def test_after_a_day_called_the_new_normal_earlier_champions_are_no_measure_any_more(make_site):
    day, traces = small_day(2)
    said = [Vetted(traces[0].node, (0,), day.start_s + 600, day.start_s + 900, "new-normal")]
    night = run(*make_site(2, said))
    assert night.outcome == "promoted", night
    assert champion_store.read_champion(make_site(2)[0].home).binding == (night.champion,)
    assert any("called the new normal" in note for note in night.notes)


@pytest.mark.slow
def test_a_night_that_ended_is_not_lived_twice(make_site):
    site, day = make_site(2)
    first = run(site, day)
    again = run(site, day)
    assert again.notes[-1] == "this night had already ended"
    assert (again.champion, again.outcome) == (first.champion, first.outcome)


@pytest.mark.slow
def test_three_nights_in_a_row_remember_and_warm_start(make_site):
    site, _ = make_site(2)
    for number in (2, 3, 4):
        site, day = make_site(number, settings=replace(QUICK, starts=("scratch", "warm", "recalibrated")))
        night = run(site, day)
    rows = {row["name"]: row for row in night.contestants}
    assert set(rows) == {"champion", "linear/scratch", "linear/warm", "linear/recalibrated"}
    assert rows["linear/recalibrated"]["error"] == rows["champion"]["error"]
    plan = json.loads((site.home / "nights" / day.name / "plan.json").read_text())["result"]
    assert plan["replayed"] == ["2026-01-02", "2026-01-03"]
    assert not (site.home / "nights" / day.name / "moments").exists()


@pytest.mark.slow
def test_a_confirmed_anomaly_halts_until_a_person_resumes(make_site):
    day, traces = small_day(2)
    said = [Vetted(traces[0].node, (0,), day.start_s + 600, day.start_s + 900, "confirmed")]
    site, day = make_site(2, said)
    before = champion_store.read_champion(site.home)
    night = run(site, day)
    assert night.outcome == "halted"
    assert traces[0].node in night.because
    assert learning_state.read_state(site.home).word == "halted"
    later, next_day = make_site(3)
    assert run(later, next_day).outcome == "skipped"
    assert champion_store.read_champion(site.home) == before
    learning_state.resume(site.home)
    night = run(site, day)
    assert night.outcome == "promoted"
    assert champion_store.find(site.home, night.champion).lineage["census"]["left_out_s"]["confirmed"] > 0


def test_frozen_learns_nothing(make_site):
    site, day = make_site(2)
    learning_state.freeze(site.home, "benchmarks")
    night = run(site, day)
    assert (night.outcome, night.because) == ("skipped", "frozen: benchmarks")


@pytest.mark.slow
def test_an_empty_day_is_skipped_and_may_be_tried_again(make_site):
    site, day = make_site(2, past=MemoryArchive([]))
    night = run(site, day)
    assert (night.outcome, night.because) == ("skipped", "an empty day: no samples")
    site, _ = make_site(2)
    assert run(site, day).outcome == "promoted"


def _nan(traces):
    return [replace(t, values=np.full_like(t.values, np.nan)) for t in traces]


def _until(traces, second):
    """What a clock leaves of a day that jumps over the rest of it, past midnight."""
    return [replace(t, valid=t.valid & (np.arange(t.values.shape[1]) < second)) for t in traces]


@pytest.mark.parametrize(
    ("spoil", "because"),
    [
        (lambda traces: [], "an empty day: no samples"),
        (lambda traces: traces[:1], "1 of 2 nodes are missing"),
        (_nan, "no node has enough valid seconds"),
        (lambda traces: _until(traces, 300), "no node has enough valid seconds"),
    ],
    ids=["empty", "one node", "NaN", "a clock that jumps"],
)
def test_a_day_that_teaches_nothing_is_skipped_says_why_and_the_champion_stays(
    make_site, make_detector, tmp_path, spoil, because
):
    day, traces = small_day(2)
    census = Census(0, 1, {trace.node: 1.0 for trace in traces}, 32, 9000)
    serving = champion_store.enter(tmp_path, make_detector(0), {"census": asdict(census)})
    champion_store.promote(tmp_path, serving, 0, "first", 0.0)
    site, _ = make_site(2, past=MemoryArchive(spoil(traces)), settings=replace(QUICK, limits=STRICT))
    night = run(site, day)
    assert night.outcome == "skipped"
    assert because in night.because
    assert night.champion == champion_store.champion(tmp_path).version == serving


def test_a_day_with_few_of_the_nodes_is_skipped_and_names_them():
    moments = tuple(range(9))
    material = Material(moments, moments, moments)
    before = Census(0, 1, {f"n{i}": 1.0 for i in range(5)}, 40, 9000)
    alone = Census(0, 1, {"n0": 1.0, "n1": 0.1}, 8, 9000)
    assert "4 of 5 nodes are missing: n1, n2, n3, n4" in check(alone, material, 0.0, before, False).skip
    assert check(alone, material, 0.0, None, False).skip == ""  # a site of one node is a site


def test_a_drift_beyond_reason_needs_a_persons_word():
    moments = tuple(range(9))
    census = Census(0, 1, {"n0": 1.0}, 8, 9000)
    found = check(census, Material(moments, moments, moments), 0.8, None, False)
    assert "80% of the day alarms" in found.skip
    assert check(census, Material(moments, moments, moments), 0.8, None, True).skip == ""


def test_a_type_of_job_that_is_gone_is_worth_a_note():
    moments = tuple(range(9))
    before = Census(0, 1, {"n0": 1.0}, 8, 9000, {"np": 500, "mpi-2": 500, "rare": 1})
    now = replace(before, job_types={"np": 900})
    assert check(now, Material(moments, moments, moments), 0.0, before, False).notes == (
        "job types that were common and did not run: mpi-2",
    )


def test_too_short_a_day_says_what_it_lacks(make_site):
    site, day = make_site(2, settings=replace(QUICK, limits=Limits(fewest_windows=10**6)))
    assert "1000000 are needed" in run(site, day).because


@pytest.mark.slow
def test_a_corrupt_champion_is_replaced_by_the_one_before_it(make_site, make_detector):
    site, day = make_site(2)
    good = champion_store.read_champion(site.home).version
    bad = champion_store.enter(site.home, make_detector(1), {})
    champion_store.promote(site.home, bad, 1, "better", 0.0)
    (site.home / "models" / bad / "weights.safetensors").write_bytes(b"x")
    next_fence(site.home)
    night = run(site, day)
    assert "rolled back" in night.notes[0]
    assert night.before == good


@pytest.mark.slow
def test_who_decides_while_the_night_runs_outranks_it(make_site, make_detector):
    site, day = make_site(2)
    by_hand = champion_store.enter(site.home, make_detector(1), {})

    def decide(place):
        if place == "before promote":
            champion_store.promote(site.home, by_hand, next_fence(site.home), "by hand", 0.0)

    night = run(replace(site, at=decide), day)
    assert night.outcome == "kept"
    assert "fence" in night.because
    assert champion_store.champion(site.home).version == by_hand


def test_two_retrainers_never_run_at_once(make_site):
    site, day = make_site(2)
    with only_retrainer(site.home), pytest.raises(Busy):
        run(site, day)


@pytest.mark.slow
def test_a_registry_that_is_down_delays_nothing_and_hears_of_it_later(make_site):
    book = Book(down=True)
    site, day = make_site(2, book=lambda: book)
    night = run(site, day)
    assert night.outcome == "promoted"
    assert "waits: down" in night.registry
    assert [record.name for record in registry_spool.waiting(site.home)] == [day.name]
    book.down = False
    site, day = make_site(3, book=lambda: book)
    assert run(site, day).registry == "2 records sent"
    assert [record.name for record in book.taken] == ["2026-01-02", "2026-01-03"]
    assert book.taken[0].params["champion"] == night.champion
    assert book.serving == champion_store.read_champion(site.home).version
    assert registry_spool.waiting(site.home) == []


def test_the_registry_follows_a_persons_decision_when_it_is_back(make_site, make_detector):
    site, _ = make_site(2)
    book = Book(down=True)
    by_hand = champion_store.enter(site.home, make_detector(1), {})
    champion_store.promote(site.home, by_hand, next_fence(site.home), "by hand", 0.0)
    assert registry_spool.tell(site.home, lambda: book) == "0 records sent; the rest waits: down"
    book.down = False
    assert registry_spool.tell(site.home, lambda: book) == "told who serves"
    assert book.serving == by_hand


@pytest.mark.slow
def test_a_damaged_challenger_is_out_and_the_others_are_judged(make_site):
    site, day = make_site(2, settings=replace(QUICK, architectures=("linear", "patch")))

    def damage(place):
        if place == "before judge":
            broken = site.home / "nights" / day.name / "challengers" / "linear-scratch" / "weights.safetensors"
            broken.write_bytes(b"x")

    night = run(replace(site, at=damage), day)
    assert [row["name"] for row in night.contestants] == ["champion", "patch/scratch"]
    assert any("linear/scratch is out" in note for note in night.notes)


@pytest.mark.slow
def test_the_gate_is_a_setting(make_site):
    site, day = make_site(2, settings=replace(QUICK, rule=Rule(gate=False)))
    assert run(site, day).refused == {}
