"""Our own generator: a log's sessions recombined -> synthetic logs of any length that keep the order of things.

1. Each user's jobs are cut into sessions (`sessions`).
2. Sessions of the same user, at most a week apart, exchange their tails where they are alike (`exchange`): what jobs
   follow each other, bursts, repeated submissions, daily and weekly cycles and the slow tides of load stay; who did
   what exactly when does not.
3. Sessions start a little earlier or later; pauses and run times move within what like jobs show (`smoothing`).

Size, limit, user and status of a job come from one real job, so every job is valid by construction. A synthetic log as
long as the real one passes once through its calendar; a longer one goes around again, recombined anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.generators.contract import Fitted, State, check_count, check_log, sizes
from clustertwin.workload.generators.exchange import NONE, Chains, Kin, exchange
from clustertwin.workload.generators.sessions import starts
from clustertwin.workload.generators.smoothing import Kernel, moved, resolution_of, widths
from clustertwin.workload.generators.storage import jobs_from, jobs_state
from clustertwin.workload.generators.whatif import WhatIf, counts, machine_factor, size_factors, user_factors
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import machine_size

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DAY_S = 86400.0
WEEK_S = 7 * DAY_S
REDRAWS = 3


@dataclass(frozen=True, slots=True)
class Crossover:
    """The settings; none is fitted to a particular log."""

    pause_s: float = 3600.0  # a longer one ends a session
    longest_s: float = 4 * 3600.0  # a longer session is cut
    far_s: float = WEEK_S  # no job moves further in the calendar
    most_work_s: float = 900.0  # no exchange moves more work than the whole machine does in this time
    ratio: float = 2.0  # of the lengths of exchanged tails
    reach: int = 8  # like jobs between the two that exchange
    sweeps: int = 4  # exchanges tried a job
    jitter_s: float = 1800.0  # sessions start earlier or later by up to this

    def fit(self, jobs: Jobs, rng: np.random.Generator) -> Recombined:
        check_log(jobs)
        return Recombined.of(self, jobs)


@dataclass(frozen=True, slots=True)
class Recombined(Fitted):
    """A log ready to be recombined: its jobs by user and time, their sessions, their kinds, how far values may move."""

    settings: Crossover
    log: Jobs  # sorted by user, then by time
    begins: Ints  # (session,) index of the first job
    ends: Ints  # (session,) one past the last
    gap_s: Floats  # (job,) since the job before it in its session
    gap_width_s: Floats
    run_width_s: Floats
    kind: Ints  # (job,) jobs are alike in user, size, limit and status
    shape: Ints  # (job,) kind: all that is asked for, whoever asks
    rows: Ints  # shapes and run times of all real jobs, sorted
    overrun_s: float  # the furthest a job ran past its limit
    resolution_s: float

    @classmethod
    def of(cls, settings: Crossover, jobs: Jobs) -> Recombined:
        log = jobs.take(np.lexsort((jobs.submit_s, jobs.user)))
        begins = starts(log.submit_s, log.user, settings.pause_s, settings.longest_s)
        gap_s = np.diff(log.submit_s, prepend=0.0)
        gap_s[begins] = 0.0
        over = _over(log)
        kind = _kinds(log.user, sizes(log), log.request_s, log.status)
        resolution_s = resolution_of(log.run_s)
        # Jobs that reached their limit overrun it by what the machine's epilogue takes, whoever they are.
        value = np.where(over, log.run_s - log.request_s, log.run_s)
        group = np.where(over, -1 - log.status, _kinds(kind, over))
        run_width_s = widths(value, group, Kernel(), resolution_s)
        gap_width_s = widths(gap_s, log.user, Kernel(share=0.02, widest=0.5), 0.5)
        gap_width_s[begins] = 0.0
        shape = _kinds(log.nodes, log.cpus, log.gpus, log.request_s)
        return cls(
            settings, log, begins, np.append(begins[1:], len(log)), gap_s, gap_width_s, run_width_s, kind,
            shape, np.unique(_rows(shape, log.run_s, resolution_s)), float(np.max(np.where(over, value, 0.0))),
            resolution_s,
        )  # fmt: skip

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        return self.imagine(n, rng, WhatIf())

    def imagine(self, n: int | None, rng: np.random.Generator, whatif: WhatIf) -> Iterator[Jobs]:
        """n jobs, or as many as the days hold, of a log with something changed; one block a pass through the log."""
        if n is None and whatif.days is None:
            raise SettingsError("say how many jobs, or how many days")
        if n is not None:
            check_count(n)
        left = np.iinfo(np.int64).max if n is None else n
        until_s = np.inf if whatif.days is None else whatif.days * DAY_S
        epoch_s, passes = self._calendar(left, until_s, rng, whatif)
        made = 0
        for submit_s, which in passes:
            keep = slice(0, min(left - made, int(np.searchsorted(submit_s, until_s))))
            block = self._dress(which[keep], submit_s[keep], made, epoch_s, rng, whatif)
            made += len(block)
            if len(block):
                yield block
            if made >= left or (len(submit_s) and submit_s[-1] >= until_s):
                return

    def _calendar(
        self, left: int, until_s: float, rng: np.random.Generator, whatif: WhatIf
    ) -> tuple[float, Iterator[tuple[Floats, Ints]]]:
        """The date of time zero, and (times, jobs) of pass after pass from there."""
        log = self.log
        span_s = float(log.submit_s.max() - log.submit_s.min())
        period_s = _period(span_s)
        user, size = user_factors(log, whatif.users), size_factors(log, whatif.sizes)
        rate = whatif.load * machine_factor(log, whatif.machine)
        expected = rate * float((user * size).sum())
        if not expected > 0:
            raise SettingsError("nobody is left to submit a job: every factor is zero")
        around = left > 1.05 * expected and until_s > period_s
        skip_s = 0.0
        if left < expected / 2 or until_s < span_s / 2:
            # A short piece of a long log is taken from anywhere in it, where there are jobs.
            last = np.quantile(log.submit_s, max(0.0, 1 - 1.2 * min(left / expected, until_s / span_s)))
            skip_s = DAY_S * float(np.floor(rng.choice(log.submit_s[log.submit_s <= last]) / DAY_S))
        if whatif.start_s is not None and log.epoch_s:
            # Weekdays and hours of the day hold: on to the same moment of a week.
            skip_s += (whatif.start_s - log.epoch_s - skip_s) % min(WEEK_S, period_s)
        epoch_s = log.epoch_s + skip_s if log.epoch_s else 0.0
        if whatif.start_s is not None:
            epoch_s = whatif.start_s
        passes = self._passes(around, period_s, skip_s, rate * user, size, rng)
        return epoch_s, passes if around or skip_s else self._single(left, expected, rate * user, size, passes, rng)

    def _single(
        self, n: int, expected: float, session_rate: Floats, size_rate: Floats,
        passes: Iterator[tuple[Floats, Ints]], rng: np.random.Generator,
    ) -> Iterator[tuple[Floats, Ints]]:  # fmt: skip
        """A log as long as the real one has n jobs to the job: drawn with some to spare, then thinned evenly."""
        if abs(n / expected - 1) <= 0.05 and n != len(self.log):
            at_s, which = self._recombine(1.1 * session_rate, size_rate, rng)
            if len(which) >= n:
                by_work = np.argsort((sizes(self.log) * self.log.run_s)[which], kind="stable")
                kept = by_work[((np.arange(n) + rng.random()) * (len(which) / n)).astype(np.int64)]
                kept = kept[np.argsort(at_s[kept], kind="stable")]
                yield np.round(at_s[kept]), which[kept]
                return
        yield from passes

    def _passes(
        self, around: bool, period_s: float, skip_s: float, session_rate: Floats, size_rate: Floats,
        rng: np.random.Generator,
    ) -> Iterator[tuple[Floats, Ints]]:  # fmt: skip
        """Endless: what belongs to the next pass (sessions across its edge) waits for it."""
        late_s, late = np.empty(0), np.empty(0, dtype=np.int64)
        edge_s = 0.0
        while True:
            at_s, which = self._recombine(session_rate, size_rate, rng)
            at_s, which = np.append(late_s, at_s + edge_s), np.append(late, which)
            order = np.argsort(at_s, kind="stable")
            at_s, which = at_s[order], which[order]
            # A single pass is the whole log, its last days included.
            last_s = at_s[-1] if len(at_s) else edge_s
            edge_s = edge_s + period_s if around else DAY_S * np.ceil((last_s + 1) / DAY_S)
            due = int(np.searchsorted(at_s, edge_s))
            late_s, late = at_s[due:], which[due:]
            first = int(np.searchsorted(at_s[:due], skip_s))
            yield np.round(at_s[first:due] - skip_s), which[first:due]

    def _recombine(self, session_rate: Floats, size_rate: Floats, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """One pass through the log: (time, job), unsorted."""
        set_, log = self.settings, self.log
        work = sizes(log) * log.run_s
        session, clone, away_s = self._draw_sessions(session_rate, work, rng)
        which, slot = self._draw_jobs(session, size_rate, work, rng)
        n_slots = len(session)
        chains, start_s = self._chains(session, clone, away_s, which, slot, work, rng)
        most_work = set_.most_work_s * machine_size(log)
        slot_kind = -1 - log.user[self.begins[session]] + log.user.min()  # below every kind of a job
        kin = Kin.of(np.concatenate([slot_kind, self.kind[which]]), chains.at_s)
        exchange(chains, kin, set_.sweeps * len(which), set_.reach, set_.far_s, most_work, set_.ratio, rng)
        # All sessions at once, one job further each turn.
        node, now_s = chains.after[:n_slots], start_s
        nodes, times = [], []
        while True:
            alive = node != NONE
            node, now_s = node[alive], now_s[alive]
            if not len(node):
                break
            job = which[node - n_slots]
            now_s = now_s + moved(chains.gap_s[node], self.gap_width_s[job], 1.0, rng)
            nodes.append(job)
            times.append(now_s)
            node = chains.after[node]
        return np.concatenate([np.empty(0), *times]), np.concatenate([np.empty(0, dtype=np.int64), *nodes])

    def _draw_sessions(self, rate: Floats, work: Floats, rng: np.random.Generator) -> tuple[Ints, Ints, Floats]:
        """Which sessions this pass has, of which clone of their user, and how far each clone's is moved.

        A user drawn twice works side by side with himself, on other days, or every burst would come twice.
        """
        drawn = counts(rate[self.begins], np.add.reduceat(work, self.begins), rng)
        session = np.repeat(np.arange(len(drawn)), drawn)
        clone = np.arange(len(session)) - np.repeat(np.cumsum(drawn) - drawn, drawn)
        begin_s = self.log.submit_s[self.begins[session]]
        away_s: Floats = np.where(clone > 0, DAY_S * rng.integers(1, 7, len(session)), 0.0)
        away_s[begin_s + away_s > self.log.submit_s.max()] -= WEEK_S
        away_s[begin_s + away_s < 0] = 0.0
        order = np.lexsort((begin_s + away_s, clone, self.log.user[self.begins[session]]))
        return session[order], clone[order], away_s[order]

    def _draw_jobs(self, session: Ints, rate: Floats, work: Floats, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """The jobs of these sessions, and the slot each belongs to."""
        length = self.ends[session] - self.begins[session]
        slot = np.repeat(np.arange(len(session)), length)
        which = np.arange(len(slot)) - np.repeat(np.cumsum(length) - length, length) + self.begins[session][slot]
        times = counts(rate[which], work[which], rng)
        return np.repeat(which, times), np.repeat(slot, times)

    def _chains(
        self,
        session: Ints,
        clone: Ints,
        away_s: Floats,
        which: Ints,
        slot: Ints,
        work: Floats,
        rng: np.random.Generator,
    ) -> tuple[Chains, Floats]:
        """The drawn sessions as they were, and when each starts."""
        log, n_slots, n_jobs = self.log, len(session), len(which)
        user = log.user[self.begins[session]]
        begin_s = log.submit_s[self.begins[session]] + away_s
        end_s = log.submit_s[self.ends[session] - 1] + away_s
        same = (np.diff(user) == 0) & (np.diff(clone) == 0)
        next_s = np.append(np.where(same, begin_s[1:], np.inf), np.inf)
        idle_s = np.maximum(next_s - end_s, 0.0)
        room_s = np.maximum(next_s - begin_s, end_s - begin_s)
        slack_s = np.minimum(np.minimum(idle_s, np.append(np.inf, idle_s[:-1])) / 2, self.settings.jitter_s)
        start_s = np.maximum(begin_s + slack_s * rng.uniform(-1, 1, n_slots), 0.0)
        first = np.append(True, np.diff(slot) != 0)[:n_jobs]
        after = np.full(n_slots + n_jobs, NONE)
        before = np.full(n_slots + n_jobs, NONE)
        node = n_slots + np.arange(n_jobs)
        before[node] = np.where(first, slot, node - 1)
        after[before[node]] = node
        gap_s = np.concatenate([np.zeros(n_slots), np.where(first, 0.0, self.gap_s[which])])
        at_s = np.concatenate([begin_s, log.submit_s[which] + away_s[slot]])
        works = np.concatenate([np.zeros(n_slots), work[which]])
        return Chains(after, before, gap_s, works, at_s, room_s), start_s

    def _dress(
        self, which: Ints, submit_s: Floats, made: int, epoch_s: float, rng: np.random.Generator, whatif: WhatIf
    ) -> Jobs:
        """Jobs like these, submitted then."""
        jobs = self.log.take(which)
        run_s = self._run(which, jobs, rng)
        limit_is_run = np.mean(self.log.run_s == self.log.request_s) > 0.5
        changes: dict[str, Any] = {
            "id": np.arange(made + 1, made + len(which) + 1),
            "submit_s": submit_s,
            "wait_s": np.full(len(which), -1.0),
            "run_s": run_s,
            "request_s": run_s.copy() if limit_is_run else jobs.request_s,
            "epoch_s": epoch_s,
            "header": (),
        }
        jobs = replace(jobs, **changes)
        return jobs if whatif.machine is None else _on_machine(jobs, whatif.machine)

    def _run(self, which: Ints, jobs: Jobs, rng: np.random.Generator) -> Floats:
        """A run time for each job, on the same side of its limit; a copy of a real job is drawn again, more widely."""
        over, width_s = _over(jobs), self.run_width_s[which]
        limit_s = np.where(jobs.request_s > 0, jobs.request_s, np.inf)
        value_s = np.where(over, jobs.run_s - jobs.request_s, jobs.run_s)
        room_s = np.where(over, self.overrun_s - value_s, limit_s - value_s)
        run_s, todo = np.empty(len(which)), np.arange(len(which))
        for _ in range(REDRAWS):
            reach_s = np.minimum(width_s[todo], room_s[todo])
            drawn_s = moved(value_s[todo], reach_s, self.resolution_s, rng)
            drawn_s = np.clip(drawn_s, 0.0, value_s[todo] + room_s[todo])
            run_s[todo] = np.round(np.where(over[todo], jobs.request_s[todo] + drawn_s, drawn_s), 3)
            todo = todo[np.isin(_rows(self.shape[which[todo]], run_s[todo], self.resolution_s), self.rows)]
            if not len(todo):
                break
        return run_s

    def state(self) -> State:
        return jobs_state(self.log, settings=asdict(self.settings))

    @classmethod
    def from_state(cls, state: State) -> Recombined:
        return cls.of(Crossover(**state.facts["settings"]), jobs_from(state))


def _rows(shape: Ints, run_s: Floats, resolution_s: float) -> Ints:
    """One number for what a job asks and how long it ran."""
    return shape * 2**40 + np.round(run_s / resolution_s).astype(np.int64)


def _over(jobs: Jobs) -> NDArray[np.bool_]:
    return np.asarray((jobs.request_s > 0) & (jobs.run_s >= jobs.request_s))


def _kinds(*columns: NDArray[Any]) -> Ints:
    """Rows -> one number for each distinct row."""
    return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].ravel()


def _period(span_s: float) -> float:
    """How long a pass lasts: whole weeks of a long log, whole days of a short one, so that hours of the day hold."""
    unit_s = WEEK_S if span_s >= 2 * WEEK_S else DAY_S if span_s >= 2 * DAY_S else 1.0
    return max(unit_s, unit_s * float(np.round(span_s / unit_s)))


def _on_machine(jobs: Jobs, machine: int) -> Jobs:
    """What does not fit asks for all of it; cpus and gpus a node stay."""
    size = sizes(jobs)
    fit = np.minimum(size, machine)
    smaller: dict[str, Any] = {
        name: np.where(column > 0, np.maximum(column * fit // size, 1), column)
        for name, column in (("nodes", jobs.nodes), ("cpus", jobs.cpus), ("gpus", jobs.gpus))
    }
    per_node = 1 if np.any(jobs.nodes > 0) else max(1, jobs.machine.cpus_per_node)
    return replace(jobs, **smaller, machine=replace(jobs.machine, nodes=-(-machine // per_node)))
