"""What a night works with: its settings, its context, its directory, and the result it ends with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from clustertwin.core import files
from clustertwin.telemetry.detection.detector import DetectorSettings
from clustertwin.telemetry.learning.champions.registry import Registry
from clustertwin.telemetry.learning.champions.shadow import ShadowRule
from clustertwin.telemetry.learning.duel.duel_rule import DuelRule
from clustertwin.telemetry.learning.duel.golden_set import GoldenSet, standard_golden_set
from clustertwin.telemetry.learning.night.calendar_day import Day, DayLimits
from clustertwin.telemetry.learning.night.challengers import ChallengerTraining, Start
from clustertwin.telemetry.learning.night.day_sampling import ROLES, DaySplit, SamplingSettings
from clustertwin.telemetry.learning.night.step_journal import CrashPoint, StepJournal, no_crash, read_document
from clustertwin.telemetry.learning.night.verdicts import VerdictSource
from clustertwin.telemetry.models import MODELS
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.moment_files import read_moments
from clustertwin.telemetry.recording.trace_archive import TraceArchive

NightOutcome = Literal["promoted", "kept", "skipped", "halted"]
StepProgress = Callable[[str, int, int], None]  # step, done, total


@dataclass(frozen=True, slots=True)
class NightSettings:
    architectures: tuple[str, ...] = tuple(MODELS)
    starts: tuple[Start, ...] = ("scratch", "warm", "recalibrated")
    budget_s: float = 480.0  # wall time of all training
    workers: int = 2
    sampling: SamplingSettings = SamplingSettings()
    replay_moments: int = 4  # of each role and day in the rehearsal memory
    replay_days: int = 10  # in the rehearsal memory
    halt: bool = True  # does a confirmed anomaly halt learning?
    training: ChallengerTraining = ChallengerTraining()
    alarms: DetectorSettings = DetectorSettings()
    rule: DuelRule = DuelRule()
    limits: DayLimits = DayLimits()
    shadow: ShadowRule = ShadowRule()
    keep_nights: int = 14  # directories of older nights are removed


@dataclass(frozen=True, slots=True)
class NightContext:
    """Where a night runs: the home it changes, and the ports it reads."""

    home: Path
    archive: TraceArchive
    verdicts: VerdictSource
    settings: NightSettings = NightSettings()
    open_registry: Callable[[], Registry] | None = None  # called last: a registry that is down delays nothing
    golden: Callable[[], GoldenSet] = standard_golden_set  # for a day that no fault can be imposed on
    clock: Callable[[], float] = time.time
    progress: StepProgress = lambda step, done, total: None
    crash_point: CrashPoint = no_crash
    command: str = ""  # recorded in the lineage


@dataclass(frozen=True, slots=True)
class NightResult:
    """How a night ended; night.json."""

    day: str
    outcome: NightOutcome
    because: str
    champion: str  # in service after the night
    before: str = ""  # in service before it; empty if nothing was trained
    contestants: list[dict[str, Any]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # challenger -> why the gate rejected it
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of each step
    registry: str = ""  # what was sent to the registry
    shadow_ended: str = ""  # why the shadow ended with this night; empty: it did not

    @property
    def final(self) -> bool:
        """A skipped or halted night can be run again: its data or verdicts may change."""
        return self.outcome in ("promoted", "kept")


@dataclass(frozen=True, slots=True)
class NightRun:
    """One run of a night: its day, its fencing token and its directory."""

    context: NightContext
    day: Day
    fence: int
    journal: StepJournal

    @property
    def home(self) -> Path:
        return self.context.home

    @property
    def settings(self) -> NightSettings:
        return self.context.settings

    @property
    def directory(self) -> Path:
        return self.journal.directory

    @property
    def memory(self) -> Path:
        """The rehearsal memory."""
        return self.home / "rehearsal"

    def moments_file(self, role: str) -> Path:
        return self.directory / "moments" / f"{role}.safetensors"

    def moments(self, role: str) -> tuple[Moment, ...]:
        return read_moments(self.moments_file(role))

    def split(self) -> DaySplit:
        return DaySplit(*(self.moments(role) for role in ROLES))

    def challenger_directory(self, name: str) -> Path:
        return self.directory / "challengers" / name.replace("/", "-")

    def read_result(self) -> NightResult | None:
        path = self.directory / "night.json"
        return NightResult(**read_document(path)) if path.exists() else None

    def write_result(self, result: NightResult) -> None:
        files.write(self.directory / "night.json", json.dumps(asdict(result), indent=1))


def nights_directory(home: Path) -> Path:
    return home / "nights"
