import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.engine import each
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.models.training import TrainingSettings
from clustertwin.telemetry.studies.reference.ensembles import (
    EnsembleMember,
    StudySource,
    load,
    members,
    train_one,
)
from clustertwin.telemetry.studies.reference.presets import StudyRequest, resolve
from clustertwin.telemetry.studies.reference.reconstruction_section import reconstruction_section

TINY = StudySource(nodes=1, threads=8, hours=0.4, test_hours=0.6)
FEW = [
    EnsembleMember("linear", TrainingSettings(epochs=1, seed=seed, options={"latent": 8}), TINY) for seed in range(2)
]


@pytest.fixture(scope="module")
def evaluated():
    return [train_one(member) for member in FEW]


def results(member):
    """All results but the time; NaN is replaced, so that results can be compared."""
    plain = {"normal": member.normal, "anomalous": member.anomalous, "silhouette": member.silhouette}
    plain = {name: "none" if math.isnan(value) else value for name, value in plain.items()}
    return plain | {"kinds": member.by_kind, "auc": member.auc}


@pytest.mark.medium
def test_an_evaluated_member_holds_the_evaluated_model(evaluated):
    from clustertwin.telemetry.studies.reference.embedding_quality import embed

    test = load(TINY).windows("test")
    error = embed(evaluated[0].model(Shape()), test)[1]
    assert float(error[test.anomaly == ""].mean()) == pytest.approx(evaluated[0].normal)


def test_every_recipe_has_the_requested_number_of_seeds():
    ensemble = members(TINY, ["linear", "ae"], 3)
    assert [(member.recipe, member.settings.seed) for member in ensemble] == [
        (n, s) for n in ("linear", "ae") for s in range(3)
    ]


@pytest.mark.slow
def test_the_baselines_are_the_first_rows_of_the_table(evaluated):
    section = reconstruction_section(load(TINY), evaluated)
    names = [row[0] for row in section.tables[0].rows]
    baselines = ["channel means, no model", "means, deviations, steps, no model", "PCA-8", "PCA-8 per kind of job"]
    assert names == [*baselines, "linear"]
    assert section.tables[0].baselines == 4
    assert section.pictures[0].svg.startswith("<svg")


def test_words_are_parts_or_directories(tmp_path):
    source, plan = resolve(StudyRequest(["sampling", str(tmp_path)], window_s=30))
    assert (source.roots, source.length_s, source.stride_s) == ((str(tmp_path),), 30, 30)
    assert plan.parts == ("sampling",)
    with pytest.raises(SettingsError, match="neither a directory nor a part"):
        resolve(StudyRequest(["samplign"]))
    with pytest.raises(SettingsError, match="unknown recipe 'nonsense'; available recipes: linear"):
        resolve(StudyRequest(models="nonsense"))
    with pytest.raises(SettingsError, match="unknown engine 'dask'; possible values: here, ray"):
        resolve(StudyRequest(engine="dask"))


def train_or_die(item):
    """Train; the first worker that gets an item with a mark dies."""
    member, mark = item
    if mark and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return train_one(member)


@pytest.mark.slow
def test_two_ray_nodes_give_the_numbers_of_one_process_and_a_killed_member_is_retrained(two_nodes, tmp_path):
    ensemble = [replace(FEW[0], settings=replace(FEW[0].settings, seed=seed)) for seed in range(10)]
    marks = [str(tmp_path / "died") if i == 4 else "" for i in range(10)]
    on_ray = each(train_or_die, list(zip(ensemble, marks, strict=True)), engine="ray")
    here = each(train_one, ensemble, workers=1)
    assert (tmp_path / "died").exists()
    assert [results(member) for member in here] == [results(member) for member in on_ray]


@pytest.mark.slow
def test_the_command_writes_one_report_that_needs_nothing_else(twin, tmp_path):
    import json

    done = twin(
        "study", "sampling", "reconstruction", "--preset", "quick", "--ensemble", "1", "--epochs", "1",
        "--models", "linear", "--workers", "1", "--out", str(tmp_path), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert list(document["sections"]) == ["sampling", "reconstruction"]
    page = (tmp_path / "report.html").read_text()
    assert "http" not in page.replace("http://www.w3.org", ""), "a report fetches nothing"
    assert json.loads((tmp_path / "study.json").read_text())["sections"].keys() == document["sections"].keys()


@pytest.mark.slow
def test_a_part_that_needs_longer_recordings_says_so_and_the_others_run(tmp_path):
    from clustertwin.telemetry.campaign.simulated_rounds import write_rounds
    from clustertwin.telemetry.simulation.demand import ClusterSettings
    from clustertwin.telemetry.simulation.signature import read_signatures
    from clustertwin.telemetry.studies.reference.study_run import StudyPlan, run_study

    small = ClusterSettings(nodes=1, threads=4, hours=0.25, job_types=("np", "good-io", "mpi-2"), job_s=(34, 36))
    list(write_rounds(tmp_path, small, read_signatures(), rounds=3, seed=1))
    plan = StudyPlan(("sampling", "reconstruction", "detection"), ("linear",), ensemble=1, epochs=1, workers=1)
    sampling, reconstruction, detection = run_study(StudySource((str(tmp_path),), length_s=30), plan)
    assert "too short for a spectrum" in sampling.text
    assert [row[1] for row in reconstruction.tables[0].rows] == [4, 12, 30, 30, 30], (
        "the embedding has at most one number per second"
    )
    assert "Not possible with these data: the detector needs windows of 100 s, these have 30 s" in detection.text


def test_all_recordings_are_test_data_if_models_are_trained_on_a_simulation(tmp_path):
    from clustertwin.telemetry.campaign.simulated_rounds import write_rounds
    from clustertwin.telemetry.simulation.demand import ClusterSettings
    from clustertwin.telemetry.simulation.signature import read_signatures

    small = ClusterSettings(nodes=1, threads=2, hours=0.2, job_types=("np",), job_s=(110, 130))
    list(write_rounds(tmp_path, small, read_signatures(), rounds=2, seed=1))
    with pytest.raises(SettingsError, match="none for test: record at least three rounds"):
        load(StudySource((str(tmp_path),)))
    data = load(replace(TINY, roots=(str(tmp_path),), learn="simulated", stride_s=5))
    assert [len(part) for part in (data.train, data.validation, data.test)] == [1, 1, 2]
    assert data.train[0][0].values.shape == load(TINY).train[0][0].values.shape
    assert len(data.windows("test")) > 5 * len(replace(data, test_stride_s=100).windows("test")), (
        "overlapping windows use short jobs"
    )
