"""What a service that joins this cluster asks for every two seconds: all nodes and the newest open events, in brief."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from clustertwin.service.live.members.member_summary import (
    MOST_EVENTS,
    MOST_NODES,
    MOST_PLACES,
    MOST_PROBLEMS,
    SENTENCE_CHARS,
    MemberEvent,
    MemberNode,
    MemberSummary,
)
from clustertwin.service.live.problems import problems
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.contract import RouteGroup
from clustertwin.service.web.unsettled_events import open_events
from clustertwin.telemetry.ingest.counters import NAME_CHARS


def router(state: ServiceState) -> APIRouter:
    api = APIRouter(tags=["clusters"])

    @api.get(
        "/summary", summary="Show all nodes and the newest open events in brief, for a service that joins this one"
    )
    def summary() -> Response:
        # Pydantic writes the text at once. FastAPI would walk through every value first.
        return Response(summary_of(state).model_dump_json(), media_type="application/json")

    return api


ROUTES = RouteGroup(paths=("/summary",), router=router)


def summary_of(state: ServiceState) -> MemberSummary:
    """The summary, not validated: the service that reads it does that."""
    snapshot, events = state.snapshot, open_events(state)
    return MemberSummary.model_construct(
        now_s=snapshot.now_s,
        phase=snapshot.phase,
        lag_s=snapshot.lag_s,
        stride_s=snapshot.stride_s,
        scoring_s=snapshot.scoring_s,
        scored_s=snapshot.scored.end_s if snapshot.scored and snapshot.scored_total else None,
        threshold=snapshot.threshold,
        model=snapshot.model.version if snapshot.model else "",
        jobs=len(snapshot.jobs),
        open_events=len(events),
        problems=tuple(problem[:SENTENCE_CHARS] for problem in problems(state)[: MOST_PROBLEMS + 1]),
        events=tuple(
            MemberEvent.model_construct(
                id=event.id,
                title=event.title[:SENTENCE_CHARS],
                nodes=event.nodes[:MOST_PLACES],
                threads=event.threads,
                job=event.job[:NAME_CHARS],
                score=event.score,
                onset_s=event.onset_s,
            )
            for event in events.events[:MOST_EVENTS]
        ),
        nodes=tuple(
            MemberNode.model_construct(
                node=node.node,
                phase=node.phase,
                threads=node.threads,
                score=node.score,
                alarming=node.alarming,
                unknown=node.unknown,
            )
            for node in snapshot.nodes[:MOST_NODES]
        ),
    )
