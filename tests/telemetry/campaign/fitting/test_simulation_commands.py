"""`twin campaign simulate`, `fit` and `compare`, as a person calls them."""

import json

import pytest
from typer.testing import CliRunner

from clustertwin.cli.campaign import app
from clustertwin.core.errors import InputError, SettingsError
from clustertwin.telemetry.simulation.signature import read_signatures, write_signatures


@pytest.fixture
def file(signatures, tmp_path):
    write_signatures(tmp_path / "signatures.json", signatures)
    return str(tmp_path / "signatures.json")


def twin(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def small(out, file, *more):
    size = ("--nodes", 2, "--threads", 4, "--hours", 0.2, "--job-seconds", 60, 200)
    return twin("simulate", "--out", out, "--signatures", file, *size, *more)


def test_simulate_writes_rounds_and_one_json_document(tmp_path, file):
    done = small(tmp_path / "out", file, "--rounds", 2, "--seed", 7, "--json")
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert [row["split"] for row in document["rounds"]] == ["train", "validation"]
    assert (tmp_path / "out" / "round-001").is_dir()
    assert document["settings"]["nodes"] == 2


def test_an_unknown_anomaly_is_a_settings_error_that_lists_them(tmp_path, file):
    done = small(tmp_path / "out", file, "--anomalies", "gremlins")
    assert isinstance(done.exception, SettingsError)
    assert "straggler-x2" in str(done.exception)


def test_simulating_twice_into_one_directory_is_refused(tmp_path, file):
    assert small(tmp_path / "out", file, "--rounds", 1).exit_code == 0
    again = small(tmp_path / "out", file, "--rounds", 1)
    assert again.exit_code != 0
    assert "already holds a recording" in str(again.exception)


def test_fit_without_recordings_is_an_input_error(tmp_path):
    done = twin("fit", tmp_path, "--out", tmp_path / "new.json")
    assert isinstance(done.exception, InputError)
    assert not (tmp_path / "new.json").exists()


@pytest.mark.slow
def test_a_simulated_campaign_can_be_fitted_drawn_again_and_compared(tmp_path, file):
    assert small(tmp_path / "one", file, "--rounds", 3, "--types", "np", "--anomalies", "bad-io").exit_code == 0
    fitted = twin("fit", tmp_path / "one", "--out", tmp_path / "new.json", "--json")
    assert fitted.exit_code == 0
    kinds = read_signatures(tmp_path / "new.json").kinds
    assert {("np", ""), ("idle", "")} <= kinds.keys()
    assert "kernel" in json.loads(fitted.stdout)["provenance"]
    assert small(tmp_path / "two", tmp_path / "new.json", "--rounds", 3, "--types", "np", "--seed", 1).exit_code == 0
    done = twin(
        "compare", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "figures", "--length-s", 30, "--json"
    )
    assert done.exit_code == 0
    rows = {row["job_type"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["np"]["marginal_distance"] < 0.05
    assert (tmp_path / "figures" / "np.png").stat().st_size > 10_000
