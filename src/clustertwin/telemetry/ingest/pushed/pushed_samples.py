"""What senders push, in pieces and in any order -> one `NodeReading` for each scrape of a node.

A sender cuts the samples of a scrape into several requests, on several connections. All samples of a scrape have the
same time, so they are collected in a row of their node until every series that the node has now is there. A row is
returned when a newer one is complete, because the first samples of a new series can arrive after the rest of their
scrape. A row that stays incomplete is returned as it is when `BEHIND_ROWS` newer ones have begun, or after `WAIT_S`:
a sender that catches up may be slow, so the clock alone does not decide. Rows are returned in the order of their times.
A sample for a row that was returned is late and is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.formatting import visible
from clustertwin.telemetry.ingest.counters import NodeReading
from clustertwin.telemetry.ingest.dialects import Dialect, thread_number
from clustertwin.telemetry.ingest.pushed.crowded_senders import CrowdedSenders
from clustertwin.telemetry.ingest.pushed.pushed_layout import DIALECT_OF
from clustertwin.telemetry.ingest.pushed.pushed_node import PushedNode
from clustertwin.telemetry.ingest.pushed.sample_rows import (
    ABSENT,
    FREE,
    LATE,
    SAMPLE_OUTCOMES,
    due_until,
    fill_rows,
)
from clustertwin.telemetry.ingest.pushed.sender_shares import SenderShares
from clustertwin.telemetry.ingest.pushed.series_registry import UNKNOWN, UNWANTED, SeriesRegistry
from clustertwin.telemetry.ingest.pushed.write_request import LABEL_PROBLEMS, SOUND, WriteSeries, parse_labels

#: Rows of a node that are collected at the same time. Prometheus sends a batch after 5 s at the latest.
ROWS = 16
#: A series without a sample for this long, though its node has newer rows, is not waited for.
LOST_MS = 15_000
#: … and without one for this long, it can be taken away from its node.
FORGET_MS = 60_000
#: A node belongs to the sender and the labels that pushed it first, until they have been silent for this long.
HELD_S = 60.0
#: Older samples are of no use: the length of the trace buffer. Newer ones come from a clock that is wrong.
OLDEST_S, AHEAD_S = 300.0, 30.0
MOST_SERIES, MOST_LABEL_BYTES = 1_200_000, 384 << 20  # as in `AnswerLimits`: 100,000 threads, and half of that again
MOST_NODES, MOST_NODE_SERIES = 20_000, 1 << 17
#: A thread usually has eight series. With one series each, the series alone would allow eight times as many.
MOST_THREADS = 150_000
#: Series of one request that are added; the next request adds the others. It takes 25 µs each, and the loop waits.
MOST_NEW_SERIES = 5000
#: What the rows may cost that one request returns, besides three for each of its samples. A row costs this much and one
#: for each of its series, or more if some are new. A sender that catches up fills its rows; one that fills none could
#: stop the loop for minutes.
MOST_RETURNED, RETURN_COST, LAYOUT_COST = 300_000, 100, 15
#: Readings that wait for the loop. More than this of a backlog are dropped, oldest first.
MOST_READINGS = 100_000
#: Readings that the loop gets at once, of them those of a backlog, and series of nodes that get a new layout for it. It
#: needs about a second for all of them.
MOST_AT_ONCE, MOST_EARLY, MOST_LAID_OUT = 10_000, 5_000, 100_000
_FULL = f"{MOST_SERIES} series are pushed, which is the limit; use write_relabel_configs"
#: At a limit of threads or nodes, a sender below its share gets one part in this many from the one with the most.
ROOM = 16
#: What `_orphan` says of a series: it has a node or waits for one, it looks for one, or there was no room for it.
SETTLED, SEEKING, CROWDED = 0, 1, 2
MOST_REFUSED = 1000
MOST_OWNERS = 100_000


class PushedSamples:
    """The samples of all senders. Its methods take the clock of this machine. One thread at a time calls them."""

    def __init__(self) -> None:
        self._registry = SeriesRegistry((*DIALECT_OF,), MOST_SERIES, MOST_LABEL_BYTES)
        self._senders: dict[str, int] = {}
        self._nodes: dict[tuple[str, str, str], PushedNode] = {}  # by sender, instance and dialect
        self._waiting: dict[tuple[str, str, str], list[int]] = {}  # series whose node is not known, or another's
        self._at_place: dict[int, PushedNode] = {}
        self._attached = 0  # series that have a node
        self._thread_shares, self._node_shares = SenderShares(1 / ROOM), SenderShares(1 / ROOM)
        self._series_shares = SenderShares(1 / 4)  # nobody makes room for others at once, so the reserve is larger
        self._roomed_s = float("-inf")
        self._early: list[tuple[PushedNode, NodeReading]] = []  # returned before they were asked for
        #: Series: node, whether it is waited for, time of its newest sample, when it was heard, and its samples by row.
        #: An orphan had a node or found no room, and looks for a node when it is pushed again.
        self._node_of, self._active = np.zeros(0, np.int32), np.zeros(0, np.bool_)
        self._orphan = np.zeros(0, np.int8)
        self._newest_ms, self._heard_s = np.zeros(0, np.int64), np.zeros(0)
        self._bits = np.zeros((0, ROWS), np.uint64)
        #: Nodes: time and arrival of each row, its samples, and the series that are waited for.
        self._row_ms, self._row_s = np.zeros((0, ROWS), np.int64), np.zeros((0, ROWS))
        self._filled = np.zeros((0, ROWS), np.int64)
        self._expected, self._returned_ms, self._begun_s = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        self._free_places: list[int] = []
        self.most_threads = MOST_THREADS  # fewer if the loop takes fewer
        self.counts: Counter[str] = Counter()  # samples, by what happened to them; refused series; dropped readings
        self.refused: dict[str, str] = {}  # what is left out, and why
        self.crowded = CrowdedSenders()
        self.owners: dict[str, int] = {}  # job -> user id

    @property
    def series(self) -> int:
        return len(self._registry)

    @property
    def nodes(self) -> int:
        return len(self._nodes)

    @property
    def threads(self) -> int:
        return self._thread_shares.total

    def add(self, sender: str, request: WriteSeries, now_s: float) -> str:
        """Take in a request. The reason if some of its series cannot be used; the others are used nevertheless."""
        number = self._senders.setdefault(sender, len(self._senders))
        self._make_room(now_s)
        numbers, hashes = self._registry.find(request, number)
        reason = self._bad_labels(request)
        known = numbers[numbers >= 0]
        crowded = known[(self._orphan[known] == CROWDED) & self.crowded.may_retry(sender, now_s)]
        new = np.flatnonzero(numbers == UNKNOWN)
        most = MOST_NEW_SERIES if len(new) and self._has_series_room(sender, now_s) else 0
        self.counts["postponed"] += len(new[most:])
        numbers[new[most:]] = UNWANTED
        for i in new[:most].tolist():
            try:
                numbers[i] = self._register(sender, request.labels(i), number, hashes[i], now_s)
            except ValueError as error:
                reason = reason or f"a series has {error}"
                self.counts["refused"] += 1
                numbers[i] = UNWANTED
        known = numbers[numbers >= 0]
        self._heard_s[known] = now_s
        orphans = np.append(known[self._orphan[known] == SEEKING], crowded)
        for orphan in orphans[:MOST_NEW_SERIES].tolist():
            if self._orphan[orphan]:  # an earlier one may have brought it along
                self._attach(orphan, sender, parse_labels(self._registry.labels(orphan)), now_s)
        return self._spread(request, numbers, now_s) or reason

    def _bad_labels(self, request: WriteSeries) -> str:
        wrong = np.flatnonzero(request.problem != SOUND)
        if not len(wrong):
            return ""
        self.counts["refused"] += len(wrong)
        return f"{len(wrong)} series with {LABEL_PROBLEMS[int(request.problem[wrong[0]])]}"

    # Series and their nodes ----------------------------------------------------------------------------------------

    def _register(self, sender: str, text: bytes, sender_number: int, hashed: np.uint64, now_s: float) -> int:
        """A number for a new series; ValueError if it cannot be used."""
        known = self._registry.find_one(text, sender_number, hashed)
        if known >= 0:  # twice in one request
            return known
        labels = parse_labels(text)
        if not labels.get("instance"):
            raise ValueError("no instance")
        if labels["__name__"] == DIALECT_OF[labels["__name__"]].cpu:
            thread_number(labels)
        if not self._has_series_room(sender, now_s):
            return UNWANTED
        number = self._registry.add(text, sender_number, hashed)
        self._series_shares.add(sender, 1)
        self._grow(number)
        self._attach(number, sender, labels, now_s)
        return number

    def _has_series_room(self, sender: str, now_s: float) -> bool:
        if self._registry.is_full:
            self._refuse("", _FULL)
        elif not self._series_shares.has_room(sender, self._registry.most_series):
            self.counts["refused"] += 1
            self.crowded.leave_out(sender, "new series", now_s)
        else:
            return True
        return False

    def _attach(self, number: int, sender: str, labels: dict[str, str], now_s: float) -> None:
        """Give a series to its node, or let it wait for one."""
        self._orphan[number] = SETTLED
        dialect = DIALECT_OF[labels["__name__"]]
        key = sender, labels["instance"], dialect.name
        node, is_cpu = self._nodes.get(key), labels["__name__"] == dialect.cpu
        if node is None and is_cpu:
            node = self._begin(key, dialect, labels, now_s)
            if node is None:
                self._wait_for_room(number, sender, now_s)
                return
        if node is None or not node.target <= labels.items() or (is_cpu and len(labels) != len(node.target) + 3):
            self._waiting.setdefault(key, []).append(number)
            if node is not None and is_cpu:
                other = sorted(f'{name}="{text[:40]}"' for name, text in labels.items() - node.target - _own(labels))
                self._refuse(
                    node.instance,
                    f"{node.where}: is pushed twice, also with {visible(', '.join(other)) or 'fewer labels'}; "
                    "the second one is refused",
                )
            return
        if len(node.numbers) >= MOST_NODE_SERIES:
            self._refuse(node.instance, f"{node.where}: more than {MOST_NODE_SERIES} series, which is the limit")
            return
        if is_cpu and not self._add_thread(node, labels["cpu"], now_s):
            self._wait_for_room(number, sender, now_s)
            return
        own = {name: text for name, text in labels.items() if (name, text) not in node.target}
        node.columns.append((own.pop("__name__"), own))
        node.numbers.append(number)
        node.layout = None
        self._node_of[number], self._active[number] = node.place, True
        self._expected[node.place] += 1
        self._attached += 1

    def _wait_for_room(self, number: int, sender: str, now_s: float) -> None:
        """Others may end, so the series is tried again."""
        self._orphan[number] = CROWDED
        self.crowded.count(sender, now_s)

    def _add_thread(self, node: PushedNode, cpu: str, now_s: float) -> bool:
        """Count a series of a thread; False if the thread is new and there are too many."""
        if cpu not in node.threads:
            most = min(MOST_THREADS, self.most_threads)
            if not self._has_room(self._thread_shares, node.sender, most, now_s):
                reason = f"{node.where}: {self._thread_shares.why_full(node.sender, most, 'threads')}"
                if self._refuse(node.instance, reason):
                    self.crowded.note_full(node.instance, reason, now_s)
                return False
            self._thread_shares.add(node.sender, 1)
        node.threads[cpu] += 1
        return True

    def _has_room(self, shares: SenderShares, sender: str, most: int, now_s: float) -> bool:
        """Whether the sender may have one more. If need be, the newest nodes of one above its share are left out."""
        if shares.has_room(sender, most):
            return True
        giver, surplus = shares.giver(sender, most) or (sender, 0)
        if not shares.is_alone(sender):
            self.crowded.leave_out(giver, "newest nodes", now_s)
        if giver == sender:
            return False
        until = shares.total - max(min(most // ROOM, surplus), 1)
        own = [key for key, node in self._nodes.items() if node.sender == giver]
        for key in sorted(own, key=lambda key: self._begun_s[self._nodes[key].place], reverse=True):
            if shares.total <= until:
                break
            node = self._nodes[key]
            cpus = [i for i, (name, _) in zip(node.numbers, node.columns, strict=True) if name == node.dialect.cpu]
            self._forget(key)
            self._orphan[cpus] = CROWDED
        return True

    def _begin(
        self, key: tuple[str, str, str], dialect: Dialect, labels: Mapping[str, str], now_s: float
    ) -> PushedNode | None:
        """A new node, with the series that have waited for it."""
        if not self._has_room(self._node_shares, key[0], MOST_NODES, now_s):
            if self._node_shares.is_alone(key[0]):
                self._refuse("", self._node_shares.why_full(key[0], MOST_NODES, "nodes"))
            else:  # `crowded` says so
                self.counts["refused"] += 1
            return None
        self._node_shares.add(key[0], 1)
        place = self._free_places.pop() if self._free_places else self._new_place()
        self._row_ms[place], self._filled[place] = FREE, 0
        self._expected[place], self._returned_ms[place], self._begun_s[place] = 0, FREE, now_s
        target = frozenset(labels.items() - _own(labels))
        node = PushedNode(key[0], key[1], dialect, target, place, heard_s=now_s)
        self._nodes[key] = self._at_place[place] = node
        # Each of them is given to the node with its next sample: all at once could stop the loop for a minute.
        self._orphan[self._waiting.pop(key, [])] = SEEKING
        return node

    def _forget(self, key: tuple[str, str, str]) -> None:
        """Forget a node that is silent or must make room. Another sender of the same node takes over with a push."""
        node = self._nodes.pop(key)
        self._node_shares.add(node.sender, -1)
        del self._at_place[node.place]
        self._detach(node, np.ones(len(node.numbers), np.bool_))
        self._orphan[self._waiting.pop(key, [])] = SEEKING
        self._row_ms[node.place] = FREE
        self._free_places.append(node.place)
        for name in ("", node.instance):  # if there is still no room, the next series says so again
            self.refused.pop(name, None)

    def _detach(self, node: PushedNode, gone: NDArray[np.bool_]) -> None:
        """Take series away from a node."""
        numbers = np.array(node.numbers, np.intp)
        ended = numbers[gone]
        self._expected[node.place] -= int(self._active[ended].sum())
        self._node_of[ended], self._active[ended], self._orphan[ended], self._bits[ended] = -1, False, SEEKING, ABSENT
        self._newest_ms[ended] = 0  # perhaps from before the clock was set back
        self._attached -= len(ended)
        for name, own in (node.columns[i] for i in np.flatnonzero(gone).tolist()):
            if name == node.dialect.cpu:
                node.threads[own["cpu"]] -= 1
                self._thread_shares.add(node.sender, -(not node.threads[own["cpu"]]))
        node.threads = +node.threads  # without those that have no series
        node.columns = [column for column, is_gone in zip(node.columns, gone.tolist(), strict=True) if not is_gone]
        node.numbers = numbers[~gone].tolist()
        node.layout = None

    def _make_room(self, now_s: float) -> None:
        """Forget series without a node that have been silent for a while: those of jobs that have ended, above all."""
        count = len(self._registry)
        if abs(now_s - self._roomed_s) < HELD_S or not (self._registry.is_full or count > 2 * self._attached + 10_000):
            return
        self._roomed_s = now_s
        kept = np.flatnonzero((self._node_of[:count] >= 0) | (now_s - self._heard_s[:count] < HELD_S))
        renamed = np.full(count, -1, np.int64)
        renamed[kept] = np.arange(len(kept))
        self._registry.keep(kept)
        self._series_shares = SenderShares(self._series_shares.reserve)
        counts = np.bincount(self._registry.senders, minlength=len(self._senders)).tolist()
        for sender, series in zip(self._senders, counts, strict=True):
            self._series_shares.add(sender, series)
        for array in (self._node_of, self._active, self._orphan, self._newest_ms, self._heard_s, self._bits):
            array[: len(kept)] = array[kept]
        for node in self._nodes.values():
            node.numbers = renamed[node.numbers].tolist()
        waiting = {key: renamed[numbers] for key, numbers in self._waiting.items()}
        self._waiting = {key: found[found >= 0].tolist() for key, found in waiting.items() if (found >= 0).any()}

    def _grow(self, number: int) -> None:
        if number == len(self._node_of):
            more = max(number, 1024)
            self._node_of = np.append(self._node_of, np.full(more, -1, np.int32))
            self._active = np.append(self._active, np.zeros(more, np.bool_))
            self._orphan = np.append(self._orphan, np.zeros(more, np.int8))
            self._newest_ms = np.append(self._newest_ms, np.zeros(more, np.int64))
            self._heard_s = np.append(self._heard_s, np.zeros(more))
            self._bits = np.append(self._bits, np.full((more, ROWS), ABSENT), axis=0)
        self._node_of[number], self._active[number], self._orphan[number] = -1, False, SETTLED
        self._newest_ms[number], self._bits[number] = 0, ABSENT

    def _new_place(self) -> int:
        place = len(self._expected)
        more = 64
        self._row_ms = np.append(self._row_ms, np.full((more, ROWS), FREE, np.int64), axis=0)
        self._row_s = np.append(self._row_s, np.zeros((more, ROWS)), axis=0)
        self._filled = np.append(self._filled, np.zeros((more, ROWS), np.int64), axis=0)
        self._expected = np.append(self._expected, np.zeros(more, np.int64))
        self._returned_ms = np.append(self._returned_ms, np.full(more, FREE, np.int64))
        self._begun_s = np.append(self._begun_s, np.zeros(more))
        self._free_places += range(place + more - 1, place, -1)
        return place

    def _refuse(self, instance: str, reason: str) -> bool:
        """Count a refused series. Whether the reason is named: not if there are too many."""
        self.counts["refused"] += 1
        is_named = instance in self.refused or len(self.refused) < MOST_REFUSED
        if is_named:
            self.refused[instance] = reason
        return is_named

    # Samples and their rows ----------------------------------------------------------------------------------------

    def _spread(self, request: WriteSeries, numbers: NDArray[np.int64], now_s: float) -> str:
        """Put the samples into the rows of their nodes. A full node returns its oldest row first.

        The reason if some are dropped because they would return too many rows while the loop waits.
        """
        counts = np.zeros(len(SAMPLE_OUTCOMES), np.int64)
        series = (self._node_of, self._active, self._newest_ms, self._bits)
        rows = (self._row_ms, self._row_s, self._filled, self._expected, self._returned_ms)
        limits = (now_s, round((now_s - OLDEST_S) * 1000), round((now_s + AHEAD_S) * 1000))
        samples = (request.series_of, request.times_ms, request.bits)
        at, reason, left = 0, "", MOST_RETURNED + 3 * len(request.times_ms)
        while at < len(request.times_ms):
            at = fill_rows(at, samples, numbers, series, rows, limits, counts)
            if at < len(request.times_ms):
                place = int(self._node_of[numbers[request.series_of[at]]])
                node = self._at_place[place]
                left -= RETURN_COST + len(node.numbers) * (LAYOUT_COST if node.layout is None else 1)
                if left < 0:
                    counts[LATE] += len(request.times_ms) - at
                    reason = "samples of too many different times"
                    break
                self._return(node, int(np.argmin(self._row_ms[place])), self._early)
        del self._early[: max(len(self._early) - MOST_READINGS, 0)]
        self.counts.update({kind: int(count) for kind, count in zip(SAMPLE_OUTCOMES, counts, strict=True) if count})
        return reason

    def due(self, now_s: float) -> list[tuple[PushedNode, NodeReading]]:
        """The readings that are complete, or that nothing more is expected of. Those of a node are in order.

        If there are more than the loop can use at once, the nodes take turns.
        """
        for instance, reason in self.crowded.lapse(now_s):
            if self.refused.get(instance) == reason:
                del self.refused[instance]
        readings, self._early = self._early[:MOST_EARLY], self._early[MOST_EARLY:]
        held = {node.place for node, _ in self._early}  # what is in their rows comes after that
        nodes = list(self._nodes.items())
        places = np.array([node.place for _, node in nodes], np.int64)
        until_ms = np.empty(len(places), np.int64)
        due_until(places, (self._row_ms, self._row_s, self._filled, self._expected, self._begun_s), now_s, until_ms)
        laid_out = 0
        for (key, node), until in zip(nodes, until_ms.tolist(), strict=True):
            if until == FREE:
                if abs(now_s - node.heard_s) > HELD_S:  # also if the clock was set back: its newer rows would be late
                    self._forget(key)
                continue
            new = len(node.columns) if node.layout is None else 0
            if node.place in held or len(readings) >= MOST_AT_ONCE or (laid_out and laid_out + new > MOST_LAID_OUT):
                continue
            laid_out += new
            self._nodes[key] = self._nodes.pop(key)  # in the next call, the others come first
            times_ms = self._row_ms[node.place]
            for row in np.argsort(times_ms).tolist():
                if FREE < times_ms[row] <= until:
                    self._return(node, row, readings)
        return readings

    def _return(self, node: PushedNode, row: int, readings: list[tuple[PushedNode, NodeReading]]) -> None:
        """Empty a row into a reading. A row without any CPU time, as of a target that is down, is none."""
        place, numbers = node.place, np.array(node.numbers, np.intp)
        time_ms = int(self._row_ms[place, row])
        values = self._bits[numbers, row].view(np.float64)
        values[np.isnan(values)] = np.nan  # a stale marker is a signalling NaN: sums of it would warn
        self._bits[numbers, row] = ABSENT
        self._row_ms[place, row], self._filled[place, row] = FREE, 0
        self._returned_ms[place] = max(time_ms, int(self._returned_ms[place]))
        node.heard_s = float(self._row_s[place, row])
        lost = self._active[numbers] & (self._newest_ms[numbers] < time_ms - LOST_MS)
        if lost.any():
            self._active[numbers[lost]] = False
            self._expected[place] -= int(lost.sum())
        try:
            reading = node.reading(time_ms / 1000, values, self.owners)
        except ValueError as error:
            self._refuse(node.instance, f"{node.where}: {error}")
            return
        while len(self.owners) > MOST_OWNERS:
            del self.owners[next(iter(self.owners))]
        if not np.isnan(reading.seconds).all():
            readings.append((node, reading))
        ended = ~self._active[numbers] & (self._newest_ms[numbers] < time_ms - FORGET_MS)
        if ended.sum() > 64 + len(numbers) // 4:
            self._detach(node, ended)


def _own(labels: Mapping[str, str]) -> set[tuple[str, str]]:
    """The labels of a CPU series that its node's other series do not have."""
    return {(name, labels[name]) for name in ("__name__", "cpu", "mode") if name in labels}
