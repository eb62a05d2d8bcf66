"""Owners, names and accounts of jobs: user ids that the exporter serves, and Slurm's queue -> spans that have them.

Both are asked in the background, at most once a minute, and only while a job without a name runs. What they answer is
kept and bounded. A source that fails or hangs leaves the names empty: they are for people, and no score needs them.
"""

from __future__ import annotations

import pwd
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from clustertwin.core.formatting import visible
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.live.feeds.contract import Feed
from clustertwin.service.live.feeds.job_places import JobPlaces, places_in_slurm
from clustertwin.service.live.feeds.squeue_lines import ask_squeue
from clustertwin.telemetry.ingest.pushed.pushed_layout import OWNER_METRIC
from clustertwin.telemetry.ingest.rates import Faults
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus

EVERY_S = 60.0
#: A job that comes back after this long is asked for again: its id may have been given to another job.
AWAY_S = 600.0
#: Jobs that are remembered. An older one is forgotten first.
MOST_JOBS = 100_000


class JobName(NamedTuple):
    """An empty field is unknown."""

    user: str = ""
    name: str = ""
    account: str = ""


#: Asks for the jobs that run now.
NameSource = Callable[[], Mapping[str, JobName]]


def owners_in_prometheus(server: Prometheus, clock: Callable[[], float] = time.time) -> NameSource:
    """The users of the jobs, by the user ids that our exporter serves."""

    def ask() -> Mapping[str, JobName]:
        now_s = clock()
        series = server.raw(OWNER_METRIC, now_s - EVERY_S, now_s)
        uids = ((each.labels.get("jobid", ""), float(each.values[-1])) for each in series)
        return {job: JobName(user_of(int(uid))) for job, uid in uids if 0 <= uid < 2**32}  # neither NaN nor infinite

    return ask


def user_of(uid: int) -> str:
    """The login of a user id, or the number if this machine does not know it."""
    try:
        return visible(pwd.getpwuid(uid).pw_name)  # a directory may have names that are not UTF-8
    except (KeyError, OverflowError):
        return str(uid)


def names_in_slurm(squeue: str) -> NameSource:
    """The users, accounts and names of all running jobs, from one call of squeue."""

    def ask() -> Mapping[str, JobName]:
        return dict(parse_queue(ask_squeue(squeue, "RUNNING,SUSPENDED,COMPLETING", "%A|%u|%a|%j") or ()))

    return ask


def parse_queue(lines: Iterable[str]) -> Iterator[tuple[str, JobName]]:
    """Lines of job id, user, account and name. A name may contain the separator; "(null)" is no account.

    >>> dict(parse_queue(["17|ada|phys|a|b", "18|bob|(null)|c", "damaged"]))
    {'17': JobName(user='ada', name='a|b', account='phys'), '18': JobName(user='bob', name='c', account='')}
    """
    for line in lines:
        job, *rest = line.strip().split("|", 3)
        if job and len(rest) == 3:
            user, account, name = ("".join(char for char in text if char.isprintable())[:200] for text in rest)
            yield job, JobName(user, name, "" if account == "(null)" else account)


class JobNames:
    """The names that are known, and the sources to ask for more."""

    def __init__(self, sources: Sequence[NameSource], clock: Callable[[], float] = time.monotonic) -> None:
        self._sources, self._clock = sources, clock
        self._known: dict[str, JobName] = {}
        self._seen_s: dict[str, float] = {}  # when each of them was there last
        self._next_s = float("-inf")
        self._asking: Future[dict[str, JobName]] | None = None
        self._pool = ThreadPoolExecutor(1, "job names")

    def named(self, span: JobSpan) -> JobSpan:
        """The span with its owner and its name, as far as they are known. What its source knows comes first."""
        known = self._known.get(span.job)
        if known is None or (span.user and span.name and span.account):
            return span
        return replace(
            span,
            user=span.user or known.user,
            name=span.name or known.name,
            owner=span.owner or known.user,
            account=span.account or known.account,
        )

    def look_for(self, jobs: Collection[str]) -> None:
        """Take the answer of the last question, and ask again if a job is unknown and a minute has passed."""
        now_s = self._clock()
        if self._asking is not None and self._asking.done():
            self._keep(self._asking.result(), now_s)
            self._asking = None
        known = [job for job in jobs if job in self._known]
        for job in known:
            if now_s - self._seen_s[job] > AWAY_S:
                del self._known[job], self._seen_s[job]
            else:
                self._seen_s[job] = now_s
        if self._asking is None and now_s >= self._next_s and any(job not in self._known for job in jobs):
            self._next_s = now_s + EVERY_S
            self._asking = self._pool.submit(self._ask)

    def _ask(self) -> dict[str, JobName]:
        answers: dict[str, JobName] = {}
        for source in self._sources:
            try:
                answer = source()
            except Exception:  # whatever a source answers, the loop must not end with it
                continue
            for job, found in answer.items():
                before = answers.get(job, JobName())
                answers[job] = JobName(*(first or second for first, second in zip(before, found, strict=True)))
        return answers

    def _keep(self, answers: Mapping[str, JobName], now_s: float) -> None:
        for job, found in answers.items():
            self._known.pop(job, None)
            self._known[job], self._seen_s[job] = found, now_s
        for job in list(self._known)[: max(len(self._known) - MOST_JOBS, 0)]:
            del self._known[job], self._seen_s[job]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class NamedFeed:
    """A live feed whose jobs have owners and names, and run only where Slurm runs them, if Slurm is here."""

    patient = False

    def __init__(self, feed: Feed, names: JobNames, places: JobPlaces | None = None) -> None:
        self.feed, self._names, self._places = feed, names, places
        self.source, self.pace = feed.source, feed.pace

    def now_s(self) -> float:
        return self.feed.now_s()

    def take(self) -> list[Trace]:
        traces = self.feed.take()
        if self._places:
            self._places.ask()
            traces = self._places.checked(traces)
        self._names.look_for({span.job for trace in traces for span in trace.spans})
        return [replace(trace, spans=tuple(map(self._names.named, trace.spans))) for trace in traces]

    @property
    def suspended(self) -> frozenset[str]:
        """The jobs that Slurm has suspended."""
        return self._places.suspended if self._places else frozenset()

    @property
    def faults(self) -> Faults:
        return self.feed.faults

    @property
    def problems(self) -> tuple[str, ...]:
        return (*self.feed.problems, *(self._places.problems if self._places else ()))

    def close(self) -> None:
        self._names.close()
        if self._places:
            self._places.close()
        self.feed.close()


def named(feed: Feed, *sources: NameSource) -> Feed:
    """The feed with what these sources know of its jobs, and Slurm if its command is installed here."""
    squeue = shutil.which("squeue")
    if squeue:
        return NamedFeed(feed, JobNames([names_in_slurm(squeue), *sources]), JobPlaces(places_in_slurm(squeue)))
    return NamedFeed(feed, JobNames(sources)) if sources else feed
