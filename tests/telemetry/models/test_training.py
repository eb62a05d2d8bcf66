from dataclasses import replace

import numpy as np
import pytest
import torch

from clustertwin.core.channels import CPU
from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.traces import Windows
from clustertwin.telemetry.models.batches import group_windows
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.models.training import TrainingSettings, fit, infer, settings_for_length

QUICK = TrainingSettings(model="linear", epochs=4, batch=32, options={"latent": 8, "hidden": 32})


def some_windows(n: int, seed: int) -> Windows:
    """Threads that are busy in a square wave of their own period."""
    rng = np.random.default_rng(seed)
    phase, period = rng.uniform(0, 50, (n, 1)), rng.choice([10, 25, 50], (n, 1))
    user = 0.05 + 0.9 * ((np.arange(100) + phase) % period < period / 2)  # (n, 100)
    values = np.stack([user, np.full_like(user, 0.02), np.zeros_like(user), 0.98 - user], -1).astype(np.float32)
    node = np.array([f"n{i % 2}" for i in range(n)])
    job = np.array(["", "a", "b"])[rng.integers(0, 3, n)]
    empty = np.full(n, "")
    return Windows(
        CPU, values, np.ones((n, 100), bool), np.repeat(np.arange(n // 4 + 1) * 100, 4)[:n], node,
        np.arange(n, dtype=np.int32), job, empty, empty, empty, empty,
    )  # fmt: skip


TRAIN, HELD_OUT = some_windows(256, 0), some_windows(64, 1)


def test_training_lowers_the_validation_error():
    history = fit(TRAIN, HELD_OUT, replace(QUICK, epochs=12)).history
    assert history[-1].validation < 0.8 * history[0].validation


def test_the_embedding_of_a_short_window_has_one_number_per_second():
    short = settings_for_length(TrainingSettings(epochs=1), 30)
    cut = [replace(part, values=part.values[:, :30], valid=part.valid[:, :30]) for part in (TRAIN, HELD_OUT)]
    assert fit(*cut, short).model.config.latent == 30
    assert settings_for_length(QUICK, 30) == QUICK, "a latent size that the user chose is kept"
    assert settings_for_length(TrainingSettings(), 100) == TrainingSettings()
    assert settings_for_length(TrainingSettings(model="ae"), 30) == TrainingSettings(model="ae")


@pytest.mark.medium
def test_the_same_seed_gives_the_same_model():
    first, second = fit(TRAIN, HELD_OUT, QUICK), fit(TRAIN, HELD_OUT, QUICK)
    assert first.history == second.history
    assert fit(TRAIN, HELD_OUT, replace(QUICK, seed=1)).history != first.history


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path):
    uninterrupted = fit(TRAIN, HELD_OUT, QUICK)

    def die_after_two(epoch):
        if epoch.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(TRAIN, HELD_OUT, QUICK, progress=die_after_two, checkpoint=tmp_path)
    epochs = []
    resumed = fit(TRAIN, HELD_OUT, QUICK, progress=lambda epoch: epochs.append(epoch.number), checkpoint=tmp_path)
    assert epochs == [3, 4]
    assert resumed.history == uninterrupted.history
    expected, weights = uninterrupted.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(expected[key], weights[key]) for key in expected)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    fit(TRAIN, HELD_OUT, QUICK, checkpoint=tmp_path)
    with pytest.raises(InputError, match="other settings"):
        fit(TRAIN, HELD_OUT, replace(QUICK, rate=1e-4), checkpoint=tmp_path)


def test_a_checkpoint_of_other_windows_is_refused(tmp_path):
    fit(TRAIN, HELD_OUT, QUICK, checkpoint=tmp_path)
    with pytest.raises(InputError, match="other windows"):
        fit(some_windows(256, 2), HELD_OUT, QUICK, checkpoint=tmp_path)


def test_the_error_for_no_windows_gives_their_numbers():
    with pytest.raises(SettingsError, match="0 training"):
        fit(TRAIN.take(np.zeros(256, bool)), HELD_OUT, QUICK)


def test_windows_that_do_not_fit_the_model_are_refused():
    with pytest.raises(SettingsError, match="accepts windows of 50 samples"):
        group_windows(TRAIN, "", Shape(CPU, 50))


@pytest.mark.parametrize("graph", ["", "node", "job"])
def test_batches_hold_every_window_once_and_never_split_a_group(graph):
    data = group_windows(TRAIN, graph, Shape())
    parts = list(data.batches(32, torch.Generator().manual_seed(0)))
    assert sum(len(part.x) for part in parts) == len(TRAIN)
    groups = [set(part.group.tolist()) for part in parts]
    assert sum(map(len, groups)) == len(set().union(*groups))


def test_threads_without_a_job_are_graphs_of_one():
    data = group_windows(TRAIN, "job", Shape())
    counts = torch.bincount(data.group)
    jobless = np.flatnonzero(TRAIN.job[data.order] == "")
    assert (counts[data.group[jobless]] == 1).all()
    assert counts.max() > 1


def test_results_are_in_the_original_order_of_the_windows():
    model = fit(TRAIN, HELD_OUT, QUICK).model
    data = group_windows(HELD_OUT, "node", Shape())
    shuffled = HELD_OUT.take(np.arange(64)[::-1].copy())
    forward, backward = infer(model, data)[1], infer(model, group_windows(shuffled, "node", Shape()))[1]
    assert torch.allclose(forward, backward.flip(0), atol=1e-6)


def test_the_contrastive_loss_is_part_of_the_training_loss():
    plain, contrastive = (fit(TRAIN, HELD_OUT, replace(QUICK, contrast=weight)).history[0] for weight in (0.0, 0.1))
    assert contrastive.train > plain.train + 0.05, "a tenth of a loss that is above one for random jobs"


def test_training_restores_denormals():
    fit(TRAIN, HELD_OUT, replace(QUICK, epochs=1))
    assert float(torch.tensor(1e-40) * 1.0) > 0
