"""Users who wait for their results: a job log and another machine -> the log that they would submit there.

A log repeats yesterday's submissions. On a larger machine jobs end earlier, and a user who looks at each result before
the next job submits earlier too (site-level simulation, Shmueli and Feitelson 2009; Zakay and Feitelson 2014). Each job
of a user belongs to one of three kinds:

- It follows the end of an earlier job by a think time of at most `THINK_S`: it keeps the think time.
- It follows the submission before it within `PAUSE_S`, without waiting for a result: it keeps the interval.
- It begins a session: it keeps its date.

What ended when is taken from the recorded waits, or without them from a simulation of the log on its own machine.
Submissions and the simulated schedule depend on each other, so both are computed in turns until they agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled
from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_unit, machine_size
from clustertwin.workload.simulator import simulate
from clustertwin.workload.simulator.schedule import Schedule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

THINK_S = 20 * 60.0
PAUSE_S = 3600.0
LOOK_BACK = 100  # jobs of the same user, to find the one whose end was waited for
MOST_ROUNDS = 60
AGREED_S = 1.0  # mean change of the submissions in a round
PLACEBO_S = 2 * 3600.0  # ends are moved by so much, to count what follows an end by chance
KNOWN_WAITS = 0.9  # share of jobs with a recorded wait, to use those


@dataclass(frozen=True, slots=True)
class ReactingLog:
    """`jobs` with the submissions on the other machine, in their order, and how they were scheduled."""

    jobs: Jobs
    schedule: Schedule
    following: float  # share of the jobs that follow the end of a job
    by_chance: float  # the same share, if the ends are moved by two hours
    rounds: int
    change_s: float  # mean change of the submissions in the last round

    def document(self) -> dict[str, Any]:
        return {"procs": self.schedule.procs, "following": self.following, "following_by_chance": self.by_chance,
                "wait_s": float(self.schedule.wait_s.mean()), "rounds": self.rounds, "change_s": self.change_s,
                "agreed": self.change_s <= AGREED_S,
                "refused": len(self.jobs) - len(self.schedule)}  # fmt: skip

    def summary(self) -> str:
        text = (
            f"{self.following:.0%} of the jobs follow the end of a job ({self.by_chance:.0%} by chance); "
            f"mean simulated wait {self.schedule.wait_s.mean():.0f} s on {self.schedule.procs}"
        )
        if refused := len(self.jobs) - len(self.schedule):
            text += f". {refused} jobs cannot run on this machine, and nobody waits for them"
        if self.change_s <= AGREED_S:
            return text
        return (
            f"{text}. Submissions still moved by {self.change_s:.0f} s on average in the last of {self.rounds} rounds."
        )


def react(jobs: Jobs, procs: int, own_procs: int | None = None, rounds: int = MOST_ROUNDS) -> ReactingLog:
    """The log on a machine of `procs` nodes (or cpus), where each user reacts.

    `own_procs`: the size of the log's own machine; by default as the log states it. An overloaded machine may not reach
    an agreement: `change_s` tells.
    """
    if procs < 1:
        raise SettingsError(f"a machine of {procs} cannot run jobs")
    if not np.any(jobs.user >= 0):
        raise SettingsError("the log has no users, so nobody can react; simulate it without feedback")
    log = replace(jobs, id=np.arange(len(jobs)))
    order = np.lexsort((log.submit_s, log.user))
    ends_s = _ends(log, own_procs or machine_size(log, counted_unit(log)))
    after, think_s = followed(order, log.user, log.submit_s, ends_s)
    following = float(np.mean(after >= 0))
    by_chance = float(np.mean(followed(order, log.user, log.submit_s, ends_s + PLACEBO_S)[0] >= 0))
    submit_s, change_s, done = log.submit_s, np.inf, 0
    schedule = _simulated(log, submit_s, procs)
    while done < rounds and change_s > AGREED_S:
        done += 1
        again_s = _submitted(order, log.user, log.submit_s, after, think_s, _ends_of(schedule, log))
        change_s = float(np.abs(again_s - submit_s).mean())
        submit_s = again_s
        schedule = _simulated(log, submit_s, procs)
    by_time = np.argsort(submit_s, kind="stable")
    moved = replace(jobs, submit_s=submit_s, wait_s=np.full(len(jobs), -1.0)).take(by_time)
    return ReactingLog(moved, schedule, following, by_chance, done, change_s)


def _ends(log: Jobs, own_procs: int) -> Floats:
    if np.mean(log.wait_s >= 0) >= KNOWN_WAITS:
        return log.submit_s + np.maximum(log.wait_s, 0.0) + np.maximum(log.run_s, 0.0)
    return _ends_of(_simulated(log, log.submit_s, own_procs), log)


def _simulated(log: Jobs, submit_s: Floats, procs: int) -> Schedule:
    by_time = np.argsort(submit_s, kind="stable")
    moved = replace(log, submit_s=submit_s).take(by_time)
    return simulate(moved, procs, "fcfs", "easy", unit=counted_unit(log))


def _ends_of(schedule: Schedule, log: Jobs) -> Floats:
    """(job,) A job that the machine cannot run ends at once."""
    ends_s = log.submit_s.copy()
    ends_s[schedule.jobs.id] = schedule.end_s
    return ends_s


@compiled
def followed(order: Ints, user: Ints, submit_s: Floats, ends_s: Floats) -> tuple[Ints, Floats]:
    """(job,) the job of the same user whose end a job follows, or -1; and the think time. `order`: by user and time."""
    after = np.full(len(order), -1)
    think_s = np.zeros(len(order))
    for place in range(1, len(order)):
        job = order[place]
        if user[job] < 0:
            continue
        # An end before the last submission was answered by that one.
        latest = submit_s[order[place - 1]] if user[order[place - 1]] == user[job] else np.inf
        for back in range(1, min(place, LOOK_BACK) + 1):
            earlier = order[place - back]
            if user[earlier] != user[job]:
                break
            if latest <= ends_s[earlier] <= submit_s[job]:
                latest = ends_s[earlier]
                if submit_s[job] - latest <= THINK_S:
                    after[job], think_s[job] = earlier, submit_s[job] - latest
    return after, think_s


@compiled
def _submitted(order: Ints, user: Ints, dates_s: Floats, after: Ints, think_s: Floats, ends_s: Floats) -> Floats:
    """(job,) submissions, given when jobs end. The jobs of a user stay in their order."""
    submit_s = dates_s.copy()
    for place in range(1, len(order)):
        job, before = order[place], order[place - 1]
        if user[job] < 0 or user[before] != user[job]:
            continue
        interval_s = dates_s[job] - dates_s[before]
        if after[job] >= 0:
            submit_s[job] = ends_s[after[job]] + think_s[job]
        elif interval_s <= PAUSE_S:
            submit_s[job] = submit_s[before] + interval_s
        submit_s[job] = max(submit_s[job], submit_s[before])
    return submit_s
