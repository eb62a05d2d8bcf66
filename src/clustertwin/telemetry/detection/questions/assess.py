"""Ask the three questions: moment, scores, memory -> findings.

memory = QuestionMemory()
for moment in moments:                      # in time order
    assessment = assess(moment, detector.score(moment), memory, detector.threshold)
    assessment.findings                     # harm and change open events, new is listed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.forecast.memory_forecast import MemoryForecast
from clustertwin.telemetry.detection.questions.candidate import Candidate, PerPart
from clustertwin.telemetry.detection.questions.change import Compared, change_candidates, pending
from clustertwin.telemetry.detection.questions.finding import FINDING_CAUSES, MAX_STRENGTH, Comparison, Finding
from clustertwin.telemetry.detection.questions.forecast_findings import forecast_findings
from clustertwin.telemetry.detection.questions.growth_onset import began_with_stage
from clustertwin.telemetry.detection.questions.harm import harm_candidates, one_used
from clustertwin.telemetry.detection.questions.job_parts import (
    JobParts,
    S,
    Signals,
    apart,
    measure_signals,
    parts_of,
)
from clustertwin.telemetry.detection.questions.no_progress import suspicion
from clustertwin.telemetry.detection.questions.question_memory import JobLabel, QuestionMemory
from clustertwin.telemetry.detection.questions.stages import another_program_began
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment

_PEERS = ("peers", "peers-5min")
_NEW_SHARE = 0.5  # of a part's known threads: a job is new if this many of them are


@dataclass(frozen=True, slots=True)
class Assessment:
    """The findings of a moment, and how close every part came to one that opens an event."""

    findings: tuple[Finding, ...]
    parts: JobParts
    ratio: NDArray[np.float64]  # (part,) from 1 on the part has such a finding; 0: nothing points to one


def assess(
    moment: Moment,
    scores: Scores,
    memory: QuestionMemory,
    threshold: float,
    labels: Mapping[str, JobLabel] | None = None,
    forecasts: Sequence[MemoryForecast] = (),
) -> Assessment:
    """Moments must come in time order. `labels` name the programs and users of jobs, where a source knows them.

    `forecasts` are those of a `MemoryWatch`: memory that runs out soon is harm.
    """
    settings = memory.settings
    memory.note(labels or {})
    memory.end_jobs(moment.end_s)
    parts = parts_of(moment)
    rows, added = memory.past.rows_of(parts, moment.end_s)
    if added:
        _rebuild(moment, parts, memory, rows, added)
    now, longer = (measure_signals(moment, parts, slice(-length_s, None)) for length_s in (settings.block_s, WINDOW_S))
    own = memory.past.usual(rows)
    age_s = np.minimum(parts.age_s, memory.past.age_s(rows, moment.end_s))
    # The next program of a job has a past of its own.
    anew = another_program_began(moment, parts, own, age_s, settings)
    if anew.any():
        age_s[anew] = 0
        memory.past.begin_anew(rows[anew], moment.end_s)
        own = memory.past.usual(rows)
    usual, compared_with = memory.usual(parts, own)
    harmed = harm_candidates(parts, longer, _on_one_thread(moment, parts, memory), settings)
    new_rest = memory.past.rests_too_long(rows) & (compared_with == "own past")
    compared = Compared(usual, own, compared_with == "program", new_rest, memory.past.before_growth(rows))
    changed = change_candidates(parts, now, longer, compared, _peers_ratio(scores, parts, threshold), settings)
    # What is usual for a user is that of other programs, which says nothing about the page faults of this one.
    changed.append(suspicion(parts, longer, usual, compared_with != "user", settings))
    start_s = settings.start_s + settings.block_s
    started = age_s >= start_s
    held = np.array([bool(job) for job in parts.jobs], np.bool_)
    beside_jobs = np.isin(parts.node, parts.node[held])
    findings: list[Finding] = []
    candidates = (*harmed, *changed)
    clearest = _clearest(candidates)
    harms = np.array([candidate.question == "harm" for candidate in candidates])
    opens = np.array([FINDING_CAUSES[candidate.cause].opens_event for candidate in candidates])
    # Threads without a job have no past of their own: work on them comes and goes. Beside jobs, the jobs are named.
    applies = np.where(harms[:, None], (parts.age_s >= start_s) & (held | ~beside_jobs), started & held)
    # A session rests while its user thinks.
    sessions = np.array([memory.label(job).is_session for job in parts.jobs], np.bool_)
    applies &= ~(np.array([candidate.cause == "idle" for candidate in candidates])[:, None] & sessions)
    # A job that the scheduler suspended rests without a fault, and its rest says nothing about what is usual.
    suspended = np.array([memory.label(job).suspended for job in parts.jobs], np.bool_)
    applies &= harms[:, None] | ~suspended
    rated = np.where(applies, np.nan_to_num([candidate.ratio for candidate in candidates], nan=0.0), 0.0)
    ratio = rated[opens].max(axis=0, initial=0.0)
    for i, part in np.argwhere(rated >= 1).tolist():
        candidate = candidates[i]
        other: Comparison = "limit" if candidate.question == "harm" else str(compared_with[part])  # type: ignore[assignment]
        clear = float(clearest[candidate.cause][part])
        findings.append(_finding(moment, parts, memory, candidate, part, other, threshold, clear))
    of_stage = began_with_stage(now, compared.before_growth)
    findings += forecast_findings(parts, moment, forecasts, longer, threshold, of_stage, settings)
    findings += _new_work(moment, scores, parts, memory, threshold)
    due = np.flatnonzero(memory.past.due(rows, moment.end_s) & started & held & ~suspended)
    if len(due):
        unusual = pending(parts, now, longer, compared, settings)
        memory.past.append(rows[due], _with_distances(now, longer)[due], unusual[due], moment.end_s)
    return Assessment(tuple(findings), parts, ratio)


def _rebuild(moment: Moment, parts: JobParts, memory: QuestionMemory, rows: NDArray[np.intp], added: list[int]) -> None:
    """Give parts that are seen for the first time the past that the moment still holds."""
    settings = memory.settings
    chosen = np.array([i for i in added if parts.jobs[i]], np.intp)
    oldest = min(int(parts.age_s[chosen].max(initial=0)) - settings.start_s, moment.values.shape[1])
    for end in range(oldest // settings.block_s * settings.block_s, 0, -settings.block_s):
        # The block ends `end - block_s` seconds before the moment; the newest one is appended by `assess` itself.
        if end <= settings.block_s:
            break
        inside = chosen[parts.age_s[chosen] - settings.start_s >= end]
        stop = -end + settings.block_s
        longer = measure_signals(moment, parts, slice(stop - WINDOW_S, stop))
        signals = _with_distances(measure_signals(moment, parts, slice(-end, stop)), longer)[inside]
        memory.past.append(rows[inside], signals, np.zeros(signals.shape, np.bool_), moment.end_s + stop)


def _with_distances(now: Signals, longer: Signals) -> Signals:
    """The signals with how far threads are apart over the longer time: a single thread is noisier than its job."""
    out, columns = now.copy(), [S["apart"], S["closest"]]
    out[:, columns] = longer[:, columns]
    return out


def _clearest(candidates: Sequence[Candidate]) -> dict[str, PerPart]:
    """Cause -> (part,) the highest ratio of its rules."""
    out: dict[str, PerPart] = {}
    for each in candidates:
        out[each.cause] = np.fmax(out.get(each.cause, 0.0), each.ratio)
    return out


def _on_one_thread(moment: Moment, parts: JobParts, memory: QuestionMemory) -> NDArray[np.bool_]:
    """(part,) whether a job used one of its threads only; judged once, when the moment holds its first minutes."""
    length_s = moment.values.shape[1]
    first_minutes = (parts.age_s >= length_s) & (parts.age_s < length_s + WINDOW_S)
    for part in np.flatnonzero(first_minutes).tolist():
        place = parts.jobs[part], parts.nodes[part]
        if place[0] and place not in memory.on_one_thread:
            memory.on_one_thread[place] = one_used(moment, parts.threads(part))
    places = zip(parts.jobs, parts.nodes, strict=True)
    return np.array([memory.on_one_thread.get(place, False) for place in places], np.bool_)


def _peers_ratio(scores: Scores, parts: JobParts, threshold: float) -> PerPart:
    """(part,) the highest surprise of the peers views over the threshold; NaN where no such view knows a thread."""
    columns = [scores.views.index(name) for name in _PEERS if name in scores.views]
    if not columns or not len(parts):
        return np.full(len(parts), np.nan)
    surprise = np.fmax.reduce(scores.surprise[:, columns], axis=1)
    return np.asarray(np.fmax.reduceat(surprise[parts.order], parts.first) / threshold)


def _finding(
    moment: Moment,
    parts: JobParts,
    memory: QuestionMemory,
    candidate: Candidate,
    part: int,
    compared_with: Comparison,
    threshold: float,
    clearest: float,
) -> Finding:
    """`clearest` is the highest ratio of all rules for this cause: they are held together."""
    place = parts.jobs[part], parts.nodes[part]
    threads, cause = parts.threads(part), candidate.cause
    if candidate.signal == "apart":
        threads, cause = _deviating(moment, threads)
        compared_with = "ranks"
    # Under the name of the rule: a thread that deviates deviates for as long, whether it is called hung or slow now.
    since_s, clear_s = memory.hold(place, candidate.cause, moment.end_s, clearest)
    return Finding(
        question=candidate.question,
        cause=cause,
        job=place[0],
        node=place[1],
        cpus=tuple(sorted(moment.cpu[threads].tolist())),
        channel=candidate.signal,
        value=float(candidate.value[part]),
        usual=float(candidate.usual[part]),
        compared_with=compared_with,
        since_s=since_s,
        strength=min(threshold * float(candidate.ratio[part]), MAX_STRENGTH),
        clear_s=clear_s,
    )


def _deviating(moment: Moment, threads: NDArray[np.intp]) -> tuple[NDArray[np.intp], str]:
    """The threads of a part that deviate most from their job: an idle one was left behind, a busy one is slow."""
    group, rows = moment.with_peers(threads)
    values, valid = group.windows()
    columns = [group.schema.index(name) for name in ("user", "system", "iowait", "other")]
    mean = values[:, :, columns].sum(1) / np.maximum(valid.sum(1), 1)[:, None]
    distance = apart(group, mean)[rows]
    chosen = np.flatnonzero(distance >= 0.9 * np.nanmax(distance))
    idle = mean[rows][:, 3]
    left_behind = float(idle[chosen].mean()) > float(np.median(mean[:, 3])) + 0.25
    return threads[chosen], "hung-rank" if left_behind else "straggler"


def _new_work(
    moment: Moment, scores: Scores, parts: JobParts, memory: QuestionMemory, threshold: float
) -> list[Finding]:
    """Jobs whose threads the detector finds unusual, and whose program was not seen often enough to be usual."""
    if not len(parts):
        return []
    score = scores.score[parts.order]
    known = np.add.reduceat((~np.isnan(score)).astype(np.int64), parts.first)
    above = np.add.reduceat((score > threshold).astype(np.int64), parts.first)
    highest = np.fmax.reduceat(score, parts.first)
    findings = []
    for part in np.flatnonzero((known > 0) & (above >= _NEW_SHARE * known)).tolist():
        place = parts.jobs[part], parts.nodes[part]
        if not place[0] or memory.is_known(place[0]):
            continue
        findings.append(
            Finding(
                question="new",
                cause="new-program",
                job=place[0],
                node=place[1],
                cpus=tuple(sorted(moment.cpu[parts.threads(part)].tolist())),
                channel="score",
                value=float(highest[part]),
                usual=threshold,
                compared_with="site",
                since_s=memory.hold(place, "new-program", moment.end_s)[0],
                strength=float(highest[part]),
            )
        )
    return findings
