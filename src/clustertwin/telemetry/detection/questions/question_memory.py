"""What the questions remember: the past of running jobs, the usual of programs and users, and running findings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.questions.finding import CLEAR
from clustertwin.telemetry.detection.questions.job_parts import JobParts
from clustertwin.telemetry.detection.questions.own_past import OwnPast, Place
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.detection.questions.usual import NO_RUNS, ProgramUsual, Usual

#: A finding that is not seen for this long begins again.
_GAP_S = 60
#: … and so does one that held for less than this share of the time.
_HELD_SHARE = 0.6
#: A finding stands for at most this many seconds before it.
LONGEST_STEP_S = 30
#: Programs and users whose tables are kept; the ones that were learnt from longest ago are dropped first.
MOST_PROGRAMS = 4096
#: What Slurm calls a job that nobody named.
NO_NAMES = frozenset({"wrap", "sbatch", "bash", "sh"})
#: Sessions: what salloc calls them, and what portals do that start notebooks and desktops.
_SESSION = re.compile(r"interactive|.*(jupyter|rstudio|sys/dashboard).*", re.IGNORECASE)


class JobLabel(NamedTuple):
    """Who runs a job, as far as a source knows; empty: unknown."""

    program: str = ""
    user: str = ""
    suspended: bool = False  # the scheduler stopped it, and will resume it

    @property
    def table(self) -> str:
        """The name of the program's table. Other users call other programs `run.sh`, so it holds the user too.

        >>> JobLabel("run.sh", "ada").table, JobLabel("solver").table, JobLabel("wrap", "ada").table
        ('ada/run.sh', 'solver', '')
        """
        if self.program in ("", *NO_NAMES) or self.is_session:
            return ""
        return f"{self.user}/{self.program}" if self.user else self.program

    @property
    def is_session(self) -> bool:
        """Whether a person works in the job, who sees when it hangs.

        >>> [JobLabel(name).is_session for name in ("interactive", "spawner-jupyterhub", "solver")]
        [True, True, False]
        """
        return _SESSION.fullmatch(self.program) is not None


@dataclass(frozen=True, slots=True)
class RunningJobs:
    """What the memory knows about jobs that run, to go on with after a restart."""

    places: tuple[Place, ...]
    labels: tuple[JobLabel, ...]  # of each place
    past: Mapping[str, NDArray[Any]]  # of `OwnPast.stored`, and whether a part uses one of its threads only; -1: open


class QuestionMemory:
    """Bounded state. The service stores the tables and what is known about running jobs."""

    def __init__(
        self,
        settings: QuestionSettings = QuestionSettings(),
        programs: Mapping[str, ProgramUsual] | None = None,
        users: Mapping[str, ProgramUsual] | None = None,
    ) -> None:
        self.settings = settings
        self.past = OwnPast(settings)
        self.programs, self.users = dict(programs or {}), dict(users or {})
        self.learnt_runs = 0  # since the start; a run of a part counts for its program and its user
        self.on_one_thread: dict[Place, bool] = {}  # whether a part used one of its threads only, from its start
        # Computed once for each table; None for a program whose runs are not alike.
        self._summaries: dict[int, tuple[ProgramUsual, NDArray[np.float32] | None]] = {}
        self._labels: dict[str, JobLabel] = {}
        self._runs: dict[
            tuple[Place, str], tuple[int, int, int, int]
        ] = {}  # (part, cause) -> first and last second, seconds held, seconds clear

    def running(self, most: int) -> RunningJobs:
        """At most this many parts of jobs, those with the longest past."""
        longest = self.past.longest(most)
        on_one = [self.on_one_thread.get(place, -1) for place in longest]
        past = self.past.stored(longest) | {"on_one_thread": np.array(on_one, np.int8)}
        return RunningJobs(longest, tuple(self.label(job) for job, _ in longest), past)

    def go_on(self, running: RunningJobs, now_s: int) -> None:
        """Continue with the jobs of an earlier memory. Those that have ended since are learnt from."""
        self.past.restore(running.places, running.past, now_s)
        on_one = running.past["on_one_thread"].tolist()
        self.on_one_thread |= {place: on > 0 for place, on in zip(running.places, on_one, strict=True) if on >= 0}
        self._labels |= {job: label for (job, _), label in zip(running.places, running.labels, strict=True)}

    def note(self, labels: Mapping[str, JobLabel]) -> None:
        """The labels of the jobs that run now. Those of jobs that have a past stay known until it is forgotten."""
        running = {job for job, _ in self.past.places}
        self._labels = {job: label for job, label in self._labels.items() if job in running} | dict(labels)

    def hold(self, place: Place, cause: str, now_s: int, ratio: float = 1.0) -> tuple[int, int]:
        """The first second of a finding that holds now, and how long it was clear since then.

        It begins again where it did not hold most of the time.
        """
        first_s, last_s, held_s, clear_s = self._runs.get((place, cause), (now_s, now_s, 0, 0))
        step_s = min(now_s - last_s, LONGEST_STEP_S)
        held_s, clear_s = held_s + step_s, clear_s + step_s * (ratio >= CLEAR)
        if not 0 <= now_s - last_s <= _GAP_S or held_s < _HELD_SHARE * (now_s - first_s):
            first_s, held_s, clear_s = now_s, 0, 0
        self._runs[place, cause] = first_s, now_s, held_s, clear_s
        return first_s, clear_s

    def usual(self, parts: JobParts, own: Usual) -> tuple[Usual, NDArray[np.str_]]:
        """What each part is compared with, and its name: its program, else its own past, else its user.

        A user's runs are of many programs, so they only stand in while a job has no past of its own.
        """
        names = np.full(len(parts), "own past", dtype="<U8")
        usual = Usual(*(table.copy() for table in own))
        for i, job in enumerate(parts.jobs):
            label = self._labels.get(job)
            if label is None:
                continue
            table = self._learnt(self.programs, label.table)
            name = "program"
            if table is None and np.isnan(own.centre[i, 0]):
                table, name = self._learnt(self.users, label.user), "user"
            if table is not None:
                names[i] = name
                for target, row in zip(usual, table, strict=True):
                    target[i] = row
        return usual, names

    def is_known(self, job: str) -> bool:
        """Whether the job's program ran often enough to be known."""
        label = self._labels.get(job)
        return label is not None and self._learnt(self.programs, label.table) is not None

    def label(self, job: str) -> JobLabel:
        return self._labels.get(job, JobLabel())

    def end_jobs(self, now_s: int) -> None:
        """Learn from the jobs that have ended, and forget them."""
        ended = self.past.ended(now_s)
        if not ended:
            return
        for (job, _), row in ended:
            run, label = self.past.run(row), self.label(job)
            if run is None or not job:
                continue
            for tables, name in ((self.programs, label.table), (self.users, label.user)):
                if name:
                    self.learnt_runs += 1
                    tables[name] = tables.pop(name, NO_RUNS).add(run)
                    if len(tables) > MOST_PROGRAMS:
                        del tables[next(iter(tables))]
        self._summaries.clear()
        places = {place for place, _ in ended}
        self.past.forget(places)
        self.on_one_thread = {place: on for place, on in self.on_one_thread.items() if place not in places}
        self._runs = {key: run for key, run in self._runs.items() if key[0] not in places}

    def _learnt(self, tables: Mapping[str, ProgramUsual], name: str) -> NDArray[np.float32] | None:
        """(4, signal) of a program or user with enough runs, those of a program alike."""
        usual = tables.get(name) if name else None
        if usual is None or usual.total < self.settings.learn_runs:
            return None
        summary = self._summaries.get(id(usual))
        if summary is None or summary[0] is not usual:
            # A user runs many programs. A name that many scripts have is not the name of a program.
            mixed = tables is self.programs and usual.is_mixed
            summary = self._summaries[id(usual)] = usual, None if mixed else usual.summary()
        return summary[1]
