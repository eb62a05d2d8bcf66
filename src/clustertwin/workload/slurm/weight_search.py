"""Search priority weights: a site, a log and objectives -> the Pareto front, chosen on the first part of the log.

Candidates fill the space of weights evenly (a Latin hypercube on a logarithmic scale). The front is found on the first
part of the log; its members and the present weights are then judged on the last part, which chose nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.simulator.scheduling_metrics import bounded_slowdown, mean_by_user
from clustertwin.workload.slurm.joblog.job_table import SlurmLog
from clustertwin.workload.slurm.site.slurm_site import PRIORITY_WEIGHTS, PriorityWeights, SlurmSite
from clustertwin.workload.slurm.site_simulation import SiteSchedule, simulate_site

Floats = NDArray[np.float64]

DECADES = 3.0  # from the largest weight down
ZERO = 0.15  # the part of each axis on which the weight is 0
BOUND_S = 10.0  # of the slowdown


@dataclass(frozen=True, slots=True)
class SearchSettings:
    candidates: int = 40
    first_part: float = 0.6  # of the jobs, on which the front is found
    seed: int = 0


@dataclass(frozen=True, slots=True)
class WeightPoint:
    """Weights with the value of each objective on both parts of the log; lower is better."""

    weights: dict[str, float]
    first: dict[str, float]
    last: dict[str, float]
    present: bool = False  # the site's own weights
    on_front: bool = False  # of the first part
    chosen: bool = False  # the best of the front, by the mean ratio to the present weights on the first part


def _waits(schedule: SiteSchedule, rows: slice) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Waits and run times of the jobs of a part that started, and which jobs these are."""
    wait_s, run_s = schedule.wait_s[rows], (schedule.end_s - schedule.start_s)[rows]
    known = np.isfinite(wait_s) & np.isfinite(run_s)
    return wait_s[known], run_s[known], known


