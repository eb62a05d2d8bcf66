"""What the loop publishes: one immutable `Snapshot` each second, in a `ServiceState` that pages, API and metrics read.

The loop is the only writer. It replaces `state.snapshot` as a whole, so readers need no locks and never see a mix of
two seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.job_health import KnownHealth
from clustertwin.service.live.queue.change_desk import ChangeDesk
from clustertwin.service.live.queue.start_board import StartBoard
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.forecast.memory_forecast import MemoryForecast
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.ingest.rates import Faults
from clustertwin.telemetry.learning.champions.shadow import NO_SHADOW, Shadow, read_shadow
from clustertwin.telemetry.moments.moment import Moment

if TYPE_CHECKING:
    from clustertwin.service.live.feeds.remote_write_feed import RemoteWriteFeed
    from clustertwin.service.live.members.member_board import MemberBoard
    from clustertwin.service.store.event_store import Store
    from clustertwin.telemetry.detection.detector import Detector
    from clustertwin.telemetry.recording.trace_archive import TraceArchive

#: The phase of the loop, and of each node.
Phase = Literal["warming-up", "watching", "stale", "maintenance"]


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node: its scores at the last scoring, and when it was heard last. An unknown number is NaN."""

    node: str
    phase: Phase
    threads: int
    heard_s: int  # the end of the last second with data
    score: float  # the highest score of its threads
    error: float  # mean reconstruction error of its scored threads
    alarming: int  # threads above the threshold
    unknown: int  # threads without a score
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobState:
    """One running job."""

    job: str
    owner: str
    job_type: str  # only known in a replayed campaign
    nodes: tuple[str, ...]
    threads: int
    since_s: int
    score: float
    error: float
    alarming: int
    name: str = ""  # of the job or its program, if the source knows it
    account: str = ""  # that it is charged to, if the source knows it


@dataclass(frozen=True, slots=True)
class ModelState:
    """The detector in service."""

    version: str
    name: str  # of its architecture
    origin: Literal["bundled", "champion"]
    threshold: float
    false_alarm_rate: float
    views: tuple[str, ...]
    since_s: float  # in service since
    refused: tuple[str, ...] = ()  # why newer ones were refused, newest last
    refused_total: int = 0


@dataclass(frozen=True, slots=True)
class EngineState:
    """Where moments are scored, and whether that works."""

    name: Literal["here", "ray"]
    wanted: int = 0  # configured actors
    workers: int = 0  # actors that were ready at the last scoring
    fell_back_total: int = 0  # moments that the service scored in its own process instead
    lost_total: int = 0  # moments with missing scores
    problem: str = ""  # the current problem


