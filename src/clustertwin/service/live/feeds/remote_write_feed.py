"""Samples that Prometheus pushes by remote write as a feed: request bodies -> traces.

The web server hands a body over and waits for the verdict; one thread decodes and collects the samples, so neither the
event loop nor the loop of the service is blocked. The bodies that wait are limited in number and in bytes: beyond it,
senders are asked to come back later.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from clustertwin.core.traces import Trace
from clustertwin.service.live.feeds.contract import first_problems
from clustertwin.service.live.feeds.job_names import JobName, user_of
from clustertwin.service.live.feeds.reading_stream import Stream
from clustertwin.telemetry.ingest.counters import NodeReading
from clustertwin.telemetry.ingest.pushed.pushed_node import PushedNode
from clustertwin.telemetry.ingest.pushed.pushed_samples import AHEAD_S, HELD_S, OLDEST_S, PushedSamples
from clustertwin.telemetry.ingest.pushed.write_request import WriteError, WriteLimits, decode, parse_write_request
from clustertwin.telemetry.ingest.rates import NONE, Faults

#: Bodies that are being received or wait for the thread, and their bytes.
MOST_BODIES, MOST_WAITING_BYTES = 256, 64 << 20
#: The part of them that one sender may use: it may send its bodies as slowly as it likes.
SENDER_PART = 3 / 4
#: Without a request for this long, the source is silent.
SILENT_S = 15.0
#: Counted samples that were dropped are named for this long.
NAMED_S = 60.0
#: A node is named after this many readings in a row that gave no second of data.
UNUSED_READINGS = 10

#: A request with one sample of a series without labels.
_TINY = bytes([0x0A, 2, 0x12, 0])

_WHY_DROPPED = {
    "old": f"older than {OLDEST_S:.0f} s",
    "ahead": f"more than {AHEAD_S:.0f} s ahead of this machine's clock",
}


class QueueFull(WriteError):
    """More is pushed than the service takes in."""

    def __init__(self) -> None:
        super().__init__("the service is busy with earlier requests; send this one again later", 429)


class _TakingTurns:
    """A fair lock: a waiting thread gets it before the one that released it, so that senders cannot stop the loop."""

    def __init__(self) -> None:
        self._next, self._lock = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        with self._next:
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class RemoteWriteFeed:
    pace, patient = 1.0, False

    def __init__(self, limits: WriteLimits = WriteLimits(), clock: Callable[[], float] = time.time) -> None:
        self.source = "pushed by remote write"
        self.limits = limits
        self._clock = clock
        self._samples = PushedSamples()
        self._lock = _TakingTurns()  # of `_samples`
        self._door = threading.Lock()  # of what waits; the event loop takes it, so it is held for a moment only
        self._pool = ThreadPoolExecutor(1, "pushes")
        self._waiting, self._waiting_bytes = 0, 0
        self._bodies_of, self._bytes_of = Counter[str](), Counter[str]()  # the same, by sender
        self._streams: dict[str, tuple[PushedNode, Stream]] = {}  # by node name
        self._claims: dict[str, tuple[str, float]] = {}  # node names that two targets claim, until when it is named
        self._unused: Counter[str] = Counter()  # readings of a node since it gave a second of data
        self._faults = NONE  # of nodes that were forgotten
        self._begun_s = self._heard_s = clock()
        self._dropped: dict[str, tuple[int, int, float]] = {}  # kind -> counted, named from there, until when

    def now_s(self) -> float:
        return self._clock()

    def limit_threads(self, most: int) -> None:
        """Take in at most as many threads as the loop does: here each sender has a share of them."""
        self._samples.most_threads = most

    # The side of the web server -------------------------------------------------------------------------------------

    @contextmanager
    def reserved(self, sender: str, length: int) -> Iterator[None]:
        """Room for a body that is received now; QueueFull if there is none, or none for this sender."""
        with self._door:
            is_full = self._waiting >= MOST_BODIES or self._waiting_bytes + length > MOST_WAITING_BYTES
            own_bodies, own_bytes = self._bodies_of[sender], self._bytes_of[sender]
            if own_bodies:  # a single body is no flood
                is_full |= own_bodies >= SENDER_PART * MOST_BODIES
                is_full |= own_bytes + length > SENDER_PART * MOST_WAITING_BYTES
            if is_full:
                raise QueueFull
            self._count(sender, 1, length)
        try:
            yield
        finally:
            with self._door:
                self._count(sender, -1, -length)

    def _count(self, sender: str, bodies: int, length: int) -> None:
        self._waiting += bodies
        self._waiting_bytes += length
        self._bodies_of[sender] += bodies
        self._bytes_of[sender] += length
        if not self._bodies_of[sender]:
            del self._bodies_of[sender], self._bytes_of[sender]

    def submit(self, sender: str, body: bytes) -> Future[str]:
        """Take in a body. The result is the reason if some of its series cannot be used; WriteError if none can."""
        return self._pool.submit(self._receive, sender, body)

    def _receive(self, sender: str, body: bytes) -> str:
        request = parse_write_request(decode(body, self.limits), self.limits)
        with self._lock:
            self._heard_s = self._clock()
            return self._samples.add(sender, request, self._heard_s)

    # The side of the loop -------------------------------------------------------------------------------------------

    def take(self) -> list[Trace]:
        now_s = self._clock()
        with self._lock:
            due = self._samples.due(now_s)
        traces: list[Trace] = []
        for node, reading in due:
            traces += self._push(node, reading, now_s)
        for name in [name for name, (_, until_s) in self._claims.items() if not until_s - NAMED_S <= now_s <= until_s]:
            del self._claims[name]
        for name in [name for name, (node, _) in self._streams.items() if abs(now_s - node.heard_s) > HELD_S]:
            self._end(name)
        self._note_dropped(now_s)
        return traces

    def _push(self, node: PushedNode, reading: NodeReading, now_s: float) -> list[Trace]:
        name = reading.node
        holder, stream = self._streams.get(name, (node, None))
        if holder is not node:
            if holder.key != node.key:  # else it was left out for a while, and is back
                if holder.dialect.name == "twin" != node.dialect.name and holder.sender == node.sender:
                    return []  # node_exporter beside our exporter, which says more
                if (node.dialect.name, holder.dialect.name) != ("twin", "node"):
                    self._claim(node, holder, name, now_s)
                    return []
            self._end(name)
            stream = None
        if stream is None:
            stream = Stream()
            self._streams[name] = node, stream
            self._claims.pop(name, None)
        traces = stream.push([reading])
        if traces:
            self._unused.pop(name, None)
        else:
            self._unused[name] += 1
        return traces

    def _claim(self, node: PushedNode, holder: PushedNode, name: str, now_s: float) -> None:
        """Refuse a second target of one name: the values of both would be mixed in one node."""
        if name in self._claims or len(self._claims) < 1000:
            reason = f"{node.where}: says that it is {name}, but {holder.where} has that name; its data is refused"
            self._claims[name] = reason, now_s + NAMED_S

    def _end(self, name: str) -> None:
        self._faults += self._streams.pop(name)[1].faults
        self._unused.pop(name, None)

    def _note_dropped(self, now_s: float) -> None:
        for kind in _WHY_DROPPED:
            count = self._samples.counts[kind]
            counted, since, until_s = self._dropped.get(kind, (0, 0, 0.0))
            if count > counted:
                self._dropped[kind] = count, since if now_s < until_s else counted, now_s + NAMED_S
            elif until_s and now_s >= until_s:
                self._dropped[kind] = counted, counted, 0.0

    @property
    def faults(self) -> Faults:
        counts = self._samples.counts
        own = Faults(late=counts["late"], doubled=counts["doubled"]) if counts["late"] or counts["doubled"] else NONE
        return sum((stream.faults for _, stream in self._streams.values()), self._faults + own)

    @property
    def problems(self) -> tuple[str, ...]:
        now_s = self._clock()
        silent_s = abs(now_s - self._heard_s)  # the clock may have been set back
        silent: tuple[str, ...] = ()
        if silent_s > SILENT_S:
            since = "" if self._heard_s != self._begun_s else " since the start"
            silent = (f"nothing has been pushed for {silent_s:.0f} s{since}: read the log of the sender",)
        apart = [
            f"{name}: its samples give no second of data; scrape it once a second"
            for name, readings in self._unused.items()
            if readings >= UNUSED_READINGS
        ]
        refused = [*self._samples.crowded.said.copy(), *self._samples.refused.copy().values()]
        refused += [*(reason for reason, _ in self._claims.values()), *apart]
        dropped = tuple(
            f"{count - since} samples were dropped in the last minutes: {_WHY_DROPPED[kind]}"
            for kind, (count, since, until_s) in self._dropped.items()
            if until_s
        )
        return (*silent, *first_problems(refused, "nodes are left out"), *dropped)

    def counts(self) -> Mapping[str, int]:
        """Samples by outcome, refused series, and the series that are known."""
        return {**self._samples.counts.copy(), "series": self._samples.series}

    def owners(self) -> Mapping[str, JobName]:
        """The users of the jobs, by the user ids that our exporter serves."""
        with self._lock:
            owners = dict(self._samples.owners)
        return {job: JobName(user_of(uid)) for job, uid in owners.items()}

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def prepare(self) -> None:
        """Compile what the first request needs, before it arrives."""
        self._pool.submit(_compile)


def _compile() -> None:
    samples = PushedSamples()
    samples.add("", parse_write_request(_TINY), 0.0)
    samples.due(0.0)