def _fairness(schedule: SiteSchedule, rows: slice) -> float:
    wait_s, run_s, known = _waits(schedule, rows)
    names = np.array([job.user for job in schedule.log.jobs[rows]])[known]
    _, user = np.unique(names, return_inverse=True)
    means = np.sort(mean_by_user(bounded_slowdown(wait_s, run_s, BOUND_S), user))
    return float(means[-max(len(means) // 10, 1) :].mean())


def _large(schedule: SiteSchedule, rows: slice) -> float:
    wait_s, _, known = _waits(schedule, rows)
    cpus = schedule.cpus[rows][known]
    return float(wait_s[cpus >= np.quantile(cpus, 0.9)].mean())


def _slowdown(schedule: SiteSchedule, rows: slice) -> float:
    return float(bounded_slowdown(*_waits(schedule, rows)[:2], BOUND_S).mean())


Objective = Callable[[SiteSchedule, slice], float]
OBJECTIVES: dict[str, tuple[str, Objective]] = {
    "wait": ("mean wait in seconds", lambda schedule, rows: float(_waits(schedule, rows)[0].mean())),
    "p95": ("95 % of jobs wait shorter, in seconds", lambda s, rows: float(np.quantile(_waits(s, rows)[0], 0.95))),
    "slowdown": ("mean bounded slowdown", _slowdown),
    "fairness": ("mean bounded slowdown of the worst-served tenth of the users", _fairness),
    "large": ("mean wait of the largest tenth of the jobs, in seconds", _large),
}


def parse_objectives(text: str) -> tuple[str, ...]:
    """`wait,fairness` -> names of `OBJECTIVES`."""
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    unknown = [name for name in names if name not in OBJECTIVES]
    if unknown or not names:
        wrong = repr(unknown[0]) if unknown else "nothing"
        raise SettingsError(f"--objective: {wrong} is no objective; choose from {', '.join(OBJECTIVES)}")
    return names


def latin_weights(count: int, largest: float, rng: np.random.Generator) -> list[dict[str, float]]:
    """Weights that fill each axis evenly: each value falls into a stratum of its own on every axis."""
    cells = np.stack([rng.permutation(count) for _ in PRIORITY_WEIGHTS], axis=1)  # (candidate, weight)
    places = (cells + rng.random(cells.shape)) / count
    scaled = np.where(places < ZERO, 0.0, largest * 10.0 ** (DECADES * ((places - ZERO) / (1 - ZERO) - 1)))
    return [dict(zip(PRIORITY_WEIGHTS, np.round(row).tolist(), strict=True)) for row in scaled]


def pareto(values: Floats) -> NDArray[np.bool_]:
    """Which rows no other row beats: at least as good everywhere and better somewhere; lower is better.

    >>> pareto(np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 3.0]])).tolist()
    [True, True, False]
    """
    no_worse = (values[:, None, :] <= values[None, :, :]).all(axis=2)  # (row, other): row is no worse than other
    better = (values[:, None, :] < values[None, :, :]).any(axis=2)
    return np.asarray(~(no_worse & better).any(axis=0))


def with_weights(site: SlurmSite, weights: dict[str, float]) -> SlurmSite:
    changed: dict[str, Any] = dict(weights)
    return replace(site, priority=replace(site.priority, multifactor=True, **changed))


def present_weights(priority: PriorityWeights) -> dict[str, float]:
    return {name: getattr(priority, name) if priority.multifactor else 0.0 for name in PRIORITY_WEIGHTS}


def search_weights(
    site: SlurmSite,
    log: SlurmLog,
    objectives: Sequence[str],
    settings: SearchSettings = SearchSettings(),
    show: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> list[WeightPoint]:
    """The present weights and the front, each judged on both parts; the present weights come first."""
    cut = round(len(log) * settings.first_part)
    if min(cut, len(log) - cut) < 10:
        raise SettingsError(f"a log of {len(log)} jobs is too short: each part needs at least ten")
    first, last = log.first(cut), slice(cut, len(log))
    largest = max(1000.0, *present_weights(site.priority).values())
    drawn = latin_weights(settings.candidates, largest, np.random.default_rng(settings.seed))
    sites = [site, *(with_weights(site, weights) for weights in drawn)]
    rows = []
    for k, each in enumerate(sites):
        show("first part of the log", k, len(sites))
        rows.append(_values(simulate_site(each, first), slice(0, cut), objectives))
    table = np.array(rows)
    front = np.flatnonzero(pareto(table))
    front = front[np.sort(np.unique(table[front], axis=0, return_index=True)[1])]  # equal values once
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(np.log(table / table[0]), nan=0.0).mean(axis=1)
    best = int(front[np.argmin(ratios[front])])
    points = []
    kept = list(dict.fromkeys([0, *front[np.argsort(table[front, 0], kind="stable")].tolist()]))
    for done, k in enumerate(kept):
        show("last part of the log", done, len(kept))
        judged = _values(simulate_site(sites[k], log), last, objectives)
        points.append(
            WeightPoint(
                present_weights(sites[k].priority), dict(zip(objectives, rows[k], strict=True)),
                dict(zip(objectives, judged, strict=True)), k == 0, k in front, k == best,
            )
        )  # fmt: skip
    return points


def _values(schedule: SiteSchedule, rows: slice, objectives: Sequence[str]) -> list[float]:
    if not np.isfinite(schedule.start_s[rows]).any():
        raise SettingsError("no job of the log starts on this site")
    return [OBJECTIVES[name][1](schedule, rows) for name in objectives]


def worse_on_the_rest(point: WeightPoint, present: WeightPoint) -> list[str]:
    """Objectives in which weights lose to the present ones on the part that chose nothing, one sentence each."""
    return [
        f"on the rest, {name} is {point.last[name] / present.last[name]:.2f} times that of the present weights"
        for name in point.last
        if point.last[name] > present.last[name] > 0
    ]


def conf_fragment(point: WeightPoint, present: WeightPoint, about: Sequence[str]) -> str:
    """Lines for slurm.conf, with the figures of the last part as comments."""
    figures = [
        f"{name}: {point.last[name]:.4g} (present weights {present.last[name]:.4g})" for name in point.last
    ]  # fmt: skip
    comments = [*about, "Simulated on the last part of the log, which was not used to choose:", *figures]
    comments += worse_on_the_rest(point, present)
    lines = [f"# {line}" for line in comments] + ["PriorityType=priority/multifactor"]
    lines += [f"{PRIORITY_WEIGHTS[name]}={value:.0f}" for name, value in point.weights.items()]
    return "\n".join(lines) + "\n"
