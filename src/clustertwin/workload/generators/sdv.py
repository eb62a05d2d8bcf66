"""CTGAN, TVAE and CopulaGAN from the Synthetic Data Vault: rows -> rows. Extra [sdv]; SDV 2.0 is BUSL-1.1.

SDV can save its models only with pickle, so they cannot be saved here. Keep the synthetic log instead.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clustertwin.core.extras import require
from clustertwin.workload.generators.contract import Fitted, check_log
from clustertwin.workload.generators.job_rows import CODES, Floats, RowDecoder, rows
from clustertwin.workload.generators.workload_change import ModelledLog
from clustertwin.workload.jobs import Jobs

BLOCK_JOBS = 50_000


@dataclass(frozen=True, slots=True)
class Sdv:
    """The common part of the three; their synthesizers take the same arguments."""

    epochs: int = 300
    batch: int = 500
    synthesizer: ClassVar[str] = ""

    def fit(self, jobs: Jobs, rng: np.random.Generator) -> FittedSdv:
        check_log(jobs)
        models = require("sdv.single_table", "sdv")
        metadata = require("sdv.metadata", "sdv").Metadata()
        frames = require("pandas", "sdv")
        columns = rows(jobs)
        metadata.add_table("jobs")
        for name in columns:
            metadata.add_column(name, "jobs", sdtype="categorical" if name in CODES else "numerical")
        table = frames.DataFrame({name: v.astype(str) if name in CODES else v for name, v in columns.items()})
        with _seeded_and_quiet(rng):
            model = getattr(models, self.synthesizer)(
                metadata, epochs=self.epochs, batch_size=self.batch, enable_gpu=False
            )
            model.fit({"jobs": table})
        decoder = RowDecoder.of(jobs)
        return FittedSdv(model, decoder, decoder.modelled_log(np.unique(columns.get("user", ()))))


class Ctgan(Sdv):
    synthesizer = "CTGANSynthesizer"


class Tvae(Sdv):
    synthesizer = "TVAESynthesizer"


class CopulaGan(Sdv):
    synthesizer = "CopulaGANSynthesizer"


@dataclass(frozen=True, slots=True)
class FittedSdv(Fitted):
    model: Any
    decoder: RowDecoder
    log: ModelledLog

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        return self.decoder.stream(n, BLOCK_JOBS, lambda count: self._rows(count, rng))

    def _rows(self, count: int, rng: np.random.Generator) -> dict[str, Floats]:
        with _seeded_and_quiet(rng):
            self.model.reset_sampling()
            # SDV samples with a fixed seed of its own and has no public way to change it.
            self.model._set_random_state(int(rng.integers(2**31)))
            table = self.model.sample(count)["jobs"]
        return {name: table[name].to_numpy(dtype=np.float64) for name in table}

    def modelled_log(self) -> ModelledLog:
        return self.log


@contextmanager
def _seeded_and_quiet(rng: np.random.Generator) -> Iterator[None]:
    """Seed the global generators of torch and numpy, which SDV uses, and suppress its advice on standard output."""
    require("torch", "sdv").manual_seed(int(rng.integers(2**31)))
    before = np.random.get_state()
    np.random.seed(int(rng.integers(2**31)))
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(before)
