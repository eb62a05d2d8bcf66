"""Versions, promotion and rollback, and what the service does with a damaged champion."""

import json

import pytest

from clustertwin.core import files
from clustertwin.core.errors import InputError, OutputError, SettingsError
from clustertwin.telemetry.learning.champions import champion_store, version_store
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.models.model_store import ModelError


@pytest.fixture
def home(tmp_path, make_detector):
    """Three versions, none in service."""
    for seed in range(3):
        version_store.add_version(tmp_path, make_detector(seed), {"night": seed})
    return tmp_path


def names(make_detector):
    return [make_detector(seed).version for seed in range(3)]


@pytest.mark.medium
def test_a_version_is_stored_once_with_its_lineage(home, make_detector):
    version_store.add_version(home, make_detector(0), {"night": 0})
    nights = {stored.version: stored.lineage["night"] for stored in version_store.versions(home)}
    assert nights == dict(zip(names(make_detector), range(3), strict=True))


def test_another_model_never_replaces_a_stored_version(home, make_detector):
    version_store.add_version(home, make_detector(0), {"night": 99})  # the same model again
    assert version_store.find_version(home, make_detector(0).version).lineage == {"night": 0}
    (home / "models" / make_detector(0).version / "weights.safetensors").write_bytes(b"x")
    with pytest.raises(ModelError, match="another model of this version"):
        version_store.add_version(home, make_detector(0), {"night": 0})


def test_promotion_changes_the_champion_and_rollback_goes_back_one_by_one(home, make_detector):
    first, second, third = names(make_detector)
    for fence, version in enumerate((first, second, third), start=1):
        champion_store.promote(home, version, fence, "better", 0.0)
    assert champion_store.load_champion(home).version == third
    assert champion_store.rollback(home, 4, 0.0).version == second
    assert champion_store.rollback(home, 5, 0.0).version == first
    with pytest.raises(SettingsError, match="no previous champion"):
        champion_store.rollback(home, 6, 0.0)
    assert champion_store.load_champion(home).version == first


@pytest.mark.parametrize("why", ["x" * 2_000_000, "disk \udcff"])
def test_a_champion_can_be_read_whatever_the_reason_of_its_promotion(home, make_detector, why):
    """champion.json was longer than its limit, or had a text that cannot be shown: the next champion was refused."""
    champion_store.promote(home, names(make_detector)[0], 1, why, 5.0)
    champion = champion_store.read_champion(home)
    assert champion.version == names(make_detector)[0]
    assert len(champion.why) <= 1000


def test_baselines_start_anew_when_a_person_promotes_or_the_cluster_changes(home, make_detector):
    first, second, third = names(make_detector)
    champion_store.promote(home, first, 1, "by hand", 0.0)
    assert champion_store.promote(home, second, 2, "a night", 0.0, new_base=False).baselines == (first, second)
    changed = champion_store.promote(home, third, 3, "a night after a change", 0.0, new_base=True)
    assert changed.baselines == champion_store.read_champion(home).baselines == (third,)
    again = champion_store.promote(home, first, 4, "a night", 0.0, new_base=False)
    assert again.baselines == (third, first)
    assert champion_store.rollback(home, 5, 0.0).baselines == (third,)
    assert champion_store.rollback(home, 6, 0.0).baselines == (second,)  # a rollback is a decision by hand


def test_rollback_skips_a_damaged_version(home, make_detector):
    first, second, third = names(make_detector)
    for fence, version in enumerate((first, second, third), start=1):
        champion_store.promote(home, version, fence, "better", 0.0)
    (home / "models" / second / "model.json").write_text("{")
    assert champion_store.rollback(home, 4, 0.0).version == first


def test_an_older_fencing_token_is_refused(home, make_detector):
    first, second, _ = names(make_detector)
    champion_store.promote(home, first, 7, "by hand", 0.0)
    with pytest.raises(champion_store.StaleFence, match="fencing token 6 is older than 7"):
        champion_store.promote(home, second, 6, "the night", 0.0)
    assert champion_store.read_champion(home).version == first


