"""The embedding: every thread's last window as a point, and regions around events; similar windows lie close together.

An open event is drawn where its threads are now. A closed event with a verdict is drawn where its threads were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from numpy.typing import NDArray

from clustertwin.core import formatting
from clustertwin.service.live.snapshot import ServiceState, Snapshot
from clustertwin.service.store.event_store import VERDICTS, Case, Filter
from clustertwin.service.web.api.json_values import plain
from clustertwin.service.web.contract import Page
from clustertwin.service.web.pages.closed_event_places import ClosedEventPlaces, Place
from clustertwin.service.web.pages.rendering import render
from clustertwin.service.web.pages.umap_projection import UmapProjection, UmapProjections
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.event_rows import rows_of
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment

MOST_POINTS = 4000
MOST_REGIONS = 50
LEAST_POINTS = 3  # two principal components need three points
NO_JOB = "no job"
NOT_SCORED = "No embeddings yet", "They appear here with the first scores."


@dataclass(frozen=True, slots=True)
class PrincipalAxes:
    """The first two principal components of a model's embeddings.

    They stay fixed while the model is in service. If they were fitted again each second, the picture would rotate.
    """

    model: str
    centre: NDArray[np.float64]  # (latent,)
    directions: NDArray[np.float64]  # (latent, 2)
    explained: tuple[float, ...]  # the share of the variance along each axis

    def place(self, embedding: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n, latent) -> (n, 2)."""
        return (embedding - self.centre) @ self.directions


def principal(model: str, embedding: NDArray[np.float32]) -> PrincipalAxes:
    """Fit the axes to embeddings of shape (n, latent)."""
    centre = embedding.mean(0, dtype=np.float64)
    variances, directions = np.linalg.eigh((embedding - centre).T @ (embedding - centre))  # ascending
    first_two = directions[:, ::-1][:, :2]
    # The sign of a component is arbitrary: make its largest coordinate positive.
    first_two = first_two * np.sign(first_two[np.abs(first_two).argmax(0), range(2)])
    explained = variances[::-1][:2] / max(float(variances.sum()), 1e-12)
    return PrincipalAxes(model, centre, first_two, tuple(explained.tolist()))


@dataclass(frozen=True, slots=True)
class NearestGroup:
    """A group of running threads and its distance to an event's threads."""

    group: str
    threads: int
    distance: float  # between the two centres, in the embedding
    spread: float  # mean distance of the group's threads to their centre


def nearest(snapshot: Snapshot, event: Event, limit: int = 5) -> list[NearestGroup]:
    """The groups closest to the event's threads, closest first; empty if the event is closed."""
    moment, scores = snapshot.scored, snapshot.scores
    if moment is None or scores is None or not event.open:
        return []
    known = ~np.isnan(scores.score)
    in_event = np.zeros(len(moment), np.bool_)
    in_event[rows_of(moment, event)] = True
    if not (in_event & known).any():
        return []
    centre = scores.embedding[in_event & known].mean(0)
    types = {job.job: job.job_type for job in snapshot.jobs}
    group_names = np.array([_group(job, types) for job in moment.jobs] + [NO_JOB])
    group_of = group_names[moment.job]  # (thread,) a thread without a job has -1, the last name
    groups = []
    for name in np.unique(group_of[known & ~in_event]).tolist():
        members = scores.embedding[(group_of == name) & known & ~in_event]
        spread = np.linalg.norm(members - members.mean(0), axis=1).mean()
        distance = float(np.linalg.norm(members.mean(0) - centre))
        groups.append(NearestGroup(name, len(members), distance, float(spread)))
    return sorted(groups, key=lambda group: group.distance)[:limit]


def _group(job: str, types: dict[str, str]) -> str:
    """The job's type if it is known, else the job itself."""
    return types.get(job) or f"job {job}"


