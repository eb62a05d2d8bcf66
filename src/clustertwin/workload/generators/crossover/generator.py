"""The crossover generator: the sessions of a log, recombined -> synthetic logs of any length in a realistic order.

1. The jobs of each user are cut into sessions (`sessions`).
2. Sessions of the same user, at most a week apart, exchange their tails after similar jobs (`exchange`). Sequences of
   jobs, bursts, repeated submissions, daily and weekly cycles and the slow changes of load stay the same.
3. Sessions start a little earlier or later. Pauses and run times vary within the range of similar jobs (`smoothing`,
   `run_times`).

Size, limit, user and status of a job come from one real job, so every job is valid. A synthetic log as long as the real
one passes once through its calendar; a longer one passes several times, with new exchanges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import DAY_S, WEEK_S
from clustertwin.core.errors import SettingsError
from clustertwin.workload.generators.contract import Fitted, GeneratorState, check_log
from clustertwin.workload.generators.crossover.exchange import (
    NONE,
    ExchangeLimits,
    SessionChains,
    SimilarNodes,
    exchange,
)
from clustertwin.workload.generators.crossover.run_times import RunTimes, group_codes
from clustertwin.workload.generators.crossover.sessions import session_starts
from clustertwin.workload.generators.crossover.smoothing import SmoothingKernel, moved, widths
from clustertwin.workload.generators.job_limits import limit_is_run_time, limits
from clustertwin.workload.generators.job_rows import clock_step_s, on_clock
from clustertwin.workload.generators.saved_generator import jobs_from, jobs_state
from clustertwin.workload.generators.workload_change import (
    ModelledLog,
    WorkloadChange,
    check_length,
    even_counts,
    fit_to_machine,
    machine_factor,
    refuse_unused_sizes,
    size_factors,
    user_factors,
)
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_sizes, machine_size

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Crossover:
    """The settings. They are the same for all logs."""

    pause_s: float = 3600.0  # a longer pause ends a session
    longest_s: float = 4 * 3600.0  # a longer session is cut
    far_s: float = float(WEEK_S)  # the furthest that a job may move in time
    most_work_s: float = 900.0  # most work that an exchange may move, in seconds of the whole machine
    ratio: float = 2.0  # largest ratio of the lengths of exchanged tails
    reach: int = 8  # how many similar jobs may lie between two that exchange
    sweeps: int = 4  # attempted exchanges per job
    jitter_s: float = 1800.0  # how much earlier or later a session may start

    def fit(self, jobs: Jobs, rng: np.random.Generator) -> FittedCrossover:
        check_log(jobs)
        return FittedCrossover.of(self, jobs)


class _Rates(NamedTuple):
    """(job,) how often the session of each job is drawn, and how often the job itself within its session."""

    session: Floats
    job: Floats

    @property
    def expected(self) -> float:
        """The expected number of jobs in one pass through the log."""
        return float((self.session * self.job).sum())


class _DrawnSessions(NamedTuple):
    """The sessions of one pass, sorted by user, repetition and time."""

    session: Ints  # index in the log
    repetition: Ints  # 0 for the first draw of a session, then 1, 2 …
    away_s: Floats  # how far the session is moved


@dataclass(frozen=True, slots=True)
class FittedCrossover(Fitted):
    """A log prepared for recombination: sorted jobs, their sessions, their kinds, and how far values may move."""

    settings: Crossover
    log: Jobs  # sorted by user, then by time
    begins: Ints  # (session,) index of the first job
    ends: Ints  # (session,) one past the last job
    gap_s: Floats  # (job,) since the previous job of the session
    gap_width_s: Floats  # (job,)
    kind: Ints  # (job,) equal for jobs with the same user, size, limit and status
    run_times: RunTimes
    clock_s: float  # step of the submit times; 0: none
    first_s: float

    @classmethod
    def of(cls, settings: Crossover, jobs: Jobs) -> FittedCrossover:
        log = jobs.take(np.lexsort((jobs.submit_s, jobs.user)))
        begins = session_starts(log.submit_s, log.user, settings.pause_s, settings.longest_s)
        gap_s = np.diff(log.submit_s, prepend=0.0)
        gap_s[begins] = 0.0
        limit_s, over = limits(log)
        kind = group_codes(log.user, counted_sizes(log), limit_s, log.status)
        gap_width_s = widths(gap_s, log.user, SmoothingKernel(share=0.02, widest=0.5), 0.5)
        gap_width_s[begins] = 0.0
        return cls(
            settings, log, begins, np.append(begins[1:], len(log)), gap_s, gap_width_s, kind,
            RunTimes.of(log, kind, limit_s, over), clock_step_s(jobs.submit_s), float(jobs.submit_s.min()),
        )  # fmt: skip

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        return self.what_if(n, rng, WorkloadChange())

    def what_if(self, n: int | None, rng: np.random.Generator, change: WorkloadChange) -> Iterator[Jobs]:
        """A change of load, users and sizes draws sessions and jobs more or less often; one block per pass."""
        check_length(n, change)
        log = self.log
        refuse_unused_sizes(counted_sizes(log), change)
        rate = change.load * machine_factor(log, machine_size(log), change.machine)
        user = user_factors(log.user, change, self.modelled_log())
        rates = _Rates(rate * user, size_factors(counted_sizes(log), change))
        if not rates.expected > 0:
            raise SettingsError("the factors leave no jobs: every job of the log has the factor zero")
        return self._blocks(n, rates, change, rng)

    def modelled_log(self) -> ModelledLog:
        return ModelledLog.of(self.log)

    def _blocks(self, n: int | None, rates: _Rates, change: WorkloadChange, rng: np.random.Generator) -> Iterator[Jobs]:
        left = np.iinfo(np.int64).max if n is None else n
        until_s = np.inf if change.days is None else change.days * DAY_S
        epoch_s, passes = self._calendar(left, until_s, rates, change.start_s, rng)
        drawn = 0
        for submit_s, which in passes:
            keep = slice(0, min(left - drawn, int(np.searchsorted(submit_s, until_s))))
            block = self._jobs(which[keep], submit_s[keep], drawn, rng)
            drawn += len(block)
            if len(block):
                block = replace(block, epoch_s=epoch_s)
                yield block if change.machine is None else fit_to_machine(block, change.machine)
            if drawn >= left or (len(submit_s) and submit_s[-1] >= until_s):
                return

    def _calendar(
        self, left: int, until_s: float, rates: _Rates, start_s: float | None, rng: np.random.Generator
    ) -> tuple[float, Iterator[tuple[Floats, Ints]]]:
        """The date of time zero, and (times, jobs) of the passes from there on."""
        log, expected = self.log, rates.expected
        span_s = float(log.submit_s.max() - log.submit_s.min())
        period_s = _period(span_s)
        repeats = left > 1.05 * expected and until_s > period_s
        skip_s = 0.0
        if left < expected / 2 or until_s < span_s / 2:
            # A short synthetic log starts at a random job of the real one.
            last = np.quantile(log.submit_s, max(0.0, 1 - 1.2 * min(left / expected, until_s / span_s)))
            skip_s = DAY_S * float(np.floor(rng.choice(log.submit_s[log.submit_s <= last]) / DAY_S))
        if start_s is not None and log.epoch_s:
            # Skip to the same moment of the week, which keeps weekdays and hours of the day.
            skip_s += (start_s - log.epoch_s - skip_s) % min(WEEK_S, period_s)
        epoch_s = log.epoch_s + skip_s if log.epoch_s else 0.0
        if start_s is not None:
            epoch_s = start_s
        passes = self._passes(repeats, period_s, skip_s, rates, rng)
        return epoch_s, passes if repeats or skip_s else self._single_pass(left, rates, passes, rng)

    def _single_pass(
        self, n: int, rates: _Rates, passes: Iterator[tuple[Floats, Ints]], rng: np.random.Generator
    ) -> Iterator[tuple[Floats, Ints]]:
        """A log as long as the real one has exactly n jobs: draw a few more, then thin them evenly."""
        if abs(n / rates.expected - 1) <= 0.05 and n != len(self.log):
            at_s, which = self._recombine(_Rates(1.1 * rates.session, rates.job), rng)
            if len(which) >= n:
                by_work = np.argsort((counted_sizes(self.log) * self.log.run_s)[which], kind="stable")
                kept = by_work[((np.arange(n) + rng.random()) * (len(which) / n)).astype(np.int64)]
                kept = kept[np.argsort(at_s[kept], kind="stable")]
                yield np.round(at_s[kept]), which[kept]
                return
        yield from passes

    def _passes(
        self, repeats: bool, period_s: float, skip_s: float, rates: _Rates, rng: np.random.Generator
    ) -> Iterator[tuple[Floats, Ints]]:
        """Endless passes. The part of a session beyond the end of a pass belongs to the next pass."""
        late_s, late = np.empty(0), np.empty(0, dtype=np.int64)
        end_s = 0.0
        while True:
            at_s, which = self._recombine(rates, rng)
            at_s, which = np.append(late_s, at_s + end_s), np.append(late, which)
            order = np.argsort(at_s, kind="stable")
            at_s, which = at_s[order], which[order]
            # A single pass ends with its last job, not with the period.
            last_s = at_s[-1] if len(at_s) else end_s
            end_s = end_s + period_s if repeats else DAY_S * np.ceil((last_s + 1) / DAY_S)
            due = int(np.searchsorted(at_s, end_s))
            late_s, late = at_s[due:], which[due:]
            first = int(np.searchsorted(at_s[:due], skip_s))
            yield np.round(at_s[first:due] - skip_s), which[first:due]

    def _recombine(self, rates: _Rates, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """One pass through the log: (time, job), unsorted."""
        settings, log = self.settings, self.log
        work = counted_sizes(log) * log.run_s
        sessions = self._draw_sessions(rates.session, work, rng)
        which, slot = self._draw_jobs(sessions.session, rates.job, work, rng)
        n_slots = len(sessions.session)
        chains, start_s = self._chains(sessions, which, slot, work, rng)
        limits = ExchangeLimits(settings.far_s, settings.most_work_s * machine_size(log), settings.ratio)
        slot_kind = -1 - log.user[self.begins[sessions.session]] + log.user.min()  # below every kind of a job
        similar = SimilarNodes.of(np.concatenate([slot_kind, self.kind[which]]), chains.at_s)
        exchange(chains, similar, limits, settings.sweeps * len(which), settings.reach, rng)
        # Walk all chains at once, one job per turn.
        node, now_s = chains.after[:n_slots], start_s
        jobs, times = [], []
        while True:
            alive = node != NONE
            node, now_s = node[alive], now_s[alive]
            if not len(node):
                break
            job = which[node - n_slots]
            now_s = now_s + moved(chains.gap_s[node], self.gap_width_s[job], 1.0, rng)
            jobs.append(job)
            times.append(now_s)
            node = chains.after[node]
        return np.concatenate([np.empty(0), *times]), np.concatenate([np.empty(0, dtype=np.int64), *jobs])

    def _draw_sessions(self, rate: Floats, work: Floats, rng: np.random.Generator) -> _DrawnSessions:
        """The sessions of this pass. A repeated session moves by some days; otherwise every burst would occur twice."""
        counts = even_counts(rate[self.begins], np.add.reduceat(work, self.begins), rng)
        index = np.repeat(np.arange(len(counts)), counts)
        repetition = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        begin_s = self.log.submit_s[self.begins[index]]
        away_s: Floats = np.where(repetition > 0, DAY_S * rng.integers(1, 7, len(index)), 0.0)
        away_s[begin_s + away_s > self.log.submit_s.max()] -= WEEK_S
        away_s[begin_s + away_s < 0] = 0.0
        order = np.lexsort((begin_s + away_s, repetition, self.log.user[self.begins[index]]))
        return _DrawnSessions(index[order], repetition[order], away_s[order])

    def _draw_jobs(self, session: Ints, rate: Floats, work: Floats, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """The jobs of these sessions, and the slot of each."""
        length = self.ends[session] - self.begins[session]
        slot = np.repeat(np.arange(len(session)), length)
        which = np.arange(len(slot)) - np.repeat(np.cumsum(length) - length, length) + self.begins[session][slot]
        counts = even_counts(rate[which], work[which], rng)
        return np.repeat(which, counts), np.repeat(slot, counts)

    def _chains(
        self, sessions: _DrawnSessions, which: Ints, slot: Ints, work: Floats, rng: np.random.Generator
    ) -> tuple[SessionChains, Floats]:
        """The drawn sessions as chains in their original order, and the start of each session."""
        log, n_slots, n_jobs = self.log, len(sessions.session), len(which)
        user = log.user[self.begins[sessions.session]]
        begin_s = log.submit_s[self.begins[sessions.session]] + sessions.away_s
        end_s = log.submit_s[self.ends[sessions.session] - 1] + sessions.away_s
        same_user = (np.diff(user) == 0) & (np.diff(sessions.repetition) == 0)
        next_s = np.append(np.where(same_user, begin_s[1:], np.inf), np.inf)
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
        at_s = np.concatenate([begin_s, log.submit_s[which] + sessions.away_s[slot]])
        works = np.concatenate([np.zeros(n_slots), work[which]])
        return SessionChains(after, before, gap_s, works, at_s, room_s), start_s

    def _jobs(self, which: Ints, submit_s: Floats, drawn: int, rng: np.random.Generator) -> Jobs:
        """Jobs like the given ones, with new submit and run times; `drawn` jobs precede them."""
        jobs = self.log.take(which)
        run_s = self.run_times.draw(which, rng)
        changes: dict[str, Any] = {
            "id": np.arange(drawn + 1, drawn + len(which) + 1),
            "submit_s": on_clock(submit_s, self.clock_s, self.first_s),
            "wait_s": np.full(len(which), -1.0),
            "run_s": run_s,
            "request_s": run_s.copy() if limit_is_run_time(self.log) else jobs.request_s,
            "header": (),
        }
        return replace(jobs, **changes)

    def state(self) -> GeneratorState:
        return jobs_state(self.log, settings=asdict(self.settings))

    @classmethod
    def from_state(cls, state: GeneratorState) -> FittedCrossover:
        return cls.of(Crossover(**state.facts["settings"]), jobs_from(state))


def _period(span_s: float) -> float:
    """The length of a pass: whole weeks of a long log, whole days of a short one, so that the hours of the day stay."""
    unit_s = WEEK_S if span_s >= 2 * WEEK_S else DAY_S if span_s >= 2 * DAY_S else 1.0
    return max(unit_s, unit_s * float(np.round(span_s / unit_s)))
