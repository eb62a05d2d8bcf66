"""Score a large cluster on Ray: a moment -> parts that share no job -> the same scores, from many actors.

A thread is compared with the other threads of its job, so a job's nodes must be scored together. Nodes that a job joins
form a cluster of nodes; whole clusters are dealt to the actors, the largest first. One job over all nodes therefore
goes to one actor: the scores stay exact, and the work is as even as the jobs allow. Traces, events and pages stay in
the one service; actors hold a detector and nothing else.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.telemetry.detection.moment import Moment
from clustertwin.telemetry.detection.scores import Scores

if TYPE_CHECKING:
    from clustertwin.telemetry.detection.detector import Detector


def deal(moment: Moment, parts: int) -> list[NDArray[np.intp]]:
    """The rows of each part; no job and no node is in two. Parts that would be empty are left out."""
    cluster = np.arange(len(moment.nodes))
    for node, job in _pairs(moment):
        # Every node of a job takes the name of its first.
        first, mine = cluster[job], cluster[node]
        cluster[cluster == max(first, mine)] = min(first, mine)
    names, sizes = np.unique(cluster[moment.node], return_counts=True)
    load = np.zeros(parts, np.int64)
    part_of: dict[int, int] = {}
    for i in np.argsort(-sizes, kind="stable"):
        lightest = int(load.argmin())
        part_of[int(names[i])] = lightest
        load[lightest] += sizes[i]
    part = np.array([part_of.get(int(name), 0) for name in cluster])[moment.node]  # (thread,)
    return [rows for number in range(parts) if len(rows := np.flatnonzero(part == number))]


def _pairs(moment: Moment) -> list[tuple[int, int]]:
    """(node, the first node of a job it has threads of), for jobs on more than one node."""
    held = moment.job >= 0
    pairs = np.unique(np.stack([moment.job[held], moment.node[held]], 1), axis=0)  # ordered by job, then node
    first: dict[int, int] = {}
    found = []
    for job, node in pairs.tolist():
        if job in first:
            found.append((node, first[job]))
        first.setdefault(job, node)
    return found


def take(moment: Moment, rows: NDArray[np.intp]) -> Moment:
    """The threads of these rows as a moment of their own; names keep their numbers."""
    columns = {name: getattr(moment, name)[rows] for name in ("values", "valid", "node", "cpu", "job", "age_s")}
    return replace(moment, **columns)


def gather(moment: Moment, parts: list[tuple[NDArray[np.intp], Scores]]) -> Scores:
    """The parts' scores in the moment's order."""
    first = parts[0][1]

    def whole(name: str) -> NDArray[np.float32]:
        out = np.full((len(moment), *getattr(first, name).shape[1:]), np.nan, np.float32)
        for rows, scores in parts:
            out[rows] = getattr(scores, name)
        return out

    return Scores(whole("score"), whole("surprise"), first.views, whole("error"), whole("embedding"))


class RayScorer:
    """Scores on actors; a detector is sent once, when it becomes champion.

    Actors that do not answer within `patience_s` (no CPU is free for them, a host is lost) hold nobody up: the moment
    is scored here, and `fell_back` counts it.
    """

    def __init__(self, workers: int, patience_s: float = 20.0) -> None:
        self.patience_s, self.fell_back = patience_s, 0
        self._ray: Any = require("ray", "ray")
        if not self._ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS") or None
            self._ray.init(address=address, log_to_driver=False, include_dashboard=False)
        actor = self._ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=2)(_Actor)
        self._actors = [actor.remote() for _ in range(workers)]
        self._version, self._sent = "", None

    def __call__(self, detector: Detector, moment: Moment) -> Scores:
        if detector.version != self._version:
            self._version, self._sent = detector.version, self._ray.put(detector)
        dealt = deal(moment, len(self._actors))
        asked = [
            actor.score.remote(self._version, [self._sent], take(moment, rows))
            for actor, rows in zip(self._actors, dealt, strict=False)
        ]
        try:
            answers = self._ray.get(asked, timeout=self.patience_s)
        except self._ray.exceptions.RayError:
            self.fell_back += 1
            return detector.score(moment)
        return gather(moment, list(zip(dealt, answers, strict=True)))

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)


class _Actor:
    """One worker; it fetches the detector when the version is new to it, so a restarted one fetches it again."""

    def __init__(self) -> None:
        self._version, self._detector = "", None

    def score(self, version: str, detector: list[Any], moment: Moment) -> Scores:
        if version != self._version:
            self._version, self._detector = version, require("ray", "ray").get(detector[0])
        found: Scores = self._detector.score(moment)  # type: ignore[attr-defined]
        return found
