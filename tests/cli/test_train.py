"""`twin train` and the directories that commands take."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory, twin) -> Path:
    out = tmp_path_factory.mktemp("campaign") / "sim"
    size = ("--nodes", "1", "--threads", "4", "--hours", "1", "--rounds", "2")
    done = twin("campaign", "simulate", "--out", out, *size)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_train_keeps_a_model_unless_forced(twin_here, campaign: Path, tmp_path: Path):
    out = tmp_path / "model"
    words = ("train", campaign, "--out", out, "--epochs", 1)
    first = twin_here(*words)
    assert first.returncode == 0, first.stderr
    card = (out / "model.json").read_bytes()
    refused = twin_here(*words, "--seed", 1)
    assert refused.returncode == 1
    assert "already exists; use --force to overwrite it" in refused.stderr
    assert (out / "model.json").read_bytes() == card
    forced = twin_here(*words, "--seed", 1, "--force")
    assert forced.returncode == 0, forced.stderr
    assert (out / "model.json").read_bytes() != card


@pytest.mark.slow
def test_a_campaign_directory_points_to_its_recordings(twin_here, campaign: Path, tmp_path: Path):
    replayed = twin_here("up", "--replay", campaign, "--no-browser", "--port", 0, "--home", tmp_path)
    assert replayed.returncode == 1
    assert f"it contains 2 recordings, use one of them: {campaign}/round-000, {campaign}/round-001" in replayed.stderr
