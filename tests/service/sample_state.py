"""A small sample state of the service: two nodes, a job and an open event, without a loop and without a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from clustertwin.core.channels import CPU
from clustertwin.service.live.snapshot import JobState, ModelState, NodeState, ServiceState, Snapshot, nothing_yet
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation import Explanation, Ratio
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment, assemble

NOW_S = 10_000
EVENT = Event("e1", (("n1", (0, 1)),), ("17",), "ada", 9_800, 9_990, None, 4.5, "reconstruction", "ae-0123")
WHY = Explanation("reconstruction", 9_890, 9_990, 80, 2, 2, "node", (Ratio("iowait", 0.7, 0.02, None),))


def moment(nodes: tuple[str, ...] = ("n1", "n2"), cpus: int = 2, length_s: int = 300) -> Moment:
    blocks = [
        (
            node,
            tuple(range(cpus)),
            np.zeros((cpus, length_s, len(CPU)), np.float32),
            np.ones((cpus, length_s), np.bool_),
        )
        for node in nodes
    ]
    return assemble(NOW_S, CPU, blocks, [])


def scores(score: list[float]) -> Scores:
    column = np.array(score, np.float32)
    error = np.full(len(column), 0.01, np.float32)
    return Scores(column, column[:, None], ("reconstruction",), error, np.zeros((len(column), 2), np.float32))


def snapshot() -> Snapshot:
    scored_moment = moment()
    return replace(
        nothing_yet("by hand"),
        number=7,
        now_s=float(NOW_S),
        phase="watching",
        moment=scored_moment,
        scored=scored_moment,
        scores=scores([4.5, 4.0, 0.5, float("nan")]),
        nodes=(
            NodeState("n1", "watching", 2, NOW_S - 1, 4.5, 0.25, 2, 0, ("17",)),
            NodeState("n2", "stale", 2, NOW_S - 40, float("nan"), float("nan"), 0, 1, ()),
        ),
        jobs=(JobState("17", "ada", "", ("n1",), 2, 9_000, 4.5, 0.25, 2),),
        events=(EVENT,),
        model=ModelState("ae-0123", "ae", "bundled", 3.0, 1e-3, ("reconstruction",), 9_000.0, ("torn",), 1),
        stride_s=5,
        lag_s=1.5,
        scoring_s=0.02,
        problems=("n2 does not answer",),
        opened_total=(("reconstruction", 3),),
        scored_total=1_234,
    )


def state(home: Path) -> ServiceState:
    """A published state, with the event in the store. Close `state.store` afterwards."""
    published = ServiceState(home, Store(home / "state.sqlite"), clock=lambda: 0.0)
    published.store.write([(EVENT, WHY)])
    published.publish(snapshot(), None)
    return published
