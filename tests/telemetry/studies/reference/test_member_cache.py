from dataclasses import replace

import numpy as np
import pytest

from clustertwin.telemetry.models.training import TrainingSettings
from clustertwin.telemetry.studies.reference import member_cache as module
from clustertwin.telemetry.studies.reference.ensembles import Judged, Member, Source
from clustertwin.telemetry.studies.reference.member_cache import Kept, train_missing

MEMBERS = [Member("linear", TrainingSettings(seed=seed, options={"latent": 8}), Source()) for seed in range(3)]


def judged(member: Member) -> Judged:
    weights = {"w": np.full((2, 3), member.settings.seed, np.float32)}
    return Judged(
        member.recipe, member.settings.seed, 8, 0.1, float("nan"), 0.7, 0.8, {"np": 0.1}, {"hung": 0.5}, 1.5,
        member.settings, weights,
    )  # fmt: skip


def test_a_member_comes_back_as_it_was_judged(tmp_path):
    kept = Kept(tmp_path, "data")
    kept.save(MEMBERS[2], judged(MEMBERS[2]))
    back = kept.read(MEMBERS[2])
    assert back is not None
    assert repr(replace(back, weights={})) == repr(replace(judged(MEMBERS[2]), weights={}))
    np.testing.assert_array_equal(back.weights["w"], np.full((2, 3), 2))


def test_other_data_or_other_settings_are_another_member(tmp_path):
    Kept(tmp_path, "data").save(MEMBERS[0], judged(MEMBERS[0]))
    assert Kept(tmp_path, "data of today").read(MEMBERS[0]) is None
    longer = replace(MEMBERS[0], settings=replace(MEMBERS[0].settings, epochs=99))
    assert Kept(tmp_path, "data").read(longer) is None


def test_a_study_that_was_cut_short_trains_only_what_is_missing(tmp_path, monkeypatch):
    kept = Kept(tmp_path, "data")
    kept.save(MEMBERS[1], judged(MEMBERS[1]))
    trained, heard = [], []

    def train(wanted, engine, workers, done):
        for index, member in enumerate(wanted):
            trained.append(member.settings.seed)
            done(index, judged(member))
        return [judged(member) for member in wanted]

    monkeypatch.setattr(module, "train_all", train)
    found = train_missing(MEMBERS, kept, done=lambda index, one: heard.append((index, one.seed)))
    assert trained == [0, 2]
    assert [one.seed for one in found] == [0, 1, 2]
    assert sorted(heard) == [(0, 0), (1, 1), (2, 2)]
    assert all(kept.read(member) for member in MEMBERS)


def test_a_member_without_its_figures_is_not_there(tmp_path):
    kept = Kept(tmp_path, "data")
    kept.save(MEMBERS[0], judged(MEMBERS[0]))
    for figures in tmp_path.glob("*.json"):
        figures.unlink()
    assert kept.read(MEMBERS[0]) is None


@pytest.mark.parametrize("field", ["length_s", "test_stride_s", "test"])
def test_the_digest_tells_data_apart(field):
    from clustertwin.core.channels import CPU
    from clustertwin.core.traces import JobSpan, Trace
    from clustertwin.telemetry.studies.reference.study_data import Data

    trace = Trace("n0", (0,), 0, CPU, np.zeros((1, 200, 4), np.float32), np.ones((1, 200), bool))
    labelled = replace(trace, spans=(JobSpan("1", "n0", (0,), 0, 200, "np"),))
    data = Data("d", ((trace,),), ((trace,),), ((trace,),))
    other = replace(data, **{field: ((labelled,),) if field == "test" else 50})
    assert data.digest() == replace(data, name="another name").digest()
    assert data.digest() != other.digest()
