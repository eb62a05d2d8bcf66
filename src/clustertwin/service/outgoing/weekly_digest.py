"""The weekly digest: stored events -> their number, their verdicts and the rate of false alarms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from clustertwin.core import formatting
from clustertwin.service.store.event_store import VERDICTS, Case, Filter, Store

MOST = 5  # rows of each list
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Digest:
    """`false_alarms` is the share of the events with a verdict that were not confirmed, with its 95 % interval."""

    start_s: float
    end_s: float
    events: int
    before: int  # events in the period of the same length before
    still_open: int
    verdicts: dict[str, int]
    false_alarms: float | None  # None: no event has a verdict
    false_alarms_low: float | None
    false_alarms_high: float | None
    views: dict[str, int]
    channels: dict[str, int]
    nodes: dict[str, int]  # those with the most events
    jobs: dict[str, int]
    unvetted: tuple[str, ...]  # events without a verdict, highest score first
    titles: tuple[str, ...] = ()  # of those events


def digest(store: Store, start_s: float, end_s: float) -> Digest:
    """Summarise the events that began in [start_s, end_s)."""
    cases = _began(store, start_s, end_s)
    before = _began(store, start_s - (end_s - start_s), start_s)
    verdicts = {verdict: sum(case.verdict == verdict for case in cases) for verdict in VERDICTS}
    vetted = sum(verdicts.values())
    false_alarms = vetted - verdicts["confirmed"]  # dismissed or new normal
    low, high = wilson(false_alarms, vetted) if vetted else (None, None)
    waiting = sorted((case for case in cases if not case.verdict), key=lambda case: -case.event.score)
    return Digest(
        start_s=start_s,
        end_s=end_s,
        events=len(cases),
        before=len(before),
        still_open=sum(case.event.open for case in cases),
        verdicts={**verdicts, "none": len(cases) - vetted},
        false_alarms=false_alarms / vetted if vetted else None,
        false_alarms_low=low,
        false_alarms_high=high,
        views=_most([case.event.view for case in cases]),
        channels=_most([case.why.channel for case in cases if case.why]),
        nodes=_most([node for case in cases for node in case.event.nodes]),
        jobs=_most([job for case in cases for job in case.event.jobs]),
        unvetted=tuple(case.id for case in waiting[:MOST]),
        titles=tuple(case.event.title for case in waiting[:MOST]),
    )


def wilson(count: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a ratio. It is meaningful for small numbers too: 0 of 3 is not 0 with certainty."""
    middle = (count + z * z / 2) / (total + z * z)
    half = z * sqrt(count * (total - count) / total + z * z / 4) / (total + z * z)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def text(report: Digest, link: str = "") -> tuple[str, str]:
    """Title and body of the message."""
    days = (report.end_s - report.start_s) / 86_400
    title = f"clustertwin: {formatting.counted(report.events, 'event')} in {days:.5g} days"
    lines = [
        f"{formatting.clock(report.start_s)} to {formatting.clock(report.end_s)}",
        "",
        f"events         {report.events} ({report.before} in the period before), {report.still_open} still open",
        "verdicts       " + ", ".join(f"{count} {verdict}" for verdict, count in report.verdicts.items()),
        f"false alarms   {_rate(report)}",
    ]
    for name, counts in (
        ("views", report.views),
        ("channels", report.channels),
        ("nodes", report.nodes),
        ("jobs", report.jobs),
    ):
        if counts:
            lines.append(f"{name:<15}" + ", ".join(f"{key} {count}" for key, count in counts.items()))
    if report.unvetted:
        lines += ["", "Events without a verdict, highest score first:"]
        for id, what in zip(report.unvetted, report.titles, strict=True):
            lines += [f"  {what}", f"    {link.rstrip('/')}/events/{id}" if link else f"    twin events show {id}"]
    return title, "\n".join(map(formatting.visible, lines))  # nodes of a replayed recording have any name


def _rate(report: Digest) -> str:
    if report.false_alarms is None:
        return "unknown: no event has a verdict"
    vetted = sum(count for verdict, count in report.verdicts.items() if verdict != "none")
    low, high = formatting.percent(report.false_alarms_low), formatting.percent(report.false_alarms_high)
    share = formatting.percent(report.false_alarms)
    return f"{share} of {formatting.counted(vetted, 'event')} with a verdict (95 % interval: {low} to {high})"


def _began(store: Store, start_s: float, end_s: float) -> list[Case]:
    """Events that began in this time, newest first."""
    cases: list[Case] = []
    while page := store.events(Filter(start_s=start_s, end_s=end_s), PAGE, len(cases)):
        cases += page
    return [case for case in cases if start_s <= case.event.onset_s < end_s]


def _most(names: Sequence[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda entry: (-entry[1], entry[0]))[:MOST])
