"""Memory that runs out soon, as harm: forecasts -> findings about the jobs that use it up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.forecast.memory_forecast import MemoryForecast, memory_levels
from clustertwin.telemetry.detection.forecast.memory_watch import PIECE_S
from clustertwin.telemetry.detection.questions.candidate import PerPart
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.detection.questions.job_parts import JobParts, S, Signals
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.moments.moment import Moment

#: A forecast further ahead is shown, and opens no event yet.
HORIZON_S = 3600.0
#: Growth that began this soon after the start of a job may be its input, or what it allocates at its start, …
_START_S = 120
#: … if it does not last longer than this, or if something is read and memory is not yet this full.
_LOADED_S, _NEARLY_FULL = 300, 0.9
#: A job whose memory grows by less in a minute does not fill its node.
_GROWS = 0.001
#: Growth goes on if it is at least this part of its rate over these seconds, between two means over fewer, …
_GROWS_STILL, _RECENT_S, _STEP_S = 0.3, 40, 10
#: … and in this part of the half minutes before.
_GROWN_PIECES = 0.4


def forecast_findings(
    parts: JobParts,
    moment: Moment,
    forecasts: Sequence[MemoryForecast],
    signals: Signals,
    threshold: float,
    of_stage: NDArray[np.bool_],
    settings: QuestionSettings,
) -> list[Finding]:
    """One finding for each place. A node's memory is charged to the job that grows, unless a job has a forecast.

    `signals` are means over 100 s. `of_stage` tells the parts whose memory began to grow together with a new stage.
    """

    def may_be_its_start(each: MemoryForecast, part: int) -> bool:
        if of_stage[part] and each.level < _NEARLY_FULL:
            return True
        if parts.age_s[part] - each.growing_s >= _START_S:
            return False
        loads = signals[part, S["traffic"]] > settings.least_traffic and each.level < _NEARLY_FULL
        return bool(each.growing_s < _LOADED_S or loads)

    soon = [each for each in forecasts if each.remaining_s <= HORIZON_S]
    if not soon:
        return []
    places, levels = memory_levels(moment)
    level_of = dict(zip(places, levels, strict=True))
    row = {place: i for i, place in enumerate(zip(parts.jobs, parts.nodes, strict=True))}
    of_jobs = {each.node for each in soon if each.job}
    growth, findings = signals[:, S["memory_growth"]], []
    for each in soon:
        level = level_of.get((each.node, each.job))  # None: its node was left out since the forecast
        if level is None or (not each.job and each.node in of_jobs) or not _grows_now(each, level):
            continue
        part = row.get((each.job, each.node)) if each.job else _growing_job(parts, each.node, growth)
        if part is None or may_be_its_start(each, part):
            continue
        findings.append(
            Finding(
                question="harm",
                cause="leak",
                job=parts.jobs[part],
                node=each.node,
                cpus=tuple(sorted(moment.cpu[parts.threads(part)].tolist())),
                channel="job_memory" if each.job else "memory_used",
                value=each.level,
                usual=1.0,
                compared_with="limit",
                since_s=each.end_s - int(each.growing_s),
                strength=2 * threshold,
            )
        )
    return findings


def _grows_now(each: MemoryForecast, level: NDArray[np.float32]) -> bool:
    """Whether memory grew in the last 40 s, and in many of the pieces before: a few steps look even from far away."""
    now, before = level[-_STEP_S:], level[-_RECENT_S : _STEP_S - _RECENT_S]
    if np.isnan(now).all() or np.isnan(before).all():
        return True
    if np.nanmean(now) - np.nanmean(before) < _GROWS_STILL * each.rate * (_RECENT_S - _STEP_S):
        return False
    pieces = level[len(level) % PIECE_S :].reshape(-1, PIECE_S)[-max(int(each.growing_s) // PIECE_S, 2) :]
    grown = np.diff(pieces.mean(1))  # NaN where a second is unknown
    grown = grown[~np.isnan(grown)]
    return not len(grown) or bool((grown >= _GROWS_STILL * each.rate * PIECE_S).mean() >= _GROWN_PIECES)


def _growing_job(parts: JobParts, node: str, growth: PerPart) -> int | None:
    """The part of this node whose memory grows most: the largest job where the memory of jobs is unknown.

    Where it is known and no job grows, something else does: the threads without a job, or nobody.
    """
    here = [i for i, name in enumerate(parts.nodes) if name == node]
    known = [i for i in here if parts.channel_row[i] >= 0]
    if known and not any(growth[i] > _GROWS for i in known):
        here = [i for i in here if not parts.jobs[i]]
    return max(here, key=lambda i: (float(np.nan_to_num(growth[i])), bool(parts.jobs[i]), parts.count[i]), default=None)