@dataclass(frozen=True, slots=True)
class ScoreHistory:
    """Scores of each node over the last hour, for the heat map of the cluster."""

    times_s: NDArray[np.int64]  # (time,)
    nodes: tuple[str, ...]
    score: NDArray[np.float32]  # (node, time) the highest of its threads; NaN is unknown
    share: NDArray[np.float32] | None = None  # (node, time) of its scored threads that are above the threshold


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the cluster at one second."""

    number: int  # increases by one; the id of the server-sent event
    now_s: float  # the feed's clock; in a replay, the time of the recording
    phase: Phase
    ready_in_s: int | None  # while warming up: seconds until the first score, if no data is lost
    source: str  # "this host", "prometheus http://…", "replay of DIR at 20x"
    moment: Moment | None  # the latest seconds of every thread
    scored: Moment | None  # the moment that `scores` belongs to, row by row
    scores: Scores | None
    nodes: tuple[NodeState, ...]  # highest score first
    jobs: tuple[JobState, ...]  # highest score first
    events: tuple[Event, ...]  # open events, newest first
    history: ScoreHistory
    model: ModelState | None
    stride_s: int  # seconds between two scorings
    stride_why: str  # the reason for this stride
    lag_s: float  # age of the newest data
    scoring_s: float  # duration of the last scoring
    faults: Faults = field(default_factory=Faults)  # faulty samples so far
    problems: tuple[str, ...] = ()  # current problems: a source that does not answer, a full disk
    opened_total: tuple[tuple[str, int], ...] = ()  # events opened since the start, by view
    scored_total: int = 0  # threads scored since the start
    engine: EngineState = EngineState("here")
    failures_total: tuple[tuple[str, int], ...] = ()  # failures inside the loop since the start, by part
    replay_ended: bool = False  # the whole recording has been replayed
    memory_forecasts: tuple[MemoryForecast, ...] = ()  # of nodes and jobs, the soonest first
    information: tuple[Finding, ...] = ()  # what was found of jobs and opens no event
    suspects: tuple[Finding, ...] = ()  # of it: jobs that may be busy without progress, the longest first

    @property
    def threshold(self) -> float:
        return self.model.threshold if self.model else float("nan")


#: A time that is this far in the future was written before the clock was set back.
SET_BACK_S = 60.0


def nothing_yet(source: str) -> Snapshot:
    """The snapshot before any data has arrived."""
    empty = ScoreHistory(np.empty(0, np.int64), (), np.empty((0, 0), np.float32))
    return Snapshot(0, 0.0, "warming-up", None, source, None, None, None, (), (), (), empty, None, 0, "", 0.0, 0.0)


def stale_nodes(nodes: tuple[NodeState, ...]) -> tuple[NodeState, ...]:
    """The nodes of a loop that has no current data: none of them is watched."""
    return tuple(node if node.phase == "maintenance" else replace(node, phase="stale") for node in nodes)


def standing_still(snapshot: Snapshot, age_s: float) -> Snapshot:
    """The last snapshot of a loop that has published nothing for `age_s`, marked as such."""
    problem = f"the loop stands still: it has published nothing for {age_s:.0f} s, and this page shows its last second"
    return replace(
        snapshot,
        phase="stale",
        ready_in_s=None,
        nodes=stale_nodes(snapshot.nodes),
        lag_s=snapshot.lag_s + age_s,
        problems=(problem, *snapshot.problems),
    )


class ServiceState:
    """What pages, API and metrics share with the loop. Readers compare the snapshot's age with the clock themselves."""

    def __init__(
        self,
        home: Path,
        store: Store,
        source: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.home, self.store = home, store
        self._clock, self._wall_clock = clock, wall_clock
        self._published: tuple[Snapshot, float] = (nothing_yet(source), clock())
        self.standing_after_s = inf  # a running loop sets it: an older snapshot means that the loop stands still
        self.detector: Detector | None = None  # the one that computed `snapshot.scores`
        self.past: TraceArchive | None = None  # the archive of seconds that are no longer in the snapshot
        self.replayed = False  # a replay: it neither learns nor changes a model
        self.may_be_in_shadow = False  # a live service: nobody is notified until it knows its site
        self.changes: ChangeDesk | None = None  # compares the live queue on a changed site, if a site is known
        self.members: MemberBoard | None = None  # joined clusters, if any; a thread beside the loop replaces it
        self.starts: StartBoard | None = None  # when waiting jobs start; a thread beside the loop replaces it
        self.known_health: KnownHealth = {}  # jobs of open events that hang by their evidence
        self.hanging_s: Mapping[str, float] = {}  # suspect -> when a second look showed that it hangs
        self.receiver: RemoteWriteFeed | None = None  # takes in pushed samples, if that is the source
        self.hand_problem = ""  # why evidence or actions are missing, in one sentence
        self.hand_age_s: Callable[[], float] = lambda: 0.0  # the time since the last turn for evidence and actions
        self.side_problems: dict[str, str] = {}  # work beside the loop -> why its last turn failed
        self.ending: Callable[[], bool] = lambda: False  # whether the service is stopping, so that streams must end

    @property
    def age_s(self) -> float:
        """The time since the loop published its last snapshot."""
        return self._clock() - self._published[1]

    @property
    def snapshot(self) -> Snapshot:
        """The last snapshot. If it is old, its phase is stale and its first problem says so."""
        snapshot, published_s = self._published
        age_s = self._clock() - published_s
        return snapshot if age_s <= self.standing_after_s else standing_still(snapshot, age_s)

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot) -> None:
        self._published = snapshot, self._clock()

    @property
    def shadow(self) -> Shadow:
        """Whether this service only watches, because it does not know its site yet."""
        shadow = read_shadow(self.home) if self.may_be_in_shadow else NO_SHADOW
        if not shadow.on and shadow.end_s > self._wall_clock() + SET_BACK_S:
            return replace(shadow, end_s=0.0)  # else the shadow would cover every event until then
        return shadow

    def teachable(self) -> Path:
        """The home whose models and learning can be changed. A replay has none."""
        if self.replayed:
            raise SettingsError("a replay neither learns nor changes a model; use the live service")
        return self.home

    def publish(self, snapshot: Snapshot, detector: Detector | None) -> None:
        # Two assignments: a reader between them gets the new detector with the scores of the last second.
        self.detector = detector
        self.snapshot = snapshot
