"""The title of an event: what it is about, its cause and its figures -> one line in an operator's words, such as

Job 4711 looks hung: 32 threads idle for 12 min while allocated
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal

from clustertwin.core.channels import label_of
from clustertwin.core.formatting import counted, duration
from clustertwin.telemetry.detection.events.causes import HUNG_RANK, IDLE, MISBOUND, STRAGGLER, UNUSUAL, cause_of
from clustertwin.telemetry.detection.questions.finding import Finding

Baseline = Literal["limit", "own past", "ranks", "program", "user", "site", ""]

_WORDS = {"io": "I/O", "cpu": "CPU"}
#: Signals that are not channels. Their values are ratios, or tasks for each thread.
_SIGNALS = {
    "idle": "idle",
    "busiest": "the busiest thread",
    "waiting": "tasks that wait for a CPU",
    "lost": "tasks that could run and do not",
    "queued": "time in which a task of the job waits for a CPU",
    "others": "CPU time of other work",
    "throttled": "throttled time",
    "memory_growth": "growth of memory",
    "traffic": "I/O traffic",
    "progress": "page faults and traffic",
}
_NO_FIGURE = ("oom_kills",)  # one is enough
_PER_THREAD = ("waiting", "lost")  # numbers of tasks, which may exceed one
#: How to say it where a finding has this cause and no single thread shows it.
_WITHOUT_SHAPE = {
    IDLE: "works less than before",
    HUNG_RANK: "has a thread that works less than the others",
    MISBOUND: "looks misbound",
    STRAGGLER: "has a thread unlike its others",
}
_NEAR = 0.05  # ratios closer than this are shown with a decimal


@dataclass(frozen=True, slots=True)
class Figures:
    """What a title says in numbers. `usual` is compared with `value`, if it is known and differs."""

    threads: int  # that show the cause
    of_threads: int  # of the job; as many as `threads` without a job
    lasted_s: int
    channel: str = ""
    value: float = float("nan")
    usual: float = float("nan")
    compared_with: Baseline = ""
    known: str = ""  # a known fault that the threads are closest to
    by_shape: bool = True  # whether the shape of the job shows the cause: which threads are idle, busy or waiting
    place: str = ""  # where the only thread is that shows the cause, if the job has others


def write_title(subject: str, cause: str, figures: Figures | None = None) -> str:
    """The title. Without figures it only says what the cause is."""
    if figures is None or figures.channel in _NO_FIGURE:
        return f"{subject} {cause_of(cause).phrase}"
    if not figures.by_shape and cause in _WITHOUT_SHAPE:
        return _figure_title(subject, _WITHOUT_SHAPE[cause], figures)
    k, n, lasted = figures.threads, figures.of_threads, round_duration(figures.lasted_s)
    if cause == IDLE:
        return f"{subject} looks hung: {counted(k, 'thread')} idle for {lasted} while allocated"
    if cause == HUNG_RANK:
        rest = f"the other {n - k} are busy" if n - k > 1 else "the other one is busy"
        return f"{subject}: {_threads(figures)} {'looks' if k == 1 else 'look'} hung, idle for {lasted} while {rest}"
    if cause == MISBOUND:
        work = "does" if n - k == 1 else "do"
        return f"{subject} looks misbound: {_share(n - k, n)} {work} all the work, {k} idle for {lasted}"
    phrase = cause_of(cause).phrase
    if figures.known and cause == UNUSUAL:
        phrase += f", similar to the known fault “{fault_label(figures.known)}”"
    if cause == STRAGGLER:
        value, comparison = compare(figures)
        waits = f"{_threads(figures)} {'works' if k == 1 else 'work'} while the others wait"
        return f"{subject} {phrase}: {waits}, {value} for {lasted}{', ' if comparison else ''}{comparison}"
    return _figure_title(subject, phrase, figures)


def _figure_title(subject: str, phrase: str, figures: Figures) -> str:
    """What the job does, and the channel that shows it."""
    value, comparison = compare(figures)
    threads = _threads(figures)
    if not value:
        return f"{subject} {phrase}: the pattern over time of {threads}, not an average"
    lasted = round_duration(figures.lasted_s)
    return f"{subject} {phrase}: {value} on {threads} for {lasted}{', ' if comparison else ''}{comparison}"


def subject_of(jobs: Sequence[str], node: str, threads: int) -> str:
    """What an event is about: its jobs, or the threads of a node that no job holds.

    >>> subject_of(["17"], "n1", 4), subject_of(["17", "18"], "n1", 4), subject_of([], "n1", 1)
    ('Job 17', 'Jobs 17 and 18 on n1', 'n1, 1 thread without a job,')
    """
    if not jobs:
        return f"{node}, {counted(threads, 'thread')} without a job,"
    if len(jobs) == 1:
        return f"Job {jobs[0]}"
    names = [*jobs[:3], f"{len(jobs) - 3} more"] if len(jobs) > 4 else list(jobs)
    return f"Jobs {', '.join(names[:-1])} and {names[-1]} on {node}"


def compare(figures: Figures) -> tuple[str, str]:
    """The channel with its value, and the direction in which it differs; both empty if no channel is known to differ.

    >>> compare(Figures(1, 8, 60, "system", 0.08, 0.0, "own past"))
    ('system 8 %', 'up from 0 %')
    >>> compare(Figures(2, 2, 60, "lost", 1.96, 1.07, "own past"))
    ('tasks that could run and do not 1.96 per thread', 'up from 1.07')
    """
    if not figures.channel or isnan(figures.value):
        return "", ""
    value, usual = shown(figures.value, figures.usual)
    if figures.channel in _PER_THREAD:
        value, usual = f"{figures.value:.2f} per thread", f"{figures.usual:.2f}"
    seen = f"{signal_label(figures.channel)} {value}"
    if isnan(figures.usual) or not figures.compared_with:
        return seen, ""
    if value.removesuffix(" per thread") == usual:
        return "", ""
    more = "more" if figures.value > figures.usual else "less"
    return seen, {
        "own past": f"{'up' if more == 'more' else 'down'} from {usual}",
        "ranks": f"{more} than the others ({usual})",
        "site": f"{more} than the {usual} expected",
        "program": f"{more} than in other runs of its program ({usual})",
        "user": f"{more} than in its owner's other jobs ({usual})",
        "limit": f"more than the limit of {usual}" if more == "more" else f"the limit is {usual}",
    }[figures.compared_with]


def information_text(finding: Finding) -> str:
    """A finding without an event in words: `may be busy without progress: page faults and traffic 0 %, down from 30 %`.

    The score of new work has no unit that people know.
    """
    phrase = cause_of(finding.cause).phrase
    if finding.question == "new":
        return phrase
    threads = len(finding.cpus)
    figures = Figures(threads, threads, 0, finding.channel, finding.value, finding.usual, finding.compared_with)
    return ": ".join(filter(None, (phrase, ", ".join(filter(None, compare(figures))))))


def shown(value: float, usual: float) -> tuple[str, str]:
    """Two ratios as percentages: with one decimal if they are close to each other."""
    digits = 1 if abs(value - usual) < _NEAR else 0
    return f"{100 * value:.{digits}f} %", f"{100 * usual:.{digits}f} %"


def signal_label(name: str) -> str:
    """A channel, or a signal that a finding derives from channels, as people say it."""
    return _SIGNALS.get(name) or label_of(name)


def fault_label(name: str) -> str:
    """A fault in words.

    >>> fault_label("bad-io"), fault_label("hung-rank")
    ('bad I/O', 'hung rank')
    """
    return " ".join(_WORDS.get(word, word) for word in name.split("-"))


def round_duration(seconds: int) -> str:
    """A duration that changes once a minute.

    >>> round_duration(95), round_duration(725), round_duration(7530)
    ('95 s', '12 min', '2 h 5 min')
    """
    if seconds < 120:
        return f"{max(seconds, 0)} s"
    return duration(seconds - seconds % 60) if seconds >= 7200 else f"{seconds // 60} min"


def _threads(figures: Figures) -> str:
    """How many threads show the cause, and which one if it is one of several."""
    share = _share(figures.threads, figures.of_threads)
    return f"{share} ({figures.place})" if figures.place and figures.threads == 1 < figures.of_threads else share


def _share(k: int, n: int) -> str:
    return counted(k, "thread") if k >= n else f"{k} of {n} threads"