def points(
    snapshot: Snapshot,
    axes: PrincipalAxes | None,
    projections: UmapProjections | None = None,
    vetted: Sequence[tuple[Case, Place]] = (),
) -> tuple[dict[str, Any], PrincipalAxes | None]:
    """What the scatter plot draws, and the axes it is drawn on.

    With `projections`, UMAP places the points as soon as it is fitted; until then `note` says why it does not. `vetted`
    are closed events with a verdict, each with the embeddings of its threads.
    """
    moment, scores = snapshot.scored, snapshot.scores
    known = np.flatnonzero(~np.isnan(scores.score)) if scores is not None else np.empty(0, np.intp)
    reason = _why_empty(scores, len(known))
    if moment is None or scores is None or reason:
        title, text = reason or NOT_SCORED
        return {"points": [], "regions": [], "judged": [], "title": title, "reason": text}, axes
    model = snapshot.model.version if snapshot.model else ""
    unusual = scores.score[known] > snapshot.threshold
    # Fit to normal threads: a single unusual thread would determine an axis. Use all if nearly all are unusual.
    normal = known[~unusual] if (~unusual).sum() > 2 else known
    if axes is None or axes.model != model:
        axes = principal(model, scores.embedding[normal])
    umap, note = projections.of(model, scores.embedding[normal]) if projections else (None, "")
    chart: PrincipalAxes | UmapProjection = umap or axes
    # Thin out the normal threads, not the unusual ones.
    step = max(1, -(-int((~unusual).sum()) // MOST_POINTS))
    rows = np.sort(np.concatenate([known[~unusual][::step], known[unusual][:MOST_POINTS]]))
    types = {job.job: job.job_type for job in snapshot.jobs}
    places = plain(chart.place(scores.embedding[rows]))
    return {
        "model": model,
        "threshold": snapshot.threshold,
        "told": chart.explained,
        "note": note,
        "points": [_point(moment, scores, row, at, types) for row, at in zip(rows.tolist(), places, strict=True)],
        "regions": [
            {"id": event.id, "name": _name(event), "rows": drawn}
            for event in snapshot.events[:MOST_REGIONS]
            if (drawn := np.flatnonzero(np.isin(rows, rows_of(moment, event))).tolist())
        ],
        "judged": [
            {"id": case.id, "name": _name(case.event), "verdict": case.verdict, "at": plain(chart.place(place))}
            for case, place in vetted
        ],
    }, axes


def _why_empty(scores: Scores | None, known: int) -> tuple[str, str] | None:
    """Title and text shown instead of the plot; None if it can be drawn."""
    if scores is None:
        return NOT_SCORED
    if len(scores.score) < LEAST_POINTS:
        threads = formatting.counted(len(scores.score), "thread")
        return "Too few threads", f"Two axes need at least {LEAST_POINTS} threads. This source has {threads}."
    if known < LEAST_POINTS:
        text = f"{known} of {len(scores.score)} threads have a score. Two axes need at least {LEAST_POINTS}."
        return "Too few scored threads", text
    if scores.embedding.shape[1] < 2:
        return "No plane to draw on", "The embedding of this model has only one dimension."
    return None


def _point(moment: Moment, scores: Scores, row: int, at: list[float], types: dict[str, str]) -> dict[str, Any]:
    job = moment.jobs[moment.job[row]] if moment.job[row] >= 0 else ""
    return {
        "x": at[0],
        "y": at[1],
        "node": moment.nodes[moment.node[row]],
        "cpu": int(moment.cpu[row]),
        "job": job,
        "group": _group(job, types) if job else NO_JOB,
        "score": float(scores.score[row]),
    }


def _name(event: Event) -> str:
    return f"job {event.job}" if event.job else ", ".join(event.nodes)


def router(state: ServiceState) -> APIRouter:
    routes = APIRouter()
    axes: PrincipalAxes | None = None
    projections, closed_places = UmapProjections(), ClosedEventPlaces()

    def vetted() -> list[tuple[Case, Place]]:
        cases = [
            case
            for verdict in VERDICTS
            for case in state.store.events(Filter(open=False, verdict=verdict), MOST_REGIONS)
        ]
        return closed_places.of(state.detector, state.past, cases) if state.detector else []

    @routes.get("/embedding")
    def show(request: Request) -> HTMLResponse:
        return render(request, state, PAGE, "embedding.html", umap=find_spec("umap") is not None)

    @routes.get("/pictures/embedding")
    def picture(chart: Literal["pca", "umap"] = "pca") -> dict[str, Any]:
        nonlocal axes
        answer, axes = points(state.snapshot, axes, projections if chart == "umap" else None, vetted())
        return answer

    return routes


PAGE = Page(title="Embedding", key="m", paths=("/embedding",), router=router)
