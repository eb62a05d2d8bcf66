"""Savings: what each action or piece of advice promised, and what sacct measured -> rows and totals.

For a job that was cancelled or requeued, the measured saving is the time from its real end to the end that its limit
would have made, times its nodes. For advice that nobody followed, it is the time that the job really went on: the
promise can be checked without an assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from clustertwin.core.errors import TwinError
from clustertwin.service.act.action_journal import ActionRecord, Journal
from clustertwin.service.act.slurm_commands import RunCommand, run_command, unix_s

SACCT = ("sacct", "--allocations", "--noheader", "--parsable2", "--duplicates", "--format=State,Start,End,NNodes")
#: Slurm compares run times with their limits about every 30 s, so that a job exceeds its limit by up to this much.
CHECK_S = 30.0
CHECK_DELAYS_S = (0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0)
#: Actions after which the job does not run on.
ENDING = ("cancel", "requeue")
#: Actions, the newest, whose savings are shown.
MOST_ACTIONS = 10_000
#: sacct is asked again about an action after this time, which doubles with each answer without an end.
ASK_AGAIN_S, LONGEST_S = 600.0, 6 * 3600.0
#: What sacct does not know after this time is not measured any more.
GIVE_UP_S = 30 * 86_400.0
#: How often overruns are read, and about how many actions sacct is asked in a turn.
OVERRUNS_EVERY_S, MOST_A_TURN = 3600.0, 10


@dataclass(frozen=True, slots=True)
class SavingsRow:
    """All actions of one group: of a week, a cause or an account."""

    group: str
    actions: int
    done: int
    false: int  # the event was dismissed later
    promised_node_hours: float  # of the actions that are measured
    measured_node_hours: float
    measured: int
    within: int  # measured savings that lie in the promised interval


def measure_action(action: ActionRecord, overrun_s: float = 0.0, run: RunCommand = run_command) -> float | None:
    """The measured saving in node-hours; None while the job still runs, or if sacct does not know it."""
    facts = action.plan.facts
    for line in run([*SACCT, f"--jobs={facts.target}"]).splitlines():
        fields = line.split("|")
        if len(fields) != 4 or abs(unix_s(fields[1]) - facts.start_s) > 2 or not _is_count(fields[3]):
            continue
        end_s, nodes = unix_s(fields[2]), int(fields[3])
        if not end_s:
            return None
        if _has_ended_it(action):
            if facts.limit_s is None:
                return None
            return max(facts.start_s + facts.limit_s + overrun_s - end_s, 0.0) * nodes / 3600
        return max(end_s - action.proposed_s, 0.0) * nodes / 3600
    return None


class SavingsMeter:
    """Measures actions when their jobs have ended. An answer of sacct can be long, so it is asked seldom."""

    def __init__(self, journal: Journal, run: RunCommand = run_command) -> None:
        self.problem = ""  # why the last question had no answer
        self._journal, self._run = journal, run
        self._asked_s: dict[str, tuple[float, float]] = {}  # action -> when sacct was asked, and the wait after it
        self._overruns: tuple[float, tuple[float, ...]] | None = None

    def turn(self, now_s: float) -> None:
        """Ask about the actions that are due: those that were not asked about for the longest time come first."""
        unmeasured = [action for action in self._journal.unmeasured(now_s - GIVE_UP_S) if _is_measurable(action)]
        known = {action.id for action in unmeasured}
        self._asked_s = {id: asked for id, asked in self._asked_s.items() if id in known}
        due = [action for action in unmeasured if self._is_due(action.id, now_s)]
        due.sort(key=lambda action: self._asked_s.get(action.id, (0.0, 0.0))[0])
        try:
            for action in due[:MOST_A_TURN]:
                _, wait_s = self._asked_s.get(action.id, (0.0, ASK_AGAIN_S / 2))
                self._asked_s[action.id] = now_s, min(2 * wait_s, LONGEST_S)
                overrun_s = middle_of(self.overruns_s(now_s)) if _has_ended_it(action) else 0.0
                if (hours := measure_action(action, overrun_s, self._run)) is not None:
                    self._journal.measure(action.id, hours)
                self.problem = ""
        except TwinError as error:
            self.problem = str(error)
        if not unmeasured:
            self.problem = ""

    def overruns_s(self, now_s: float) -> tuple[float, ...]:
        """The overruns of the last seven days, at most an hour old."""
        if self._overruns is None or not 0 <= now_s - self._overruns[0] < OVERRUNS_EVERY_S:
            self._overruns = now_s, read_overruns(self._run)
        return self._overruns[1]

    def _is_due(self, action_id: str, now_s: float) -> bool:
        asked_s, wait_s = self._asked_s.get(action_id, (0.0, 0.0))
        return not 0 <= now_s - asked_s < wait_s  # a question from the future is from before the clock was set back


def _has_ended_it(action: ActionRecord) -> bool:
    return action.state == "done" and action.verb in ENDING


def _is_measurable(action: ActionRecord) -> bool:
    """Without a limit, nobody knows when the job would have ended."""
    return action.plan.facts.limit_s is not None or not _has_ended_it(action)


def overruns(text: str) -> tuple[float, ...]:
    """How long each job that timed out ran beyond its limit, sorted, from the output of `read_overruns`."""
    over = []
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) == 3 and fields[0].startswith("TIMEOUT") and _is_count(fields[1]) and _is_count(fields[2]):
            over.append(max(int(fields[1]) - 60.0 * int(fields[2]), 0.0))
    return tuple(sorted(over))


def read_overruns(run: RunCommand = run_command) -> tuple[float, ...]:
    """The overruns of the last seven days. Without a job that timed out: those that Slurm's checks allow."""
    # Without --state: sacct selects by state only together with an end time, and otherwise returns nothing.
    command = ["sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "--starttime=now-7days"]
    return overruns(run([*command, "--format=State,ElapsedRaw,TimelimitRaw"])) or CHECK_DELAYS_S


def future_overruns(seen_s: tuple[float, ...], count: int = 100) -> tuple[float, ...]:
    """Equally likely overruns of the next job, from those that were seen (sorted).

    The next of n + 1 alike values falls into each of the n + 1 gaps of the n others with the same chance, also below
    the smallest and above the largest. Those two gaps end where Slurm's checks allow, and at least a mean gap further.

    >>> future_overruns((10.0,), 4)
    (2.5, 7.5, 17.5, 32.5)
    """
    mean_gap_s = (seen_s[-1] - seen_s[0]) / max(len(seen_s) - 1, 1)
    least_s = max(min(seen_s[0] - mean_gap_s, seen_s[-1] - CHECK_S), 0.0)
    most_s = max(seen_s[-1] + mean_gap_s, seen_s[0] + CHECK_S)
    ends_s = (least_s, *seen_s, most_s)
    drawn = []
    for i in range(count):
        gap, part = divmod((i + 0.5) / count * (len(seen_s) + 1), 1.0)
        low_s, high_s = ends_s[int(gap)], ends_s[int(gap) + 1]
        drawn.append(low_s + part * (high_s - low_s))
    return tuple(drawn)


def middle_of(overruns_s: tuple[float, ...]) -> float:
    return overruns_s[len(overruns_s) // 2]


def rows_by(
    journal: Journal, group: Callable[[ActionRecord], str], dismissed: Callable[[str], bool]
) -> list[SavingsRow]:
    """The savings, grouped. `dismissed` says whether a person has dismissed an event."""
    groups: dict[str, list[ActionRecord]] = {}
    for action in journal.actions(limit=MOST_ACTIONS):
        groups.setdefault(group(action), []).append(action)
    return [_row(name, actions, dismissed) for name, actions in sorted(groups.items())]


def week(action: ActionRecord) -> str:
    year, number, _ = datetime.fromtimestamp(action.proposed_s).isocalendar()
    return f"{year}-W{number:02d}"


def _row(name: str, actions: Iterable[ActionRecord], dismissed: Callable[[str], bool]) -> SavingsRow:
    entries = list(actions)
    measured = [(action, action.measured_node_hours) for action in entries if action.measured_node_hours is not None]
    done = [action for action in entries if action.state == "done"]
    return SavingsRow(
        group=name,
        actions=len(entries),
        done=len(done),
        false=sum(dismissed(action.event) for action in done),
        promised_node_hours=sum(action.promise[0] for action, _ in measured),
        measured_node_hours=sum(hours for _, hours in measured),
        measured=len(measured),
        within=sum(action.promise[1] <= hours <= action.promise[2] for action, hours in measured),
    )


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) <= 10
