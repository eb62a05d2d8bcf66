"""Score a large cluster on Ray: a moment -> parts that share no job -> the same scores, from many actors.

Traces, events and pages stay in the one service; an actor holds a detector and nothing else, so that one that died
is replaced by one that knows as much. What its nodes were doing meanwhile is unknown for one scoring. Where no actor
can be asked the moment is scored in the service itself, and the state says so, and why.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.service.live.snapshot import EngineState
from clustertwin.telemetry.detection.partition import Rows, combine, split_by_job
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment

if TYPE_CHECKING:
    from clustertwin.telemetry.detection.detector import Detector

log = logging.getLogger(__name__)

#: An actor that takes longer than this over its part holds up the page for everybody.
PATIENCE_S = 5.0
#: What Ray reads from the environment, some of it when it is imported.
RAY = {
    # To score is no work that steps back for everything else, as Ray's workers do.
    "RAY_worker_niceness": "0",
    # A Ray that is gone for a minute would end our process; the service goes on without it instead.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "1000000",
    # A SIGTERM is for us: what was seen is written down, where Ray would print a stack and end the process.
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A moment as it travels: its seconds lie as on the tape, thread next to thread, and are not copied on arrival."""

    frame: Moment  # without seconds
    values: NDArray[np.float32]  # (second, channel, thread)
    valid: NDArray[np.bool_]  # (second, thread)

    @classmethod
    def of(cls, moment: Moment, rows: Rows) -> Part:
        values, valid = moment.values.transpose(1, 2, 0), moment.valid.T
        empty = replace(moment, values=moment.values[:, :0], valid=moment.valid[:, :0], node_channels=None)
        part = np.ascontiguousarray
        return cls(empty.take(rows), part(values[:, :, rows]), part(valid[:, rows]))

    @property
    def moment(self) -> Moment:
        return replace(self.frame, values=self.values.transpose(2, 0, 1), valid=self.valid.T)


class _Worker:
    """What runs inside an actor. It fetches the detector when the version is new to it, as a restarted one does."""

    def __init__(self) -> None:
        self._version, self._detector = "", None  # type: tuple[str, Any]

    def warm(self) -> int:
        """Import what scoring needs, which takes seconds; the process that has."""
        import clustertwin.telemetry.detection.detector  # noqa: F401  (torch comes with it)

        require("torch", "models").set_num_threads(1)
        return os.getpid()

    def score(self, version: str, detector: list[Any], part: Part) -> Scores:
        if version != self._version:
            self._version, self._detector = version, require("ray", "ray").get(detector[0])
        found: Scores = self._detector.score(part.moment)
        return found


@dataclass(slots=True)
class _Actor:
    """An actor, and what it is busy with: nothing, to get warm, or a part that nobody waits for any more."""

    handle: Any
    busy: Any  # an object reference or None


class RayScorer:
    """Parts to actors. A detector is sent once, when it becomes champion.

    An actor that is late or dies leaves its nodes unknown in that scoring; from the next on the others have them,
    until it has been started again and has answered.
    """

    def __init__(self, workers: int, patience_s: float = PATIENCE_S) -> None:
        self.workers, self.patience_s = workers, patience_s
        for name, value in RAY.items():
            os.environ.setdefault(name, value)
        self._ray: Any = require("ray", "ray")
        self._actors: list[_Actor] = []
        self._ours = False  # a Ray that was started for us, and ends with us
        self._version, self._sent = "", None
        self._state = EngineState("ray", wanted=workers)
        # To reach a cluster, or to start one, takes seconds: the pages need not wait for it. The thread lives as long
        # as we do: the kernel kills a Ray of our own together with the thread that started it.
        self._pool = ThreadPoolExecutor(1, "ray")
        self._started: Future[None] = self._pool.submit(self._start)

    @property
    def state(self) -> EngineState:
        return self._state

    def __call__(self, detector: Detector, moment: Moment) -> Scores:
        free = self._free()
        if not free:
            return self._here(detector, moment, self._why_nobody())
        if detector.version != self._version:
            self._version, self._sent = detector.version, self._ray.put(detector)
        dealt = list(zip(free, split_by_job(moment, len(free)), strict=False))
        for actor, rows in dealt:
            actor.busy = actor.handle.score.remote(self._version, [self._sent], Part.of(moment, rows))
        self._ray.wait([actor.busy for actor, _ in dealt], num_returns=len(dealt), timeout=self.patience_s)
        found, lost = self._answers(dealt)
        if not found:
            return self._here(detector, moment, f"no actor answered: {lost}")
        told = f"a part of the nodes is unknown in this scoring: {lost}" if lost else ""
        self._tell(replace(self._state, workers=len(free), lost_total=self._state.lost_total + bool(lost)), told)
        return combine(moment, found)

    def pids(self) -> list[int]:
        """The processes of actors that can be asked."""
        return [self._ray.get(actor.handle.warm.remote()) for actor in self._free()]

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor.handle)
        if self._ours:
            self._ray.shutdown()
        self._pool.shutdown(wait=False)

    def _start(self) -> None:
        if not self._ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS") or None
            self._ours = address is None
            # It warns of being started from a thread, which is what we want.
            self._ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
        remote = self._ray.remote(num_cpus=1, max_restarts=-1)(_Worker)
        handles = [remote.remote() for _ in range(self.workers)]
        self._actors = [_Actor(handle, handle.warm.remote()) for handle in handles]

    def _free(self) -> list[_Actor]:
        """The actors that can be asked now; one that has died is told to get warm again as soon as it is back."""
        for actor in self._actors:
            if actor.busy is not None and self._ray.wait([actor.busy], timeout=0)[0]:
                self._result(actor)
        return [actor for actor in self._actors if actor.busy is None]

    def _result(self, actor: _Actor) -> Scores | Exception | None:
        """What a reference that is done has become."""
        done, actor.busy = actor.busy, None
        try:
            made: Scores | None = self._ray.get(done)
            return made
        except self._ray.exceptions.RayActorError as error:
            actor.busy = actor.handle.warm.remote()
            return error
        except self._ray.exceptions.RayError as error:
            return Exception(str(error))

    def _answers(self, dealt: list[tuple[_Actor, Rows]]) -> tuple[list[tuple[Rows, Scores]], str]:
        """The parts that came in time, and why others did not."""
        found: list[tuple[Rows, Scores]] = []
        lost = ""
        for actor, rows in dealt:
            if not self._ray.wait([actor.busy], timeout=0)[0]:
                lost = f"an actor has not answered within {self.patience_s:g} s"
                continue
            made = self._result(actor)
            if isinstance(made, Scores):
                found.append((rows, made))
            else:
                lost = " ".join(str(made).split())[:200] or "an actor died"
        return found, lost

    def _why_nobody(self) -> str:
        if not self._started.done():
            return "Ray is being started"
        if error := self._started.exception():
            return f"Ray could not be started: {' '.join(str(error).split())[:200]}"
        return f"none of {self.workers} actors is ready"

    def _here(self, detector: Detector, moment: Moment, why: str) -> Scores:
        state = replace(self._state, workers=0, fell_back_total=self._state.fell_back_total + 1)
        self._tell(state, f"scored in the service itself, not on Ray: {why}")
        return detector.score(moment)

    def _tell(self, state: EngineState, problem: str) -> None:
        """Into the log when it changes, into the state each time."""
        if problem and problem != self._state.problem:
            log.warning(problem)
        elif self._state.problem and not problem:
            log.warning("%d Ray actors score again", state.workers)
        self._state = replace(state, problem=problem)
