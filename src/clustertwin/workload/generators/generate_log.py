"""Generate a synthetic log: a real log or a saved generator, and settings -> blocks of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.workload.fidelity.measures.concurrency import submits_are_starts
from clustertwin.workload.fidelity.measures.offered_load import capacity
from clustertwin.workload.formats import read
from clustertwin.workload.generators import DEFAULT, Fitted, Generator, WorkloadChange, load, make, save
from clustertwin.workload.generators.contract import LossCurve
from clustertwin.workload.generators.saved_generator import read_state
from clustertwin.workload.jobs import Jobs


@dataclass(frozen=True, slots=True)
class GenerateSettings:
    generator: str = DEFAULT
    jobs: int | None = None  # default: as many as the log has, or as the days of the change hold
    seed: int = 0
    change: WorkloadChange = field(default_factory=WorkloadChange)
    budget_minutes: float | None = None  # processor time of a training; only for generators that have a budget


@dataclass(frozen=True, slots=True)
class GeneratedLog:
    blocks: Iterator[Jobs]  # drawn as they are taken
    expected: int | None  # number of jobs, if it is known beforehand
    generator: str
    fit_s: float
    not_learnt: tuple[str, ...] = ()
    starts_on: int | None = None  # size of the machine, if the real log records starts as submissions
    losses: LossCurve = ()


def generate(
    source: Path, settings: GenerateSettings, lenient: bool = False, save_to: Path | None = None, force: bool = False
) -> GeneratedLog:
    """Fit a generator to a log, or load it from a directory, and generate. `save_to` keeps the fitted generator."""
    began = perf_counter()
    name, log = settings.generator, None
    fitted: Fitted
    if source.is_dir():
        name, _ = read_state(source)
        fitted = load(source)
    else:
        log = read(source, lenient)
        if settings.change.days is not None and log.submit_s[-1] == log.submit_s[0]:
            raise SettingsError("all jobs of the log have one submit time: give a number of jobs instead of days")
        fitted = _generator(settings).fit(log, np.random.default_rng(settings.seed))
    fit_s = perf_counter() - began
    if save_to is not None:
        save(fitted, name, save_to, force)
    n = settings.jobs
    if n is None and settings.change.days is None:
        if log is None:
            raise SettingsError("give --jobs or --days: a saved generator does not know the length of the log")
        n = len(log)
    blocks = fitted.what_if(n, np.random.default_rng(settings.seed), settings.change)
    starts_on = _starts_on(log, settings.change) if log is not None else None
    return GeneratedLog(_not_empty(blocks), n, name, fit_s, fitted.not_learnt(), starts_on, fitted.losses())


def _starts_on(log: Jobs, change: WorkloadChange) -> int | None:
    on = capacity(log)
    return (change.machine or on.procs) if submits_are_starts(log, on) else None


def _generator(settings: GenerateSettings) -> Generator:
    generator: Any = make(settings.generator)
    if settings.budget_minutes is None:
        return cast(Generator, generator)
    if not hasattr(generator, "budget_minutes"):
        raise SettingsError(f"{settings.generator} has no budget of training time; findiff and realtabformer have one")
    return cast(Generator, replace(generator, budget_minutes=settings.budget_minutes))


def _not_empty(blocks: Iterator[Jobs]) -> Iterator[Jobs]:
    jobs = 0
    for block in blocks:
        jobs += len(block)
        yield block
    if not jobs:
        raise SettingsError("no jobs were generated: the period is too short")
