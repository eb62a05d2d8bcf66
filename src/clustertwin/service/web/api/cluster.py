"""The state of the cluster: the snapshot, a node's threads and traces, jobs, and the embedding."""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import Response

from clustertwin.service.live.problems import problems
from clustertwin.service.live.snapshot import ScoreHistory, ServiceState, Snapshot
from clustertwin.service.outgoing import job_report
from clustertwin.service.store.event_store import Filter
from clustertwin.service.web.api.json_values import case_json, plain
from clustertwin.service.web.channel_lines import channel_lines, job_channel_lines
from clustertwin.service.web.contract import RouteGroup
from clustertwin.service.web.unsettled_events import open_events
from clustertwin.telemetry.detection.events.event_rows import rows_of
from clustertwin.telemetry.detection.events.event_title import information_text
from clustertwin.telemetry.detection.forecast.memory_forecast import MemoryForecast
from clustertwin.telemetry.moments.other_work import other_work

MOST_POINTS = 20_000


def router(state: ServiceState) -> APIRouter:
    api = APIRouter(tags=["cluster"])

    @api.get("/snapshot", summary="Show the current snapshot without its arrays")
    def snapshot() -> dict[str, Any]:
        counts = {
            "open_events": len(open_events(state)),
            "replay_ended": state.snapshot.replay_ended,
            "shadow": state.shadow.on,
        }
        return {**summary(state.snapshot), **counts, "problems": problems(state)}

    @api.get("/nodes", summary="List nodes, highest score first")
    def nodes() -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = plain(state.snapshot.nodes)
        return answer

    @api.get("/history", summary="Show the highest score of each node over the last hour")
    def history() -> Response:
        return Response(_history_json(state.snapshot.history), media_type="application/json")

    # A name may have a slash in it; the longer address comes first.
    @api.get(
        "/nodes/{node:path}/traces", summary="Show the last seconds of a node's threads, measured and reconstructed"
    )
    def traces(
        node: str, seconds: Annotated[int, Query(ge=1, le=300)] = 100, reconstructed: bool = False
    ) -> dict[str, Any]:
        return _traces(state, node, seconds, reconstructed)

    @api.get("/nodes/{node:path}", summary="Show a node and each of its threads")
    def node(node: str) -> dict[str, Any]:
        return _node(state.snapshot, node)

    @api.get("/jobs", summary="List running jobs, highest score first")
    def jobs() -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = plain(state.snapshot.jobs)
        return answer

    @api.get("/starts", summary="List waiting jobs with their forecast starts, and how good forecasts were")
    def starts() -> dict[str, Any]:
        board = state.starts
        if board is None:
            raise HTTPException(404, "no starts are forecast; set queue.site or queue.past in the configuration")
        answer: dict[str, Any] = plain(board)
        return {**answer, "age_s": plain(board.age_s(time.time()))}

    @api.get("/jobs/{job:path}", summary="Show the report of a running or recorded job")
    def job(job: str) -> dict[str, Any]:
        events = state.store.events(Filter(job=job), 50)
        usage = job_report.find_usage(state, job, events)
        if usage is None:
            raise HTTPException(404, f"no running or recorded job {job!r}")
        cases = [case_json(case) for case in events]
        moment = state.snapshot.moment
        lines = job_channel_lines(moment, job)
        return {
            **plain(usage),
            "job_channels": {node: {line.name: plain(line.now) for line in of_node} for node, of_node in lines.items()},
            "other_work": plain([work for work in other_work(moment) if work.job == job] if moment else []),
            "memory_forecasts": [_forecast(each) for each in state.snapshot.memory_forecasts if each.job == job],
            "information": [
                {**plain(each), "text": information_text(each)}
                for each in state.snapshot.information
                if each.job == job
            ],
            "report": job_report.render(usage),
            "notes": job_report.notes(usage),
            "events": cases,
        }

    @api.get("/embedding", summary="Show every scored thread as a point in the model's embedding")
    def embedding(limit: Annotated[int, Query(ge=1, le=MOST_POINTS)] = 2000) -> dict[str, Any]:
        return _embedding(state.snapshot, limit)

    return api


ROUTES = RouteGroup(paths=("/snapshot", "/nodes", "/history", "/jobs", "/starts", "/embedding"), router=router)


