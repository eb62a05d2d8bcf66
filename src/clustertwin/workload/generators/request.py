"""A wish for a synthetic log -> its blocks of jobs: read, fit or load, ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.workload.formats import read
from clustertwin.workload.generators import Fitted, WhatIf, load, make, save
from clustertwin.workload.generators.crossover import Recombined
from clustertwin.workload.generators.storage import read_state
from clustertwin.workload.jobs import Jobs


@dataclass(frozen=True, slots=True)
class Request:
    """What is wished for; factors as in `WhatIf`."""

    generator: str
    jobs: int | None = None  # default: as many as the log has, or as the days hold
    seed: int = 0
    load: float = 1.0
    machine: int | None = None
    users: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)
    days: float | None = None
    start_s: float | None = None

    @property
    def whatif(self) -> WhatIf:
        return WhatIf(self.load, self.machine, self.users, self.sizes, self.start_s, self.days)


@dataclass(frozen=True, slots=True)
class Made:
    blocks: Iterator[Jobs]
    expected: int | None  # jobs, where that is known beforehand
    generator: str
    fit_s: float


def produce(real: Path, asked: Request, lenient: bool = False, keep: Path | None = None, force: bool = False) -> Made:
    """The blocks, drawn as they are taken. `real`: a log, or the directory of a saved generator."""
    whatif, rng = asked.whatif, np.random.default_rng(asked.seed)
    began = perf_counter()
    name, log = asked.generator, None
    fitted: Fitted
    if real.is_dir():
        name, _ = read_state(real)
        fitted = load(real)
    else:
        log = read(real, lenient)
        fitted = make(name).fit(log, np.random.default_rng(asked.seed))
    fit_s = perf_counter() - began
    if keep is not None:
        save(fitted, name, keep, force)
    n = asked.jobs
    if n is None and asked.days is None:
        if log is None:
            raise SettingsError("a saved generator has to be told --jobs or --days")
        n = len(log)
    if isinstance(fitted, Recombined):
        return Made(fitted.imagine(n, rng, whatif), n, name, fit_s)
    if whatif != WhatIf() or n is None:
        raise SettingsError(f"{name} draws jobs as they come; only crossover answers what-if questions")
    return Made(fitted.stream(n, rng), n, name, fit_s)
