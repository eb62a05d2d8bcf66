"""Which nodes Slurm gave each job, and which jobs it has suspended -> spans only where Slurm runs the job.

A node says itself which jobs it runs. One that claims a job of other nodes would be compared with them, as one of the
job's ranks, and open events there. Its claim is dropped once Slurm, asked after the claim, still names other nodes of
which one claims the job too. So no claim is dropped where Slurm knows the nodes by other names, or a job moves.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from clustertwin.core.traces import Trace
from clustertwin.service.live.feeds.contract import NAMED
from clustertwin.service.live.feeds.squeue_lines import ask_squeue
from clustertwin.workload.slurm.site.quantities import expand_hosts

EVERY_S = 60.0
#: A claim that contradicts the last answer is asked about after this long.
SOON_S = 5.0
#: What was not there for so long is forgotten.
AWAY_S = 600.0
#: Claims, and nodes, that are remembered. Further claims are dropped at once.
MOST_CLAIMS = 100_000


class Places(NamedTuple):
    """An answer of Slurm."""

    nodes: Mapping[str, Sequence[str]] = {}  # job -> lists of nodes, as Slurm writes them; only jobs that run
    suspended: frozenset[str] = frozenset()  # jobs that Slurm has suspended, or whose tasks it has stopped


#: Asks where the jobs are; None if there is no answer.
PlaceSource = Callable[[], Places | None]


def places_in_slurm(squeue: str) -> PlaceSource:
    """The nodes and the states of all jobs, from one call of squeue."""

    def ask() -> Places | None:
        # A job that completes keeps only the nodes that are not yet done.
        lines = ask_squeue(squeue, "RUNNING,SUSPENDED,STOPPED", "%A|%i|%T|%N")
        return None if lines is None else parse_places(lines)

    return ask


def parse_places(lines: Sequence[str]) -> Places:
    """Lines of job id, id for people, state and nodes. A heterogeneous job is one job: its components have steps that
    span the nodes of all.

    >>> found = parse_places(["17|17|RUNNING|n[1-2]", "18|18+0|SUSPENDED|n3", "19|18+1|RUNNING|n4", "damaged"])
    >>> dict(found.nodes), sorted(found.suspended)
    ({'17': ['n[1-2]'], '18': ['n3', 'n4'], '19': ['n3', 'n4']}, ['18'])
    """
    rows = [fields for line in lines if len(fields := line.strip().split("|")) == 4]
    lists: dict[str, list[str]] = defaultdict(list)
    for _, shown, _, hosts in rows:
        lists[shown.partition("+")[0]].append(hosts)
    nodes = {job: lists[shown.partition("+")[0]] for job, shown, _, _ in rows}
    return Places(nodes, frozenset(job for job, _, state, _ in rows if state in ("SUSPENDED", "STOPPED")))


class JobPlaces:
    """The last answer, and the claims that it contradicts."""

    def __init__(self, source: PlaceSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock = source, clock
        self._places, self._asked_s = Places(), float("-inf")  # the answer, and when it was asked for
        self._next_s = float("-inf")
        self._asking: tuple[Future[Places | None], float] | None = None
        self._pool = ThreadPoolExecutor(1, "job places")
        self._heard: dict[str, float] = {}  # nodes, and when they were there last
        self._at_home: dict[str, float] = {}  # jobs that a node of theirs claims, and when it did so last
        self._strange: dict[tuple[str, str], tuple[float, float]] = {}  # other claims: first and last time

    @property
    def suspended(self) -> frozenset[str]:
        """The jobs that Slurm has suspended. While Slurm does not answer, it resumes no job."""
        return self._places.suspended

    @property
    def problems(self) -> tuple[str, ...]:
        refused = [claim for claim, (first_s, _) in self._strange.items() if self._is_contradicted(claim[0], first_s)]
        named = tuple(
            f"node {node} claims job {job}, which Slurm runs on {', '.join(self._places.nodes[job])[:200]}; "
            "there its threads count as without a job"
            for job, node in refused[:NAMED]
        )
        more = len(refused) - len(named)
        return (*named, f"{more} more jobs are claimed by nodes that Slurm does not name") if more else named

    def ask(self) -> None:
        """Take the answer of the last question, and ask again if it is time."""
        now_s = self._clock()
        if self._asking is not None and self._asking[0].done():
            question, asked_s = self._asking
            self._asking = None
            with suppress(Exception):  # whatever Slurm answers, the loop must not end with it
                if (answer := question.result()) is not None:
                    self._places, self._asked_s = answer, asked_s
            self._forget(now_s - AWAY_S)
        if self._asking is None and now_s >= self._next_s:
            self._next_s = now_s + EVERY_S
            self._asking = self._pool.submit(self._source), now_s

    def checked(self, traces: Sequence[Trace]) -> list[Trace]:
        """The traces without the claims that Slurm contradicts."""
        now_s = self._clock()
        for trace in traces:
            if trace.node in self._heard or len(self._heard) < MOST_CLAIMS:
                self._heard[trace.node] = now_s
        return [self._checked(trace, now_s) for trace in traces]

    def _checked(self, trace: Trace, now_s: float) -> Trace:
        refused = {span.job for span in trace.spans if self._is_refused(span.job, trace.node, now_s)}
        if not refused:
            return trace
        channels = trace.job_channels
        if channels is not None:
            rows = [i for i, job in enumerate(channels.jobs) if job not in refused]
            channels = replace(channels, jobs=tuple(channels.jobs[i] for i in rows), values=channels.values[rows])
        spans = tuple(span for span in trace.spans if span.job not in refused)
        return replace(trace, spans=spans, job_channels=channels)

    def _is_refused(self, job: str, node: str, now_s: float) -> bool:
        lists = self._places.nodes.get(job)
        if lists is None:
            return False
        if self._is_among(node, lists):
            self._at_home[job] = now_s
            self._strange.pop((job, node), None)
            return False
        if (job, node) not in self._strange:
            if len(self._strange) >= MOST_CLAIMS:
                return True
            self._next_s = min(self._next_s, now_s + SOON_S)
        first_s, _ = self._strange.get((job, node), (now_s, now_s))
        self._strange[job, node] = first_s, now_s
        return self._is_contradicted(job, first_s)

    def _is_contradicted(self, job: str, first_s: float) -> bool:
        return first_s <= self._asked_s and job in self._at_home and job in self._places.nodes

    def _is_among(self, node: str, lists: Sequence[str]) -> bool:
        """Whether Slurm names this node, perhaps without its domain: `n1.cluster` is `n1`, if no other node is."""
        short = node.partition(".")[0]
        names = {node} if short in self._heard else {node, short}
        return any(not names.isdisjoint(_hosts(text)) for text in lists)

    def _forget(self, before_s: float) -> None:
        self._heard = {node: last_s for node, last_s in self._heard.items() if last_s >= before_s}
        self._at_home = {job: last_s for job, last_s in self._at_home.items() if last_s >= before_s}
        self._strange = {
            claim: times
            for claim, times in self._strange.items()
            if times[1] >= before_s and claim[0] in self._places.nodes
        }

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


@lru_cache(maxsize=4096)
def _hosts(text: str) -> frozenset[str]:
    """The nodes of a list, with and without their domain; none if it cannot be read."""
    try:
        names = expand_hosts(text)
    except ValueError:
        return frozenset()
    return frozenset(names) | {name.partition(".")[0] for name in names}