def _history_json(history: ScoreHistory) -> bytes:
    """The arrays as they are: with 5,000 nodes, lists of numbers took seconds in which the loop waited."""
    document: dict[str, Any] = {"times_s": history.times_s, "nodes": history.nodes}
    for name in ("score", "share"):
        values = getattr(history, name)
        document[name] = None if values is None else np.ascontiguousarray(np.round(values.astype(np.float64), 4))
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def summary(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot without its arrays."""
    names = "number now_s phase ready_in_s source nodes jobs model threshold stride_s stride_why lag_s scoring_s"
    names += " faults opened_total scored_total"
    values = {name: plain(getattr(snapshot, name)) for name in names.split()}
    scored = snapshot.scored.end_s if snapshot.scored else None
    forecasts = [_forecast(each) for each in snapshot.memory_forecasts]
    return {**values, "open_events": len(snapshot.events), "scored_s": scored, "memory_forecasts": forecasts}


def _node(snapshot: Snapshot, name: str) -> dict[str, Any]:
    node = next((node for node in snapshot.nodes if node.node == name), None)
    if node is None:
        raise HTTPException(404, f"no node {name!r}")
    moment, scores = snapshot.scored, snapshot.scores
    threads = []
    if moment is not None and scores is not None and name in moment.nodes:
        for row in np.flatnonzero(moment.node == moment.nodes.index(name)).tolist():
            threads.append(
                {
                    "cpu": int(moment.cpu[row]),
                    "job": moment.jobs[moment.job[row]] if moment.job[row] >= 0 else "",
                    "since_s": moment.end_s - int(moment.age_s[row]),
                    "score": plain(float(scores.score[row])),
                    "error": plain(float(scores.error[row])),
                    "view": scores.deciding_view(row),
                    "surprise": dict(zip(scores.views, plain(scores.surprise[row]), strict=True)),
                }
            )
    now = {line.name: plain(line.now) for line in channel_lines(snapshot.moment, name)}
    scored_s = moment.end_s if moment else None
    forecasts = [_forecast(each) for each in snapshot.memory_forecasts if each.node == name]
    return {
        **plain(node),
        "scored_s": scored_s,
        "threads_scored": threads,
        "node_channels": now,
        "memory_forecasts": forecasts,
    }


def _forecast(forecast: MemoryForecast) -> dict[str, Any]:
    return {**plain(forecast), "text": forecast.short}


def _traces(state: ServiceState, name: str, seconds: int, reconstructed: bool) -> dict[str, Any]:
    moment, detector = state.snapshot.moment, state.detector
    if moment is None or name not in moment.nodes:
        raise HTTPException(404, f"no node {name!r}")
    rows = np.flatnonzero(moment.node == moment.nodes.index(name))
    values = np.where(moment.valid[rows, -seconds:, None], moment.values[rows, -seconds:], np.nan)
    answer: dict[str, Any] = {
        "node": name,
        "start_s": moment.end_s - seconds,
        "end_s": moment.end_s,
        "channels": moment.schema.names,
        "cpus": moment.cpu[rows].tolist(),
        "jobs": [moment.jobs[job] if job >= 0 else "" for job in moment.job[rows]],
        "values": plain(values),
        "node_channels": {line.name: plain(line.values[-seconds:]) for line in channel_lines(moment, name)},
        "reconstructed": None,
    }
    if reconstructed and detector is not None:
        from clustertwin.telemetry.detection.features.inference import reconstruct

        # The model compares a thread with the other threads of its job, so reconstruct them together.
        threads, wanted = moment.with_peers(rows)
        answer["reconstructed"] = plain(reconstruct(detector.stored, threads)[wanted][:, -seconds:])
    return answer


def _embedding(snapshot: Snapshot, limit: int) -> dict[str, Any]:
    moment, scores = snapshot.scored, snapshot.scores
    if moment is None or scores is None:
        return {"model": "", "points": [], "events": []}
    known = np.flatnonzero(~np.isnan(scores.score))
    known = known[np.argsort(-scores.score[known], kind="stable")][:limit]
    types = {job.job: job.job_type for job in snapshot.jobs}
    points = []
    for row in known.tolist():
        job = moment.jobs[moment.job[row]] if moment.job[row] >= 0 else ""
        points.append(
            {
                "node": moment.nodes[moment.node[row]],
                "cpu": int(moment.cpu[row]),
                "job": job,
                "job_type": types.get(job, ""),
                "score": plain(float(scores.score[row])),
                "embedding": plain(scores.embedding[row]),
            }
        )
    point_of_row = {row: i for i, row in enumerate(known.tolist())}
    regions = []
    for event in snapshot.events[:100]:
        rows = rows_of(moment, event).tolist()
        regions.append({"event": event.id, "points": [point_of_row[row] for row in rows if row in point_of_row]})
    model = snapshot.model.version if snapshot.model else ""
    return {"model": model, "points": points, "events": regions}
