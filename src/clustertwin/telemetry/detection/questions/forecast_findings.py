"""Memory that runs out soon, as harm: forecasts -> findings about the jobs that use it up."""

from __future__ import annotations

from collections.abc import Sequence

from clustertwin.telemetry.detection.forecast.memory_forecast import MemoryForecast
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.detection.questions.job_parts import JobParts
from clustertwin.telemetry.moments.moment import Moment

#: A forecast further ahead is shown, and opens no event yet.
HORIZON_S = 3600.0


def forecast_findings(
    parts: JobParts, moment: Moment, forecasts: Sequence[MemoryForecast], threshold: float
) -> list[Finding]:
    """One finding for each place. A node's memory is charged to its largest job, unless a job of it has a forecast."""
    soon = [each for each in forecasts if each.remaining_s <= HORIZON_S]
    if not soon:
        return []
    row = {place: i for i, place in enumerate(zip(parts.jobs, parts.nodes, strict=True))}
    of_jobs = {each.node for each in soon if each.job}
    findings = []
    for each in soon:
        if not each.job and each.node in of_jobs:
            continue
        part = row.get((each.job, each.node)) if each.job else _largest_job(parts, each.node)
        if part is None:
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


def _largest_job(parts: JobParts, node: str) -> int | None:
    """The part with most threads of a job on this node; threads without a job if there is none."""
    here = [i for i, name in enumerate(parts.nodes) if name == node]
    return max(here, key=lambda i: (bool(parts.jobs[i]), int(parts.count[i])), default=None)
