from dataclasses import replace

import numpy as np
import pytest

from clustertwin.telemetry.models.training import TrainingSettings
from clustertwin.telemetry.studies.reference import member_cache as module
from clustertwin.telemetry.studies.reference.ensembles import EnsembleMember, EvaluatedMember, StudySource
from clustertwin.telemetry.studies.reference.member_cache import MemberCache, train_missing

MEMBERS = [
    EnsembleMember("linear", TrainingSettings(seed=seed, options={"latent": 8}), StudySource()) for seed in range(3)
]


def evaluated(member: EnsembleMember) -> EvaluatedMember:
    weights = {"w": np.full((2, 3), member.settings.seed, np.float32)}
    return EvaluatedMember(
        member.recipe, member.settings.seed, 8, 0.1, float("nan"), 0.7, 0.8, {"np": 0.1}, {"hung": 0.5}, 1.5,
        member.settings, weights,
    )  # fmt: skip


def test_a_member_is_read_as_it_was_saved(tmp_path):
    cache = MemberCache(tmp_path, "data")
    cache.save(MEMBERS[2], evaluated(MEMBERS[2]))
    back = cache.read(MEMBERS[2])
    assert back is not None
    assert repr(replace(back, weights={})) == repr(replace(evaluated(MEMBERS[2]), weights={}))
    np.testing.assert_array_equal(back.weights["w"], np.full((2, 3), 2))


def test_other_data_or_other_settings_are_another_member(tmp_path):
    MemberCache(tmp_path, "data").save(MEMBERS[0], evaluated(MEMBERS[0]))
    assert MemberCache(tmp_path, "data of today").read(MEMBERS[0]) is None
    longer = replace(MEMBERS[0], settings=replace(MEMBERS[0].settings, epochs=99))
    assert MemberCache(tmp_path, "data").read(longer) is None


def test_a_resumed_study_trains_only_missing_members(tmp_path, monkeypatch):
    cache = MemberCache(tmp_path, "data")
    cache.save(MEMBERS[1], evaluated(MEMBERS[1]))
    trained, done_calls = [], []

    def train(function, missing, engine, workers, done):
        for index, member in enumerate(missing):
            trained.append(member.settings.seed)
            done(index, evaluated(member))
        return [evaluated(member) for member in missing]

    monkeypatch.setattr(module, "each", train)
    members = train_missing(MEMBERS, cache, done=lambda index, member: done_calls.append((index, member.seed)))
    assert trained == [0, 2]
    assert [member.seed for member in members] == [0, 1, 2]
    assert sorted(done_calls) == [(0, 0), (1, 1), (2, 2)]
    assert all(cache.read(member) for member in MEMBERS)


def test_a_member_without_results_is_not_in_the_cache(tmp_path):
    cache = MemberCache(tmp_path, "data")
    cache.save(MEMBERS[0], evaluated(MEMBERS[0]))
    for results in tmp_path.glob("*.json"):
        results.unlink()
    assert cache.read(MEMBERS[0]) is None


@pytest.mark.parametrize("field", ["length_s", "test_stride_s", "test"])
def test_different_data_have_different_digests(field):
    from clustertwin.core.channels import CPU
    from clustertwin.core.traces import JobSpan, Trace
    from clustertwin.telemetry.studies.reference.study_data import StudyData

    trace = Trace("n0", (0,), 0, CPU, np.zeros((1, 200, 4), np.float32), np.ones((1, 200), bool))
    labelled = replace(trace, spans=(JobSpan("1", "n0", (0,), 0, 200, "np"),))
    data = StudyData("d", ((trace,),), ((trace,),), ((trace,),))
    other = replace(data, **{field: ((labelled,),) if field == "test" else 50})
    assert data.digest() == replace(data, name="another name").digest()
    assert data.digest() != other.digest()
