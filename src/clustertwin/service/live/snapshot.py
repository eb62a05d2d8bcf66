"""What the loop publishes and everybody else reads: an immutable `Snapshot` a second, behind one `ServiceState`.

The loop is the only writer. Pages, API, metrics and streams read `state.snapshot`, which is replaced whole: no locks,
and no reader ever sees half of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.ingest.rates import Faults
from clustertwin.telemetry.moments.moment import Moment

if TYPE_CHECKING:
    from clustertwin.service.store.event_store import Store
    from clustertwin.telemetry.detection.detector import Detector
    from clustertwin.telemetry.recording.trace_archive import TraceArchive

#: of the loop, and of each node
Phase = Literal["warming-up", "watching", "stale", "maintenance"]


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node, as of the last scoring; numbers are NaN where nothing is known."""

    node: str
    phase: Phase
    threads: int
    heard_s: int  # the second after the last it was heard of
    score: float  # of its strangest thread
    error: float  # mean reconstruction error of its known threads
    alarming: int  # threads above the threshold
    unknown: int  # threads without a score
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobState:
    """One running job."""

    job: str
    owner: str
    job_type: str  # where a label says so: in a replayed campaign
    nodes: tuple[str, ...]
    threads: int
    since_s: int
    score: float
    error: float
    alarming: int


@dataclass(frozen=True, slots=True)
class ModelState:
    """The detector that scores now."""

    version: str
    name: str  # of its architecture
    origin: Literal["bundled", "champion"]
    threshold: float
    false_alarm_rate: float
    views: tuple[str, ...]
    since_s: float  # in force since
    refused: tuple[str, ...] = ()  # reasons why newer ones were not taken, newest last
    refused_total: int = 0


@dataclass(frozen=True, slots=True)
class EngineState:
    """Where moments are scored, and whether that goes as it was meant."""

    name: Literal["here", "ray"]
    wanted: int = 0  # actors
    workers: int = 0  # … that could be asked the last time
    fell_back_total: int = 0  # moments that the service had to score itself
    lost_total: int = 0  # moments of which a part is unknown
    problem: str = ""  # what is not as it was meant, now


@dataclass(frozen=True, slots=True)
class History:
    """The strangest score of each node over the last hour, for the nodes × time picture."""

    times_s: NDArray[np.int64]  # (time,)
    nodes: tuple[str, ...]
    score: NDArray[np.float32]  # (node, time), NaN unknown


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is known in one second."""

    number: int  # counts up by one; the id of a server-sent event
    now_s: float  # the feed's clock; of the recording in a replay
    phase: Phase
    ready_in_s: int | None  # while warming up: seconds until the first score, if all goes well
    source: str  # "this host", "prometheus http://…", "replay of DIR at 20x"
    moment: Moment | None  # the latest seconds of every thread
    scored: Moment | None  # the moment that `scores` speak of, row by row
    scores: Scores | None
    nodes: tuple[NodeState, ...]  # strangest first
    jobs: tuple[JobState, ...]  # strangest first
    events: tuple[Event, ...]  # open ones, newest first
    history: History
    model: ModelState | None
    stride_s: int  # seconds between two scorings, as it is now
    stride_why: str  # by which rule
    lag_s: float  # from the newest second heard of to now
    scoring_s: float  # how long the last scoring took
    faults: Faults = field(default_factory=Faults)  # what was wrong with the samples so far
    problems: tuple[str, ...] = ()  # what is wrong now: a source that does not answer, a disk that is full
    opened_total: tuple[tuple[str, int], ...] = ()  # events opened since the start, by view
    scored_total: int = 0  # threads scored since the start
    engine: EngineState = EngineState("here")

    @property
    def threshold(self) -> float:
        return self.model.threshold if self.model else float("nan")


def nothing_yet(source: str) -> Snapshot:
    """The snapshot of a loop that has not heard of anything."""
    empty = History(np.empty(0, np.int64), (), np.empty((0, 0), np.float32))
    return Snapshot(0, 0.0, "warming-up", None, source, None, None, None, (), (), (), empty, None, 0, "", 0.0, 0.0)


class ServiceState:
    """The one thing that pages, API and metrics are handed."""

    def __init__(self, home: Path, store: Store, source: str = "") -> None:
        self.home, self.store = home, store
        self.snapshot: Snapshot = nothing_yet(source)
        self.detector: Detector | None = None  # the one that made `snapshot.scores`
        self.past: TraceArchive | None = None  # where seconds are that have left the snapshot
        self.replayed = False  # a recording of the past: nothing is learnt from it
        self.ending: Callable[[], bool] = lambda: False  # is the service about to end, so that streams must?

    def teachable(self) -> Path:
        """The home whose models and learning may be changed; a replay has none."""
        if self.replayed:
            raise SettingsError("a replay learns nothing and changes no model; ask the service that watches")
        return self.home

    def publish(self, snapshot: Snapshot, detector: Detector | None) -> None:
        # Two plain assignments: a reader that falls between them sees the new detector beside scores a second old.
        self.detector = detector
        self.snapshot = snapshot
