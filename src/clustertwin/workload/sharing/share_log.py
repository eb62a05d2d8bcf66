"""Share a log: a real log and ε -> a synthetic log, the model, and how far both can be trusted.

The published model is fitted to the whole log. Attacks need people who are not in a log, so they are tried on two other
models with noise of their own, each fitted to every second user while the other half is held out. They are not
published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from clustertwin.core.errors import TraceError
from clustertwin.workload.clean import clean
from clustertwin.workload.fidelity.scorecard import LEAST_JOBS, Scorecard, scorecard
from clustertwin.workload.generators.private import FittedPrivate, Private
from clustertwin.workload.generators.private.private_generator import DEFAULT_DELTA, DEFAULT_EPSILON, LEAST_UNITS
from clustertwin.workload.generators.private.protected_units import protected_units
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.privacy import Attacks, attack, averaged

#: No log of a machine has more. Noise can ask for any number, if the work of a session is lost in it.
MOST_SHARED_JOBS = 20_000_000


@dataclass(frozen=True, slots=True)
class ShareSettings:
    epsilon: float = DEFAULT_EPSILON
    delta: float = DEFAULT_DELTA
    procs: int | None = None  # size of the machine; default: the size that the log states
    public_load: float | None = None  # the offered load, if it is published anyway
    seed: int = 0  # of the synthetic log; the noise has no seed
    noise_seed: int | None = None  # only for tests


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The part of the log that an attacked model never saw, and what the attacks found on average."""

    users: int
    jobs: int
    attacks: Attacks


@dataclass(frozen=True, slots=True)
class SharedLog:
    """What is published, and the figures of the card."""

    settings: ShareSettings
    model: FittedPrivate
    jobs: Jobs
    fidelity: Scorecard  # against the whole real log; its attacks use no hold-out
    held_out: HeldOut | None  # None: too few users to hold some out
    removed: dict[str, int]  # reason -> jobs of the real log that were left out
    real_jobs: int  # jobs of the real log that remain


#: The steps of `share`.
STEPS = ("fitting and generating", "comparing", "attacking one half of the users", "attacking the other half")


def share(
    log: Jobs,
    settings: ShareSettings = ShareSettings(),
    show: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> SharedLog:
    """Clean the log, fit, generate, judge. `show` is called before each step with its name, number and their count."""

    def begin(step: int) -> None:
        show(STEPS[step], step, len(STEPS))

    cleaned = clean(log)
    real = cleaned.jobs
    if len(real) < LEAST_JOBS:
        raise TraceError("the log", f"{len(real)} jobs that ran are too few; a shared log needs {LEAST_JOBS}")
    begin(0)
    model, jobs = _generated(real, settings, settings.noise_seed)
    procs = model.grid.machine
    begin(1)
    card = scorecard(real, jobs, "shared log", procs, settings.seed)
    removed = {reason: len(ids) for reason, ids in cleaned.removed.items()}
    return SharedLog(settings, model, jobs, card, _held_out(real, settings, begin), removed, len(real))


def _generated(real: Jobs, settings: ShareSettings, noise_seed: int | None) -> tuple[FittedPrivate, Jobs]:
    generator = Private(settings.epsilon, settings.delta, settings.procs, settings.public_load, noise_seed)
    model = generator.fit(real, np.random.default_rng())
    if model.expected_jobs > MOST_SHARED_JOBS:
        reason = (
            f"the noisy counts ask for {model.expected_jobs:,} synthetic jobs: too few users for ε = "
            f"{settings.epsilon:g}. Use a longer log, a larger --epsilon, or --public-load"
        )
        raise TraceError("the log", reason)
    return model, model.sample(max(model.expected_jobs, LEAST_JOBS), np.random.default_rng(settings.seed))


def _held_out(real: Jobs, settings: ShareSettings, begin: Callable[[int], None]) -> HeldOut | None:
    """Fit to every second unit and attack with the other half, then the other way round."""
    units = protected_units(real)
    even = units.unit % 2 == 0
    if units.count < 2 * LEAST_UNITS or min(even.sum(), (~even).sum()) < LEAST_JOBS:
        return None
    # Half of the users are half of the load, if the load is public.
    half = replace(settings, public_load=settings.public_load / 2 if settings.public_load is not None else None)
    found = []
    for turn, seen in enumerate((even, ~even)):
        begin(2 + turn)
        noise_seed = None if settings.noise_seed is None else settings.noise_seed + 1 + turn
        _, published = _generated(real.take(seen), half, noise_seed)
        found.append(attack(real.take(seen), published, settings.seed, real.take(~seen)))
    return HeldOut(units.count // 2, int((~even).sum()), averaged(*found))
