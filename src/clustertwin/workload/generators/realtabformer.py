"""REaLTabFormer (Solatorio and Dupriez, 2023) on rows: a toy GPT-2 writes jobs as text. Extra [realtabformer].

The defaults here are far below those of the library: 3 layers of width 128 and 20 epochs without the critic, where the
library has 6 layers of width 768 and up to 1,000 epochs with the critic. They fit a two-core machine in minutes and say
little about what the method can do.

The library can save its models only with pickle, so they cannot be saved here. Keep the synthetic log instead.
"""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustertwin.core.extras import require
from clustertwin.workload.generators.contract import Fitted, check_log
from clustertwin.workload.generators.job_rows import CODES, Floats, RowDecoder, rows
from clustertwin.workload.generators.workload_change import ModelledLog
from clustertwin.workload.jobs import Jobs

BLOCK_JOBS = 5_000


@dataclass(frozen=True, slots=True)
class RealTabFormer:
    epochs: int = 20
    batch: int = 64
    layers: int = 3
    heads: int = 4
    width: int = 128

    def fit(self, jobs: Jobs, rng: np.random.Generator) -> FittedRealTabFormer:
        check_log(jobs)
        models, transformers = require("realtabformer", "realtabformer"), require("transformers", "realtabformer")
        frames = require("pandas", "realtabformer")
        columns = rows(jobs)
        table = frames.DataFrame({name: v.astype(str) if name in CODES else v for name, v in columns.items()})
        config = transformers.GPT2Config(n_layer=self.layers, n_head=self.heads, n_embd=self.width)
        with tempfile.TemporaryDirectory() as scratch:
            model = models.REaLTabFormer(
                model_type="tabular", tabular_config=config, epochs=self.epochs, batch_size=self.batch,
                random_state=int(rng.integers(2**31)), checkpoints_dir=f"{scratch}/checkpoints",
                samples_save_dir=f"{scratch}/samples", full_save_dir=f"{scratch}/full",
                report_to="none", disable_tqdm=True, use_cpu=True,
            )  # fmt: skip
            # n_critic=0 disables the search for the best stopping point, which takes hours: it samples whole tables.
            with _quiet():
                model.fit(table, n_critic=0)
        decoder = RowDecoder.of(jobs)
        return FittedRealTabFormer(model, decoder, decoder.modelled_log(np.unique(columns.get("user", ()))))


@dataclass(frozen=True, slots=True)
class FittedRealTabFormer(Fitted):
    model: Any
    decoder: RowDecoder
    log: ModelledLog

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


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the library's messages, warnings and progress bars."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
