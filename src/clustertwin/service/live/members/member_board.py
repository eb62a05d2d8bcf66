"""The joined clusters as pages, API and metrics show them: the last summary of each, its age, and why it is old.

A cluster whose summary is old is not watched: its nodes are left out, and its threads are counted as not watched. They
are neither normal nor anomalous.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isnan

from clustertwin.service.live.members.member_settings import MemberSettings
from clustertwin.service.live.members.member_summary import MemberEvent, MemberNode, MemberSummary

#: A cluster without an answer for this long is not watched.
SILENT_S = 10.0


@dataclass(frozen=True, slots=True)
class MemberState:
    settings: MemberSettings
    summary: MemberSummary | None = None  # the last answer
    heard_s: float = float("nan")  # the clock of this service at the last answer
    failure: str = ""  # why there is no newer answer

    @property
    def name(self) -> str:
        return self.settings.name

    def age_s(self, now_s: float) -> float:
        """Since the last answer; NaN if there was none."""
        return now_s - self.heard_s

    def is_watched(self, now_s: float) -> bool:
        return self.summary is not None and self.age_s(now_s) <= SILENT_S and self.summary.phase != "stale"

    def problem(self, now_s: float) -> str:
        """Why the cluster is not watched, or what it says itself; empty if all is well."""
        if self.summary is None:
            return f"has not answered yet: {self.failure}" if self.failure else "has not answered yet"
        if self.age_s(now_s) > SILENT_S:
            return f"no answer for {self.age_s(now_s):.0f} s: {self.failure or 'this service does not ask'}"
        if self.summary.problems:
            return self.summary.problems[0]
        return "its newest data is old" if self.summary.phase == "stale" else ""


@dataclass(frozen=True, slots=True)
class MemberTotals:
    clusters: int
    watched: int  # clusters
    nodes: int  # of watched clusters, like the next ones
    threads: int
    alarming: int
    unknown: int
    jobs: int
    open_events: int
    oldest_s: float  # the age of the newest score of the member that is furthest behind; NaN if nothing is scored
    unwatched_threads: int  # of clusters that are not watched, as far as they were known


@dataclass(frozen=True, slots=True)
class MemberBoard:
    members: tuple[MemberState, ...]

    def shown_to(self, who: str, role: str) -> MemberBoard:
        return replace(self, members=tuple(m for m in self.members if m.settings.is_shown_to(who, role)))

    def watched(self, now_s: float) -> list[tuple[MemberState, MemberSummary]]:
        return [(m, m.summary) for m in self.members if m.summary is not None and m.is_watched(now_s)]

    def totals(self, now_s: float) -> MemberTotals:
        watched = self.watched(now_s)
        summaries = [summary for _, summary in watched]
        silent = [m.summary for m in self.members if m.summary is not None and not m.is_watched(now_s)]
        # Both times of a summary are of its own clock, so that clocks that differ do no harm.
        ages_s = [m.age_s(now_s) + s.now_s - s.scored_s for m, s in watched if s.scored_s is not None]
        return MemberTotals(
            clusters=len(self.members),
            watched=len(watched),
            nodes=sum(len(summary.nodes) for summary in summaries),
            threads=sum(summary.threads for summary in summaries),
            alarming=sum(summary.alarming for summary in summaries),
            unknown=sum(summary.unknown for summary in summaries),
            jobs=sum(summary.jobs for summary in summaries),
            open_events=sum(summary.open_events for summary in summaries),
            oldest_s=max(ages_s, default=float("nan")),
            unwatched_threads=sum(summary.threads for summary in silent),
        )

    def nodes(self, now_s: float, words: str = "") -> list[tuple[MemberState, MemberNode]]:
        """The nodes of all watched clusters, by score in multiples of their own cluster's threshold, highest first."""
        wanted = words.lower().split()
        found = [
            (-_relative(node.score, summary.threshold), member.name, node.node, member, node)
            for member, summary in self.watched(now_s)
            for node in summary.nodes
            if all(word in f"{member.name} {node.node}".lower() for word in wanted)
        ]
        found.sort(key=lambda row: row[:3])
        return [(member, node) for *_, member, node in found]

    def events(self, now_s: float) -> list[tuple[MemberState, MemberEvent]]:
        """The open events of all watched clusters, newest first."""
        rows = [(member, event) for member, summary in self.watched(now_s) for event in summary.events]
        return sorted(rows, key=lambda row: -row[1].onset_s)

    def silent(self, now_s: float) -> Iterator[MemberState]:
        return (member for member in self.members if not member.is_watched(now_s))


def _relative(score: float, threshold: float) -> float:
    """An unknown score comes after every known one. Before a detector is loaded there is no threshold."""
    ratio = score / threshold if threshold > 0 else score
    return -1.0 if isnan(ratio) else ratio  # also if both are infinite: nothing can be sorted beside NaN
