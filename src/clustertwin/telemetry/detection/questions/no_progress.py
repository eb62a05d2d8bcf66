"""Does a busy job stand still? Page faults and traffic of its cgroup -> a suspicion, which only evidence confirms.

A program that works touches new memory or transfers data now and then. A loop that waits for ever does neither. A
solver that reuses its memory for minutes looks the same, so a suspicion opens no event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.questions.candidate import Candidate, PerPart
from clustertwin.telemetry.detection.questions.finding import CONFIRMED, SUSPECTED, Finding
from clustertwin.telemetry.detection.questions.job_parts import JobParts, S, Signals
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.detection.questions.usual import Usual


def suspicion(
    parts: JobParts, longer: Signals, usual: Usual, own: NDArray[np.bool_], settings: QuestionSettings
) -> Candidate:
    """`longer` are means over 100 s. `own` tells where the usual is that of the job or its program.

    A job on several nodes is suspected if it is on each of them: a rank elsewhere may still work.
    """
    value, before = longer[:, S["progress"]], usual.centre[:, S["progress"]]
    suspected = stands_still(longer, usual, settings) & (busy_threads(parts, longer) > settings.still_busy) & own
    working = {job for job, suspect in zip(parts.jobs, suspected.tolist(), strict=True) if not suspect}
    everywhere = np.array([job not in working for job in parts.jobs], np.bool_)
    return Candidate("change", SUSPECTED, "progress", np.where(everywhere, 2.0, 0.0), value, before)


def busy_threads(parts: JobParts, signals: Signals) -> PerPart:
    """(part,) how many threads the job keeps busy. A task that is not bound moves between them, so all are counted."""
    return np.asarray(parts.count * (signals[:, S["user"]] + signals[:, S["system"]]))


def stands_still(signals: Signals, usual: Usual, settings: QuestionSettings) -> NDArray[np.bool_]:
    """(part,) whether there is no sign of progress although every half minute before had one."""
    return np.asarray(slackens(signals, usual, settings) & (signals[:, S["progress"]] < settings.no_progress))


def slackens(signals: Signals, usual: Usual, settings: QuestionSettings) -> NDArray[np.bool_]:
    """(part,) whether there is less progress than every half minute before had.

    The first half minute of a standstill can hold the end of the work.
    """
    least, i = settings.least_progress, S["progress"]
    return np.asarray((usual.lowest[:, i] >= least) & (signals[:, i] < least))


def suspects(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The suspicions among findings, the longest first."""
    found = (finding for finding in findings if finding.cause == SUSPECTED)
    return tuple(sorted(found, key=lambda finding: (finding.since_s, finding.job, finding.node)))


def confirm(findings: Sequence[Finding], hanging_s: Mapping[str, float]) -> tuple[Finding, ...]:
    """The suspicions that evidence has confirmed since they began, as findings that open an event.

    `hanging_s` is when evidence showed that a job hangs. A suspicion that began later needs new evidence.
    """
    return tuple(
        replace(finding, cause=CONFIRMED)
        for finding in suspects(findings)
        if finding.since_s <= hanging_s.get(finding.job, -np.inf)
    )
