"""REaLTabFormer (Solatorio and Dupriez, 2023) on rows: a GPT-2 writes jobs as text. Extra [realtabformer].

Model and training are those of the library: 6 layers of width 768, up to 1,000 epochs, and its critic, which samples
every five epochs and stops the training when synthetic rows come too close to real ones. All epochs take weeks on one
processor, so the training gets a budget of processor time: as many epochs as fit, with the learning rate falling to
zero at their end. The critic needs a budget of five epochs or more.

The library can save its models only with pickle, so they cannot be saved here. Keep the synthetic log instead.
"""

from __future__ import annotations

import io
import math
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np

from clustertwin.core.extras import require
from clustertwin.workload.generators.contract import Fitted, LossCurve, check_log
from clustertwin.workload.generators.job_rows import CODES, Floats, RowDecoder, rows
from clustertwin.workload.generators.workload_change import ModelledLog
from clustertwin.workload.jobs import Jobs

BLOCK_JOBS = 5_000
#: Steps of two short trainings. Their difference is the time of a step without the time to set up.
PACE_STEPS = (1, 5)
ACCUMULATED_BATCHES = 4  # batches of one step of the optimiser, as in the library


@dataclass(frozen=True, slots=True)
class RealTabFormer:
    epochs: int = 1000
    batch: int = 8
    layers: int = 6
    heads: int = 12
    width: int = 768
    critic_epochs: int = 5  # epochs between two rounds of the critic; 0 trains without it
    bfloat16: bool = True  # mixed precision: the library has it on GPUs; it halves the time on newer processors
    budget_minutes: float = 45.0  # processor time of the training; math.inf trains all epochs

    def fit(self, jobs: Jobs, rng: np.random.Generator) -> FittedRealTabFormer:
        check_log(jobs)
        require("realtabformer", "realtabformer")  # a missing package should be reported before the work begins
        frames = require("pandas", "realtabformer")
        columns = rows(jobs)
        table = frames.DataFrame({name: v.astype(str) if name in CODES else v for name, v in columns.items()})
        seed = int(rng.integers(2**31))
        epochs = min(float(self.epochs), self._epochs_in_budget(table, seed))
        critic = self.critic_epochs if self.critic_epochs and epochs >= self.critic_epochs else 0
        # The library counts whole epochs between the rounds of the critic.
        model, losses = self._train(table, seed, int(epochs) if critic else epochs, critic)
        decoder = RowDecoder.of(jobs)
        return FittedRealTabFormer(model, decoder, decoder.modelled_log(np.unique(columns.get("user", ()))), losses)

    def _epochs_in_budget(self, table: Any, seed: int) -> float:
        """How many epochs the budget allows, from the pace of a few steps."""
        if math.isinf(self.budget_minutes):
            return math.inf
        times_s = []
        for steps in PACE_STEPS:
            began_s = process_time()
            self._train(table, seed, 1, 0, max_steps=steps)
            times_s.append(process_time() - began_s)
        step_s = max(times_s[1] - times_s[0], 1e-3) / (PACE_STEPS[1] - PACE_STEPS[0])
        steps_each = math.ceil(len(table) / (self.batch * ACCUMULATED_BATCHES))
        return self.budget_minutes * 60 / step_s / steps_each

    def _train(self, table: Any, seed: int, epochs: float, critic: int, **training: Any) -> tuple[Any, LossCurve]:
        models, transformers = require("realtabformer", "realtabformer"), require("transformers", "realtabformer")
        config = transformers.GPT2Config(n_layer=self.layers, n_head=self.heads, n_embd=self.width)
        with tempfile.TemporaryDirectory() as scratch, _quiet():
            model = models.REaLTabFormer(
                model_type="tabular", tabular_config=config, epochs=epochs, batch_size=self.batch,
                gradient_accumulation_steps=ACCUMULATED_BATCHES, random_state=seed,
                checkpoints_dir=f"{scratch}/checkpoints", samples_save_dir=f"{scratch}/samples",
                full_save_dir=f"{scratch}/full", logging_steps=20, bf16=self.bfloat16,
                report_to="none", disable_tqdm=True, use_cpu=True, **training,
            )  # fmt: skip
            trainer = model.fit(table, device="cpu", n_critic=critic, save_full_every_epoch=0, gen_kwargs={})
        history = trainer.state.log_history
        return model, tuple((float(entry["epoch"]), float(entry["loss"])) for entry in history if "loss" in entry)


@dataclass(frozen=True, slots=True)
class FittedRealTabFormer(Fitted):
    model: Any
    decoder: RowDecoder
    log: ModelledLog
    curve: LossCurve = ()

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        return self.decoder.stream(n, BLOCK_JOBS, lambda count: self._rows(count, rng))

    def _rows(self, count: int, rng: np.random.Generator) -> dict[str, Floats]:
        torch, transformers = require("torch", "realtabformer"), require("transformers", "realtabformer")
        transformers.set_seed(int(rng.integers(2**31)))
        with torch.no_grad(), _quiet():
            table = self.model.sample(n_samples=count, device="cpu", gen_batch=256)
        return {name: table[name].to_numpy(dtype=np.float64) for name in table}

    def modelled_log(self) -> ModelledLog:
        return self.log

    def losses(self) -> LossCurve:
        return self.curve


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the library's messages, warnings and progress bars."""
    messages = require("transformers", "realtabformer").logging
    verbosity = messages.get_verbosity()
    messages.set_verbosity_error()
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        messages.set_verbosity(verbosity)
