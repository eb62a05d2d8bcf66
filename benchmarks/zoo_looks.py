"""Replay the looks of a recorded run: suspicions and looks -> what the service would have confirmed, and false claims.

`SuspectLooks` decides as in the service which look counts: one at a suspect, then a second one half a minute later. The
other looks of a run are only counted, by what they claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from clustertwin.service.act.suspect_looks import SuspectLooks
from clustertwin.telemetry.campaign.zoo.recorded_look import RecordedLook
from clustertwin.telemetry.campaign.zoo.zoo_data import ZooRun
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.diagnosis.odd_rank import find


class ReplayedLooks:
    """The looks of a run, taken when the service would take one."""

    def __init__(self, looks: Sequence[RecordedLook]) -> None:
        self._waiting = sorted(looks, key=lambda look: look.at_s)
        self._suspects = SuspectLooks()
        self._suspected: list[tuple[float, tuple[Finding, ...], tuple[Event, ...]]] = []

    def hanging_s(self, now_s: float) -> Mapping[str, float]:
        """Job -> when a second look showed that it hangs; of the looks that had ended by now."""
        while self._waiting and self._waiting[0].at_s + self._waiting[0].took_s <= now_s:
            self._take(self._waiting.pop(0))
        return self._suspects.hanging_s

    def remember(self, suspects: Sequence[Finding], open_events: Sequence[Event], now_s: float) -> None:
        """What a look that begins after this moment knows."""
        self._suspected = [*self._suspected[-6:], (now_s, tuple(suspects), tuple(open_events))]

    def _take(self, look: RecordedLook) -> None:
        known = [each for each in self._suspected if each[0] <= look.at_s]
        suspects, open_events = known[-1][1:] if known else ((), ())
        suspect = self._suspects.due(suspects, open_events, look.at_s)
        if suspect is None:
            return
        self._suspects.begin(suspect.job, look.at_s)
        if look.evidence is not None:
            self._suspects.judge(suspect.job, look.evidence, find(look.evidence), look.at_s)


def moved(looks: Sequence[RecordedLook], begin_s: float, end_s: float, left_out_s: float) -> tuple[RecordedLook, ...]:
    """The looks of a run of which the seconds from `begin_s` to `end_s` are left out."""
    before = [look for look in looks if look.at_s + look.took_s <= begin_s]
    after = [replace(look, at_s=look.at_s - left_out_s) for look in looks if look.at_s >= end_s]
    return (*before, *after)


@dataclass(frozen=True, slots=True)
class Claims:
    """What all looks of some phases claim, whether or not the job was suspected."""

    looks: int
    failed: int  # no process, or no evidence in time
    claims: int  # of a hang
    kinds: tuple[str, ...]


def claims_of(runs: Sequence[ZooRun]) -> dict[str, Claims]:
    """By phase: healthy, spinning, other faults. Only looks that are wholly inside one count."""
    looks: dict[str, list[RecordedLook]] = {"healthy": [], "spinning": [], "other faults": []}
    for run in runs:
        onset_s = run.phases[0].onset_s if run.phases else float("inf")
        looks["healthy"] += [look for look in run.looks if look.at_s + look.took_s <= onset_s]
        for phase in run.phases:
            name = "spinning" if phase.fault == "spinning" else "other faults"
            looks[name] += [k for k in run.looks if phase.onset_s <= k.at_s and k.at_s + k.took_s <= phase.end_s]
    return {name: _claims(each) for name, each in looks.items()}


def _claims(looks: Sequence[RecordedLook]) -> Claims:
    found = [find(look.evidence) for look in looks if look.evidence is not None]
    hangs = [finding.kind for finding in found if finding.hang]
    return Claims(len(looks), len(looks) - len(found), len(hangs), tuple(sorted(set(hangs))))


@dataclass(frozen=True, slots=True)
class LookCost:
    """What a look cost."""

    median_cpu_s: float
    most_cpu_s: float
    most_stopped_ms: float  # of one process


def cost_of(runs: Sequence[ZooRun]) -> LookCost | None:
    """None without looks."""
    taken = [look.evidence for run in runs for look in run.looks if look.evidence is not None]
    if not taken:
        return None
    cpu_s = [evidence.cpu_s for evidence in taken]
    stopped_ms = (process.stopped_ms for evidence in taken for process in evidence.processes)
    return LookCost(round(median(cpu_s), 3), round(max(cpu_s), 3), max(stopped_ms, default=0.0))
