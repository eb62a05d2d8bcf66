"""The past of every part of a job: signals as time passes -> what was usual for it so far.

The state is bounded: `most_blocks` blocks of a part, thinned out as it grows old. It can be stored, and rebuilt: a part
that is seen for the first time takes its past from the seconds that the moment still holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.questions.growth_onset import BeforeGrowth, before_growth, unknown_before
from clustertwin.telemetry.detection.questions.job_parts import SIGNALS, JobParts, S, Signals
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.detection.questions.usual import Usual, nothing_usual, summarise_blocks

Place = tuple[str, str]  # job, node
Rows = NDArray[np.intp]
#: What is stored of each part, beside its blocks.
_STORED = ("filled", "first", "end_s", "begun_s", "episodes", "threads", "rest")
#: How far threads are apart. The loads of ranks drift apart in healthy programs: particles move, meshes are refined.
#: Faults set in at once.
_DISTANCES = np.isin(SIGNALS, ("apart", "closest"))
#: A part that keeps fewer threads busy rests.
AT_REST = 0.1
#: A part that rested before may rest again for this many times as long.
_RESTS_AGAIN = 4


class OwnPast:
    """The blocks of every part. A flagged block was part of a change and does not count as usual."""

    def __init__(self, settings: QuestionSettings) -> None:
        self.settings = settings
        self._row: dict[Place, int] = {}
        self._free: list[int] = []
        shape = (0, settings.most_blocks, len(SIGNALS))
        self._blocks = np.empty(shape, np.float32)
        self._flagged = np.empty(shape, np.bool_)
        self._filled = np.empty(0, np.int64)  # (row,)
        self._first = np.empty(0, np.int64)  # (row,) the first block of the program that runs now
        self._end_s = np.empty(0, np.int64)  # (row,) the end of its last block
        self._seen_s = np.empty(0, np.int64)  # (row,)
        self._begun_s = np.empty(0, np.int64)  # (row,) when another program of the job began; 0: none did
        self._episodes = np.empty((0, len(SIGNALS)), np.uint8)  # changes that ended
        self._threads = np.empty(0, np.int64)  # (row,)
        # (row, 3) blocks of the rest that lasts, of the longest one that ended after the first work, and of work
        self._rest = np.empty((0, 3), np.int64)
        self._usual = nothing_usual(0)
        self._before_growth = unknown_before(0)
        self._grow()
        self._nothing = self._free.pop()  # the row of all parts that are too young to have a past

    def __len__(self) -> int:
        return len(self._row)

    @property
    def places(self) -> tuple[Place, ...]:
        return tuple(self._row)

    def rows_of(self, parts: JobParts, now_s: int) -> tuple[Rows, list[int]]:
        """(part,) rows, and the parts that are new.

        A part that is in its start-up gets no row of its own yet: a node that invents jobs must not fill the memory.
        """
        rows, new = np.empty(len(parts), np.intp), []
        for i, place in enumerate(zip(parts.jobs, parts.nodes, strict=True)):
            row = self._row.get(place)
            if row is None and parts.age_s[i] < self.settings.start_s:
                row = self._nothing
            elif row is None:
                row = self._add(place)
                new.append(i)
            rows[i] = row
        self._seen_s[rows], self._threads[rows] = now_s, parts.count
        return rows, new

    def ended(self, now_s: int) -> list[tuple[Place, int]]:
        """The parts that were not seen for a while, with their rows."""
        return [(p, r) for p, r in self._row.items() if self._seen_s[r] < now_s - self.settings.forget_s]

    def forget(self, places: Iterable[Place]) -> None:
        for place in places:
            self._free.append(self._row.pop(place))

    def longest(self, most: int) -> tuple[Place, ...]:
        """At most this many parts of jobs that have a past, the longest first."""
        filled = {place: int(self._filled[row]) for place, row in self._row.items() if place[0] and self._filled[row]}
        return tuple(sorted(filled, key=lambda place: -filled[place])[:most])

    def stored(self, places: Sequence[Place]) -> dict[str, NDArray[Any]]:
        """The past of these parts as plain arrays; the blocks of one part follow those of another."""
        rows = np.array([self._row[place] for place in places], np.intp)
        kept = np.arange(self.settings.most_blocks) < self._filled[rows, None]
        arrays = {name: getattr(self, f"_{name}")[rows] for name in _STORED}
        return arrays | {"blocks": self._blocks[rows][kept], "flagged": self._flagged[rows][kept]}

    def restore(self, places: Sequence[Place], stored: Mapping[str, NDArray[Any]], now_s: int) -> None:
        """Go on with the past of these parts, as if they had just been seen. They must be new, and checked."""
        rows = np.array([self._add(place) for place in places], np.intp)
        for name in _STORED:
            getattr(self, f"_{name}")[rows] = stored[name]
        at = np.arange(self.settings.most_blocks) < self._filled[rows, None]
        for name in ("blocks", "flagged"):
            array = getattr(self, f"_{name}")
            whole = array[rows]
            whole[at] = stored[name]
            array[rows] = whole
        self._seen_s[rows] = now_s
        self._summarise(rows)

    def append(self, rows: Rows, signals: Signals, flagged: NDArray[np.bool_], end_s: int) -> None:
        """Add a block to these parts, and summarise their past again.

        Nothing is learnt from a job that has rested before and rests for too long.
        """
        self._end_s[rows] = end_s
        self._note_rest(rows, signals)
        learns = ~self.rests_too_long(rows) | (self._rest[rows, 1] == 0)
        rows, signals, flagged = rows[learns], signals[learns], flagged[learns]
        full = rows[self._filled[rows] == self.settings.most_blocks]
        if len(full):
            self._thin_out(full)
        at = self._filled[rows]
        last = np.maximum(at - 1, 0)
        ended = self._flagged[rows, last] & ~flagged & (at > self._first[rows])[:, None]
        self._episodes[rows] += ended & (self._episodes[rows] < 255)
        self._blocks[rows, at], self._flagged[rows, at] = signals, flagged
        self._filled[rows] = at + 1
        self._summarise(rows)

    def begin_anew(self, rows: Rows, now_s: int) -> None:
        """Another program of the job begins: what came before is not usual for it. A run is learnt from as a whole."""
        self._first[rows], self._episodes[rows] = self._filled[rows], 0
        self._begun_s[rows] = self._end_s[rows] = now_s
        self._summarise(rows)

    def age_s(self, rows: Rows, now_s: int) -> NDArray[np.int64]:
        """(part,) seconds since another program of the job began; since the epoch if none did."""
        return np.asarray(now_s - self._begun_s[rows])

    def due(self, rows: Rows, now_s: int) -> NDArray[np.bool_]:
        """(part,) whether a block has passed since the last one."""
        return np.asarray(now_s - self._end_s[rows] >= self.settings.block_s)

    def usual(self, rows: Rows) -> Usual:
        return self._usual.take(rows)

    def before_growth(self, rows: Rows) -> BeforeGrowth:
        return self._before_growth.take(rows)

    def rests_too_long(self, rows: Rows) -> NDArray[np.bool_]:
        """(part,) whether it has worked for five minutes, and rests for much longer than ever since then, if it rests.

        How it began says nothing: most jobs wait for their input, a licence or other nodes before they work.
        """
        now, longest, worked = self._rest[rows].T
        return np.asarray((worked >= self.settings.drift_blocks) & (now >= _RESTS_AGAIN * longest))

    def run(self, row: int) -> NDArray[np.float32] | None:
        """(4, signal) of a whole part, to learn from; None if it is too short."""
        filled = int(self._filled[row])
        if filled < self.settings.learn_blocks:
            return None
        tables = nothing_usual(1)
        whole = np.ascontiguousarray(self._blocks[row : row + 1, :filled])
        every = np.ones(whole.shape, np.bool_)
        summarise_blocks(whole, every, np.array([filled]), self.settings.least_blocks, *tables)
        return np.concatenate(tables)

    def _note_rest(self, rows: Rows, signals: Signals) -> None:
        busy = self._threads[rows] * (signals[:, S["user"]] + signals[:, S["system"]])  # NaN: neither
        now, longest, worked = self._rest[rows].T
        rests, works = busy < AT_REST, busy >= AT_REST
        # A rest began and ended within a block.
        lasted = np.where(works & (now > 0) & (worked > 0), now + 1, 0)
        self._rest[rows] = np.stack(
            [np.where(works, 0, now + rests), np.maximum(longest, lasted), worked + works], axis=1
        )

    def _summarise(self, rows: Rows) -> None:
        settings, filled = self.settings, self._filled[rows]
        counted = np.maximum(filled - settings.lag_blocks, 0)
        recurring = self._episodes[rows] >= settings.recurring_after
        # Both distances are of the same threads. The one over 100 s does not see that two phases are less apart.
        recurring[:, _DISTANCES] = recurring[:, _DISTANCES].any(axis=1, keepdims=True)
        counts = ~self._flagged[rows] | recurring[:, None]
        # Once a past is long, its last five minutes do not count: a slow drift must not become usual as it goes.
        first, block = self._first[rows], np.arange(settings.most_blocks)
        lag = np.where(filled - first >= 2 * settings.drift_blocks, settings.drift_blocks, settings.lag_blocks)
        recent = block >= (filled - lag)[:, None]
        counts &= ~recent[:, :, None] | _DISTANCES
        counts &= (block >= first[:, None])[:, :, None]
        tables = nothing_usual(len(rows))
        summarise_blocks(self._blocks[rows], counts, counted, settings.least_blocks, *tables)
        for table, new in zip(self._usual, tables, strict=True):
            table[rows] = new
        i, idle = S["idle"], self._blocks[rows, :, S["idle"]]
        idle[(block < first[:, None]) | (block >= filled[:, None])] = np.nan
        usual = ~self._flagged[rows, :, i] | recurring[:, i, None]
        before = before_growth(idle, usual, self._flagged[rows, :, S["memory_growth"]])
        for table, new in zip(self._before_growth, before, strict=True):
            table[rows] = new

    def _thin_out(self, rows: Rows) -> None:
        """Keep every second block of the older half."""
        most = self.settings.most_blocks
        kept = np.r_[0 : most // 2 : 2, most // 2 : most]
        for array in (self._blocks, self._flagged):
            array[rows, : len(kept)] = array[rows][:, kept]
        self._filled[rows] = len(kept)
        self._first[rows] = np.searchsorted(kept, self._first[rows])

    def _add(self, place: Place) -> int:
        if not self._free:
            self._grow()
        row = self._row[place] = self._free.pop()
        self._filled[row] = self._first[row] = self._end_s[row] = self._begun_s[row] = self._episodes[row] = 0
        self._rest[row] = 0
        for table in (*self._usual, *self._before_growth):
            table[row] = np.nan
        return row

    def _grow(self) -> None:
        rows = len(self._filled)
        more = max(rows, 8)
        blocks = "_blocks", "_flagged", "_filled", "_first", "_episodes"
        for name in (*blocks, "_end_s", "_seen_s", "_begun_s", "_threads", "_rest"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((more, *old.shape[1:]), old.dtype)]))
        self._usual = Usual(*(np.concatenate(pair) for pair in zip(self._usual, nothing_usual(more), strict=True)))
        pairs = zip(self._before_growth, unknown_before(more), strict=True)
        self._before_growth = BeforeGrowth(*map(np.concatenate, pairs))
        self._free = list(range(rows, rows + more))