def test_a_version_that_cannot_be_loaded_never_becomes_champion(home, make_detector):
    first, second, _ = names(make_detector)
    champion_store.promote(home, first, 1, "better", 0.0)
    weights = home / "models" / second / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0\0")
    with pytest.raises(ModelError):
        champion_store.promote(home, second, 2, "better", 0.0)
    for name in ("", "..", "nowhere", "../models/" + second):
        with pytest.raises(ModelError, match="no version"):
            champion_store.promote(home, name, 2, "better", 0.0)
    assert champion_store.load_champion(home).version == first


@pytest.mark.parametrize("text", ["", "[]", '{"version": "x"}'])
def test_the_error_for_a_damaged_champion_file_names_the_file(tmp_path, text):
    (tmp_path / "champion.json").write_text(text)
    with pytest.raises(InputError, match=r"champion\.json"):
        champion_store.load_champion(tmp_path)


def test_a_version_is_found_by_the_beginning_of_its_name(home, make_detector):
    assert version_store.find_version(home, make_detector(1).version[:-3]).version == make_detector(1).version
    with pytest.raises(SettingsError, match="more than one"):
        version_store.find_version(home, "linear")


def test_the_service_takes_a_new_champion_over_and_refuses_a_damaged_one(home, make_detector):
    first, second, third = names(make_detector)
    handover = Handover(home, make_detector(0))
    assert handover.poll().version == first
    champion_store.promote(home, second, 1, "better", 0.0)
    assert handover.poll().version == second
    assert (handover.taken, handover.refused) == (1, 0)
    champion_store.promote(home, third, 2, "better", 0.0)
    weights = home / "models" / third / "weights.safetensors"
    weights.write_bytes(b"x" + weights.read_bytes()[1:])
    assert handover.poll().version == second
    assert handover.refused == 1
    assert "damaged or foreign" in handover.reason
    champion_store.rollback(home, 3, 0.0)
    assert handover.poll().version == second
    assert handover.reason == ""


def test_a_wrong_hash_in_champion_json_is_refused(home, make_detector):
    champion_store.promote(home, make_detector(0).version, 1, "better", 0.0)
    document = json.loads((home / "champion.json").read_text())
    (home / "champion.json").write_text(json.dumps(document | {"sha256": "0" * 64}))
    with pytest.raises(ModelError, match="damaged or foreign"):
        champion_store.load_champion(home)


def test_without_a_loadable_predecessor_the_bundled_detector_replaces_a_damaged_champion(home, make_detector):
    version = make_detector(0).version
    champion_store.promote(home, version, 1, "better", 0.0)
    (home / "models" / version / "weights.safetensors").write_bytes(b"x")
    detector, (note,) = champion_store.recover_champion(home, 2, 0.0)
    assert "the bundled detector is in service" in note
    assert champion_store.load_champion(home).version == detector.version != version
    assert champion_store.recover_champion(home, 3, 0.0)[1] == []


def test_a_person_who_replaces_a_damaged_champion_outranks_the_night_that_repairs_it(home, make_detector, monkeypatch):
    """The night removed champion.json, and with it the choice of the person."""
    first, second, third = names(make_detector)
    for fence, version in enumerate((first, second), start=1):
        champion_store.promote(home, version, fence, "better", 0.0)
    (home / "models" / second / "weights.safetensors").write_bytes(b"x")
    load = champion_store.load

    def slowly(*arguments):
        champion_store.promote(home, third, 9, "by hand", 0.0)
        return load(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(champion_store, "load", slowly)
        with pytest.raises(champion_store.StaleFence):
            champion_store.recover_champion(home, 3, 0.0)
    assert champion_store.read_champion(home).version == third


def test_a_champion_that_cannot_be_rolled_back_on_a_full_disk_is_not_forgotten(home, make_detector, monkeypatch):
    first, second, _ = names(make_detector)
    for fence, version in enumerate((first, second), start=1):
        champion_store.promote(home, version, fence, "better", 0.0)
    (home / "models" / second / "weights.safetensors").write_bytes(b"x")

    def full(path, *rest, **options):
        raise OutputError(f"{path}: cannot write: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", full)
        with pytest.raises(OutputError):
            champion_store.recover_champion(home, 3, 0.0)
    assert champion_store.recover_champion(home, 4, 0.0)[0].version == first
