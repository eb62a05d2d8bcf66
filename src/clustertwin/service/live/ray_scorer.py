"""Score a large cluster on Ray: a moment -> parts that share no job -> the same scores, from several actors.

Traces, events and pages stay in the service. An actor has only a detector, so a new actor can replace one that died.
The scores of its nodes are unknown for one scoring. If no actor is available, the service scores in its own process,
and the state says why.
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

#: The loop waits this long for an actor. A longer wait would delay every page.
PATIENCE_S = 5.0
#: Variables that Ray reads from the environment, some of them when it is imported.
RAY = {
    # By default Ray lowers the priority of its workers. Scoring must not wait for other processes.
    "RAY_worker_niceness": "0",
    # By default Ray ends the process if the cluster is gone for a minute. The service continues without it.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "1000000",
    # On SIGTERM Ray would print a stack and end the process. The service must store its events first.
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A moment in transfer. Its arrays have the memory layout of the trace buffer, so the receiver copies nothing."""

    frame: Moment  # without seconds
    values: NDArray[np.float32]  # (second, channel, thread)
    valid: NDArray[np.bool_]  # (second, thread)

    @classmethod
    def of(cls, moment: Moment, rows: Rows) -> Part:
        values, valid = moment.values.transpose(1, 2, 0), moment.valid.T
        empty = replace(
            moment, values=moment.values[:, :0], valid=moment.valid[:, :0], node_channels=None, job_channels=None
        )
        part = np.ascontiguousarray
        return cls(empty.take(rows), part(values[:, :, rows]), part(valid[:, rows]))

    @property
    def moment(self) -> Moment:
        return replace(self.frame, values=self.values.transpose(2, 0, 1), valid=self.valid.T)


class _Worker:
    """The code of an actor. It fetches the detector when the version is new, as after a restart."""

    def __init__(self) -> None:
        self._version, self._detector = "", None  # type: tuple[str, Any]

    def warm(self) -> int:
        """Import what scoring needs, which takes seconds, and return the process id."""
        import clustertwin.telemetry.detection.detector  # noqa: F401  (it imports torch)

        require("torch", "models").set_num_threads(1)
        return os.getpid()

    def score(self, version: str, detector: list[Any], part: Part) -> Scores:
        if version != self._version:
            self._version, self._detector = version, require("ray", "ray").get(detector[0])
        scores: Scores = self._detector.score(part.moment)
        return scores


@dataclass(slots=True)
class _Actor:
    """An actor and its current task: none, warming up, or a part that came too late."""

    handle: Any
    busy: Any  # an object reference or None


class RayScorer:
    """Sends parts to actors. A detector is sent once, when it becomes champion.

    If an actor is late or dies, the scores of its nodes are unknown in that scoring. The other actors take over its
    nodes until it is restarted and has answered.
    """

    def __init__(self, workers: int, patience_s: float = PATIENCE_S) -> None:
        self.workers, self.patience_s = workers, patience_s
        for name, value in RAY.items():
            os.environ.setdefault(name, value)
        self._ray: Any = require("ray", "ray")
        self._actors: list[_Actor] = []
        self._own_ray = False  # whether this process started Ray and must stop it
        self._version, self._sent = "", None
        self._state = EngineState("ray", wanted=workers)
        # Connecting to Ray or starting it takes seconds, so it runs in a thread. The thread must live as long as this
        # object: the kernel kills a Ray that we started together with the thread that started it.
        self._pool = ThreadPoolExecutor(1, "ray")
        self._started: Future[None] = self._pool.submit(self._start)

    @property
    def state(self) -> EngineState:
        return self._state

    def __call__(self, detector: Detector, moment: Moment) -> Scores:
        free = self._free()
        if not free:
            return self._in_process(detector, moment, self._why_no_actor())
        if detector.version != self._version:
            self._version, self._sent = detector.version, self._ray.put(detector)
        dealt = list(zip(free, split_by_job(moment, len(free)), strict=False))
        for actor, rows in dealt:
            actor.busy = actor.handle.score.remote(self._version, [self._sent], Part.of(moment, rows))
        self._ray.wait([actor.busy for actor, _ in dealt], num_returns=len(dealt), timeout=self.patience_s)
        answers, failure = self._answers(dealt)
        if not answers:
            return self._in_process(detector, moment, f"no actor answered: {failure}")
        problem = f"the scores of some nodes are missing: {failure}" if failure else ""
        state = replace(self._state, workers=len(free), lost_total=self._state.lost_total + bool(failure))
        self._set_state(state, problem)
        return combine(moment, answers)

    def pids(self) -> list[int]:
        """The process ids of the actors that are ready."""
        return [self._ray.get(actor.handle.warm.remote()) for actor in self._free()]

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor.handle)
        if self._own_ray:
            self._ray.shutdown()
        self._pool.shutdown(wait=False)

    def _start(self) -> None:
        if not self._ray.is_initialized():
            # Without an address, Ray would join the cluster that somebody last started on this machine.
            address = os.environ.get("RAY_ADDRESS") or "local"
            self._own_ray = address == "local"
            # Ray warns that it is started from a thread; this is intended.
            self._ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
        remote = self._ray.remote(num_cpus=1, max_restarts=-1)(_Worker)
        handles = [remote.remote() for _ in range(self.workers)]
        self._actors = [_Actor(handle, handle.warm.remote()) for handle in handles]

    def _free(self) -> list[_Actor]:
        """The actors that are ready. An actor that died is told to warm up as soon as Ray has restarted it."""
        for actor in self._actors:
            if actor.busy is not None and self._ray.wait([actor.busy], timeout=0)[0]:
                self._result(actor)
        return [actor for actor in self._actors if actor.busy is None]

    def _result(self, actor: _Actor) -> Scores | Exception | None:
        """The result of a finished task."""
        done, actor.busy = actor.busy, None
        try:
            result: Scores | None = self._ray.get(done)
            return result
        except self._ray.exceptions.RayActorError as error:
            actor.busy = actor.handle.warm.remote()
            return error
        except self._ray.exceptions.RayError as error:
            return Exception(str(error))

    def _answers(self, dealt: list[tuple[_Actor, Rows]]) -> tuple[list[tuple[Rows, Scores]], str]:
        """The scores that came in time, and why others did not."""
        answers: list[tuple[Rows, Scores]] = []
        failure = ""
        for actor, rows in dealt:
            if not self._ray.wait([actor.busy], timeout=0)[0]:
                failure = f"an actor has not answered within {self.patience_s:g} s"
                continue
            result = self._result(actor)
            if isinstance(result, Scores):
                answers.append((rows, result))
            else:
                failure = " ".join(str(result).split())[:200] or "an actor died"
        return answers, failure

    def _why_no_actor(self) -> str:
        if not self._started.done():
            return "Ray is starting"
        if error := self._started.exception():
            return f"Ray could not be started: {' '.join(str(error).split())[:200]}"
        return f"none of {self.workers} actors is ready"

    def _in_process(self, detector: Detector, moment: Moment, why: str) -> Scores:
        state = replace(self._state, workers=0, fell_back_total=self._state.fell_back_total + 1)
        self._set_state(state, f"the service scores in its own process, not on Ray: {why}")
        return detector.score(moment)

    def _set_state(self, state: EngineState, problem: str) -> None:
        """Set the state, and log the problem when it changes."""
        if problem and problem != self._state.problem:
            log.warning(problem)
        elif self._state.problem and not problem:
            log.warning("%d Ray actors are scoring again", state.workers)
        self._state = replace(state, problem=problem)
