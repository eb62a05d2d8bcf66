"""A partial-wave analysis of two pseudoscalars: events (mass, angles), parameters -> likelihood and its gradient.

The intensity of an event is |Σ_w c_w · BW_w(m) · Y_l^m(θ, φ)|². Each wave w is a relativistic Breit-Wigner resonance
with a free mass and width, an angular function, and a free complex strength. The negative log likelihood is unbinned,
-Σ log I(event) + N log ∫ I, with the integral over Monte-Carlo events that are flat in phase space. Parameters are laid
out as [Re c, Im c, mass, width], with one number per wave in each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

MASS_RANGE_GEV = (0.7, 2.0)


@dataclass(frozen=True, slots=True)
class Wave:
    """One resonance: orbital angular momentum, its projection, and the true values of its parameters."""

    l: int  # noqa: E741, the symbol in every textbook
    m: int
    mass_gev: float
    width_gev: float
    strength: complex


#: Shaped after the ηπ system: a0(980), an exotic P wave, a2(1320) and a2(1700).
WAVES = (
    Wave(0, 0, 0.98, 0.08, 0.35 + 0.0j),
    Wave(1, 1, 1.56, 0.49, 0.30 + 0.35j),
    Wave(2, 1, 1.318, 0.107, 0.55 - 0.25j),
    Wave(2, 1, 1.70, 0.26, -0.20 + 0.30j),
)


@dataclass(frozen=True, slots=True)
class ParticleEvents:
    """The parts of the likelihood that do not depend on the parameters: squared mass and angular functions."""

    mass2: Floats  # (event,)
    angular: Complexes  # (wave, event)


def prepare(rows: Floats) -> ParticleEvents:
    """Rows of mass, cos θ, φ -> squared masses and Y_l^m of each wave."""
    sph_harm_y = require("scipy.special", "campaign").sph_harm_y
    mass, theta, phi = rows[:, 0], np.arccos(rows[:, 1]), rows[:, 2]
    return ParticleEvents(mass**2, np.stack([sph_harm_y(w.l, w.m, theta, phi) for w in WAVES]))


def truth() -> Floats:
    """The parameters from which events are drawn."""
    c = np.array([w.strength for w in WAVES])
    return np.concatenate([c.real, c.imag, [w.mass_gev for w in WAVES], [w.width_gev for w in WAVES]])


def intensity(parameters: Floats, events: ParticleEvents) -> tuple[Floats, Floats]:
    """I of each event and dI/dparameters: (event,), (parameter, event)."""
    re, im, mass, width = parameters.reshape(4, -1, 1)
    c = re + 1j * im
    bw = 1 / (mass**2 - events.mass2 - 1j * mass * width)  # (wave, event)
    wave = bw * events.angular
    amplitude = (c * wave).sum(axis=0)  # (event,)
    # dI/dp = 2 Re(conj(A) dA/dp)
    back = 2 * amplitude.conj()
    by_re = back * wave
    by_bw = by_re * c * bw
    slopes = [by_re.real, -by_re.imag, -(by_bw * (2 * mass - 1j * width)).real, -(by_bw * -1j * mass).real]
    return (amplitude.conj() * amplitude).real, np.concatenate(slopes)


def negative_log_likelihood(
    parameters: Floats, data: ParticleEvents, phase_space: ParticleEvents, chunk: int = 2048
) -> tuple[float, Floats]:
    """-log L and its gradient, computed in chunks that fit into the CPU's cache."""
    value, gradient = 0.0, np.zeros_like(parameters)
    for events in _chunks(data, chunk):
        density, slope = intensity(parameters, events)
        value -= float(np.log(density).sum())
        gradient -= (slope / density).sum(axis=1)
    total, total_slope = 0.0, np.zeros_like(parameters)
    for events in _chunks(phase_space, chunk):
        density, slope = intensity(parameters, events)
        total += float(density.sum())
        total_slope += slope.sum(axis=1)
    n = len(data.mass2)
    return value + n * float(np.log(total / len(phase_space.mass2))), gradient + n * total_slope / total


def _chunks(events: ParticleEvents, size: int) -> list[ParticleEvents]:
    starts = range(0, len(events.mass2), size)
    return [ParticleEvents(events.mass2[i : i + size], events.angular[:, i : i + size]) for i in starts]


def fit(start: Floats, data: ParticleEvents, phase_space: ParticleEvents) -> tuple[Floats, float]:
    """The parameters at the nearest likelihood maximum, and -log L there."""
    waves = len(start) // 4
    bounds = [(-2.0, 2.0)] * waves
    # The overall phase and scale of a coherent sum are free, so the strength of the first wave is fixed.
    bounds += [(-2.0, 2.0)] * waves + [MASS_RANGE_GEV] * waves + [(0.02, 0.8)] * waves
    bounds[0], bounds[waves] = (start[0], start[0]), (start[waves], start[waves])
    minimize = require("scipy.optimize", "campaign").minimize
    result = minimize(
        negative_log_likelihood, start, args=(data, phase_space), jac=True, method="L-BFGS-B", bounds=bounds
    )
    return result.x, float(result.fun)


def random_start(rng: np.random.Generator) -> Floats:
    """Random strengths, and resonances near their true values, because the likelihood has many maxima."""
    n = len(WAVES)
    start = truth()
    start[: 2 * n] = rng.uniform(-0.6, 0.6, 2 * n)
    start[[0, n]] = truth()[[0, n]]
    start[2 * n : 3 * n] += rng.uniform(-0.5, 0.5, n) * start[3 * n :]
    return start


def draw_phase_space(n: int, rng: np.random.Generator) -> Floats:
    """Events flat in mass, cos θ and φ: (n, 3)."""
    return np.column_stack([rng.uniform(*MASS_RANGE_GEV, n), rng.uniform(-1, 1, n), rng.uniform(-np.pi, np.pi, n)])


def draw_events(n: int, rng: np.random.Generator) -> Floats:
    """Events of the true intensity, by rejection sampling: (n, 3)."""
    accepted: list[Floats] = []
    # The ceiling is the maximum of an independent draw with a margin. Events above it would be drawn too rarely.
    ceiling = 1.2 * intensity(truth(), prepare(draw_phase_space(20_000, rng)))[0].max()
    while sum(map(len, accepted)) < n:
        rows = draw_phase_space(20_000, rng)
        accepted.append(rows[rng.uniform(0, ceiling, len(rows)) < intensity(truth(), prepare(rows))[0]])
    return np.concatenate(accepted)[:n]
