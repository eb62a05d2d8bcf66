"""CTGAN, TVAE and CopulaGAN as the Synthetic Data Vault has them: rows -> rows. The extra [sdv]; SDV 2.0 is BUSL-1.1.

SDV saves its models by pickle only, so they cannot be saved here: keep the log they made.
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
from clustertwin.workload.generators.rows import CODES, Floats, Frame, rows
from clustertwin.workload.jobs import Jobs

BLOCK_JOBS = 50_000


@dataclass(frozen=True, slots=True)
class Sdv:
    """What the three share: their synthesizers take the same arguments."""

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
        with _quiet(rng):
            model = getattr(models, self.synthesizer)(
                metadata, epochs=self.epochs, batch_size=self.batch, enable_gpu=False
            )
            model.fit({"jobs": table})
        return FittedSdv(model, Frame.of(jobs))


class Ctgan(Sdv):
    synthesizer = "CTGANSynthesizer"


class Tvae(Sdv):
    synthesizer = "TVAESynthesizer"


class CopulaGan(Sdv):
    synthesizer = "CopulaGANSynthesizer"


@dataclass(frozen=True, slots=True)
class FittedSdv(Fitted):
    model: Any
    frame: Frame

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        return self.frame.stream(n, BLOCK_JOBS, lambda count: self._rows(count, rng))

    def _rows(self, count: int, rng: np.random.Generator) -> dict[str, Floats]:
        with _quiet(rng):
            self.model.reset_sampling()
            # SDV samples from a fixed seed of its own, and has no public way to give it another.
            self.model._set_random_state(int(rng.integers(2**31)))
            table = self.model.sample(count)["jobs"]
        return {name: table[name].to_numpy(dtype=np.float64) for name in table}


@contextmanager
def _quiet(rng: np.random.Generator) -> Iterator[None]:
    """SDV draws from torch's and numpy's global generators, and advises on standard output: seeded, and kept still."""
    require("torch", "sdv").manual_seed(int(rng.integers(2**31)))
    before = np.random.get_state()
    np.random.seed(int(rng.integers(2**31)))
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(before)
