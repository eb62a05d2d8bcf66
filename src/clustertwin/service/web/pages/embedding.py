"""The embedding: every thread's window as a point, near what resembles it; live, with the regions of events.

Open events are where their threads are now; those that a person has judged, where they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from numpy.typing import NDArray

from clustertwin.service.live.snapshot import ServiceState, Snapshot
from clustertwin.service.store.event_store import VERDICTS, Case, Filter
from clustertwin.service.web.api.json_values import plain
from clustertwin.service.web.pages.closed_event_places import Place, Whereabouts
from clustertwin.service.web.pages.rendering import render
from clustertwin.service.web.pages.umap_landscape import Landscape, Landscapes
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation import rows_of
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment

MOST_POINTS = 4000
MOST_REGIONS = 50
NO_JOB = "no job"


@dataclass(frozen=True, slots=True)
class Axes:
    """The two directions in which a model's embeddings vary most.

    They are kept while the model is in service: computed anew each second, they would turn while nothing happens.
    """

    model: str
    centre: NDArray[np.float64]  # (latent,)
    directions: NDArray[np.float64]  # (latent, 2)
    told: tuple[float, ...]  # how much of the variance each direction tells

    def place(self, embedding: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n, latent) -> (n, 2)."""
        return (embedding - self.centre) @ self.directions


def principal(model: str, embedding: NDArray[np.float32]) -> Axes:
    """The principal components of (n, latent)."""
    centre = embedding.mean(0, dtype=np.float64)
    spread, directions = np.linalg.eigh((embedding - centre).T @ (embedding - centre))  # ascending
    first = directions[:, ::-1][:, :2]
    # The sign of a direction is arbitrary: its largest part points upwards.
    first = first * np.sign(first[np.abs(first).argmax(0), range(2)])
    return Axes(model, centre, first, tuple((spread[::-1][:2] / max(float(spread.sum()), 1e-12)).tolist()))


@dataclass(frozen=True, slots=True)
class Near:
    """A kind of work that runs now, and how far from it a group of threads is."""

    group: str
    threads: int
    distance: float  # between the centres, in the embedding
    spread: float  # how far its own threads are from their centre, on average


def nearest(snapshot: Snapshot, event: Event, limit: int = 5) -> list[Near]:
    """Kinds of work in order of their distance to the event's threads; empty once the event is over."""
    moment, scores = snapshot.scored, snapshot.scores
    if moment is None or scores is None or not event.open:
        return []
    known = ~np.isnan(scores.score)
    mine = np.zeros(len(moment), np.bool_)
    mine[rows_of(moment, event)] = True
    if not (mine & known).any():
        return []
    centre = scores.embedding[mine & known].mean(0)
    types = {job.job: job.job_type for job in snapshot.jobs}
    named = np.array([_group(job, types) for job in moment.jobs] + [NO_JOB])
    groups = named[moment.job]  # (thread,) -1 is the last: no job
    found = []
    for name in np.unique(groups[known & ~mine]).tolist():
        theirs = scores.embedding[(groups == name) & known & ~mine]
        apart = np.linalg.norm(theirs - theirs.mean(0), axis=1)
        distance = float(np.linalg.norm(theirs.mean(0) - centre))
        found.append(Near(name, len(theirs), distance, float(apart.mean())))
    return sorted(found, key=lambda near: near.distance)[:limit]


def _group(job: str, types: dict[str, str]) -> str:
    """The type of a job where it is known, else the job itself."""
    return types.get(job) or f"job {job}"


def points(
    snapshot: Snapshot,
    axes: Axes | None,
    landscapes: Landscapes | None = None,
    judged: Sequence[tuple[Case, Place]] = (),
) -> tuple[dict[str, Any], Axes | None]:
    """The scored threads as points with what holds them, the rows of each open event, and the axes they lie on.

    With `landscapes` they are placed by UMAP as soon as it is fitted; `note` says why they are not yet. `judged` are
    events that are over, with the embeddings of their threads.
    """
    moment, scores = snapshot.scored, snapshot.scores
    known = np.flatnonzero(~np.isnan(scores.score)) if scores is not None else np.empty(0, np.intp)
    if moment is None or scores is None or len(known) < 3 or scores.embedding.shape[1] < 2:
        return {"points": [], "regions": [], "judged": []}, axes
    model = snapshot.model.version if snapshot.model else ""
    strange = scores.score[known] > snapshot.threshold
    # One strange thread would take a direction for itself; where nearly all are strange there is no choice.
    calm = known[~strange] if (~strange).sum() > 2 else known
    if axes is None or axes.model != model:
        axes = principal(model, scores.embedding[calm])
    drawn, note = landscapes.of(model, scores.embedding[calm]) if landscapes else (None, "")
    chart: Axes | Landscape = drawn or axes
    # Strange threads are shown whatever their number; the calm ones are thinned.
    step = max(1, -(-int((~strange).sum()) // MOST_POINTS))
    rows = np.sort(np.concatenate([known[~strange][::step], known[strange][:MOST_POINTS]]))
    types = {job.job: job.job_type for job in snapshot.jobs}
    places = plain(chart.place(scores.embedding[rows]))
    about = {"model": model, "threshold": snapshot.threshold, "told": chart.told, "note": note}
    return {
        **about,
        "points": [_point(moment, scores, row, at, types) for row, at in zip(rows.tolist(), places, strict=True)],
        "regions": [
            {"id": event.id, "name": _name(event), "rows": where}
            for event in snapshot.events[:MOST_REGIONS]
            if (where := np.flatnonzero(np.isin(rows, rows_of(moment, event))).tolist())
        ],
        "judged": [
            {"id": case.id, "name": _name(case.event), "verdict": case.verdict, "at": plain(chart.place(place))}
            for case, place in judged
        ],
    }, axes


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
    pages = APIRouter(include_in_schema=False)
    axes: Axes | None = None
    landscapes, known = Landscapes(), Whereabouts()

    def judged() -> list[tuple[Case, Place]]:
        cases = [
            case
            for verdict in VERDICTS
            for case in state.store.events(Filter(open=False, verdict=verdict), MOST_REGIONS)
        ]
        return known.of(state.detector, state.past, cases) if state.detector else []

    @pages.get("/embedding")
    def page(request: Request) -> HTMLResponse:
        return render(request, state, "embedding.html", umap=find_spec("umap") is not None)

    @pages.get("/pictures/embedding")
    def picture(chart: Literal["pca", "umap"] = "pca") -> dict[str, Any]:
        nonlocal axes
        found, axes = points(state.snapshot, axes, landscapes if chart == "umap" else None, judged())
        return found

    return pages
