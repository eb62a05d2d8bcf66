"""The last minutes of a whole cluster, kept as they arrive: traces of single nodes -> the moment up to any second.

ring = TraceBuffer(CPU)
ring.push(trace)              # of any node, as often as there is something new
scores = detector.score(ring.moment(end_s))

What was not pushed is unknown. A node or a thread that nobody has heard of for `forget_s` is dropped. A moment is a
view, so that a hundred thousand threads cost nothing to show: it stays as it is, apart from seconds that come late.
What lies far ahead of all that was heard, like the seconds of a node whose clock is wrong, waits for a moment that is
asked for as late, and only the newest of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import is_not

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.moments.job_holders import Held, Holders
from clustertwin.telemetry.moments.moment import LENGTH_S, Moment
from clustertwin.telemetry.moments.node_channel_buffer import NodeChannelBuffer
from clustertwin.telemetry.moments.tape import Tape


class _Node:
    """Where a node's threads are on the tape."""

    def __init__(self, remember_s: int) -> None:
        self.cpus: tuple[int, ...] = ()
        self.columns = np.zeros(0, np.intp)  # (cpu,)
        self.holders = Holders(remember_s)

    def add(self, cpus: tuple[int, ...], columns: slice) -> None:
        order = np.argsort([*self.cpus, *cpus])
        self.cpus = tuple(sorted((*self.cpus, *cpus)))
        self.columns = np.concatenate([self.columns, np.arange(columns.start, columns.stop)])[order]

    def keep(self, kept: NDArray[np.bool_]) -> None:
        self.cpus = tuple(np.array(self.cpus)[kept].tolist())
        self.columns = self.columns[kept]


@dataclass(frozen=True, slots=True)
class _Places:
    """Whose each column is, while they are in order: by node, then cpu."""

    nodes: tuple[str, ...]
    node: NDArray[np.int32]  # (column,)
    cpu: NDArray[np.int32]  # (column,)


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Who holds each column, and since when."""

    names: tuple[str, ...]
    job: NDArray[np.int32]  # (column,) index into names, -1: none
    since_s: NDArray[np.float64]  # (column,) in whole seconds


def _join(held: list[Held]) -> _Jobs:
    """All nodes' jobs in one numbering, by name: a job may span nodes."""
    names = tuple(sorted({job for one in held for job in one.jobs}))
    number = {job: i for i, job in enumerate(names)}
    job = [np.array([*(number[name] for name in one.jobs), -1], np.int32)[one.job] for one in held]
    return _Jobs(names, np.concatenate(job), np.ceil(np.concatenate([one.since_s for one in held])))


class TraceBuffer:
    def __init__(self, schema: Schema, length_s: int = LENGTH_S, forget_s: int = 3600) -> None:
        self.schema, self.length_s, self.forget_s = schema, length_s, forget_s
        self._tape = Tape(len(schema), length_s)
        self._node_channels = NodeChannelBuffer(length_s)
        self._nodes: dict[str, _Node] = {}
        self._ahead: dict[str, Trace] = {}  # the newest trace of each node that lies beyond the tape
        self._first_s = np.zeros(0, np.int64)  # (column,) the first second told of
        self._heard_s = np.zeros(0, np.int64)  # (column,) the end of the last
        self._places: _Places | None = None  # None: a thread came or went, and columns are in no order
        self._joined: tuple[list[Held], _Jobs] | None = None  # the last answer, while no job begins or ends

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted(self._nodes))

    def push(self, trace: Trace) -> None:
        """Keep a node's seconds; a second told again is overwritten."""
        if trace.schema != self.schema or trace.interval_s != 1:
            raise SettingsError(
                f"{trace.node}: {', '.join(trace.schema.names)} every {trace.interval_s} s; "
                f"the ring holds {', '.join(self.schema.names)} every second"
            )
        if not self._tape.reaches(trace.end_s):
            self._ahead[trace.node] = trace
            return
        self._ahead.pop(trace.node, None)
        node = self._nodes.get(trace.node)
        if node is None:
            node = self._nodes[trace.node] = _Node(self.length_s)
        columns: slice | NDArray[np.intp]
        if trace.cpus is node.cpus or trace.cpus == node.cpus:
            node.cpus = trace.cpus  # the next trace brings the same tuple, which is compared in no time
            columns = slice(node.columns[0], node.columns[0] + len(node.cpus)) if self._places else node.columns
        else:
            if new := tuple(sorted(set(trace.cpus) - set(node.cpus))):
                node.add(new, self._tape.add(len(new)))
                since_s = np.full(len(new), trace.start_s)
                self._first_s, self._heard_s = (np.append(known, since_s) for known in (self._first_s, self._heard_s))
                self._places = None
            columns = node.columns[np.searchsorted(node.cpus, trace.cpus)]
        self._heard_s[columns] = trace.end_s
        self._tape.write(trace, columns)
        node.holders.push(trace)
        self._node_channels.push(trace)

    def make_room(self, end_s: int, later_s: int) -> None:
        """Move the tape on now, if the moment `later_s` after `end_s` had to: with many threads that takes long."""
        if self._places:
            self._tape.make_room(end_s, later_s)

    def moment(self, end_s: int) -> Moment:
        """Every known thread's seconds in [end_s - length_s, end_s); SettingsError while no node is known."""
        self._forget(end_s - self.forget_s)
        if self._ahead:
            self._tape.window(end_s)  # makes room for them
            for trace in list(self._ahead.values()):
                self.push(trace)
        if not self._nodes:
            raise SettingsError("the ring is empty: no node has been heard of")
        places = self._places = self._places or self._sort(end_s)
        values, valid = self._tape.window(end_s)
        jobs = self._held(places, end_s)
        np.minimum(self._first_s, end_s, out=self._first_s)  # of a clock that was set back since
        # A thread is with its job, or without one, for no longer than it has been watched.
        since_s = np.maximum(jobs.since_s, self._first_s)
        return Moment(
            end_s=end_s,
            schema=self.schema,
            values=values,
            valid=valid,
            nodes=places.nodes,
            node=places.node,
            cpu=places.cpu,
            jobs=jobs.names,
            job=jobs.job,
            age_s=np.maximum(end_s - since_s, 0).astype(np.int32),
            node_channels=self._node_channels.window(places.nodes, end_s),
        )

    def spans(self, end_s: int) -> list[JobSpan]:
        """The jobs that had begun by `end_s`, on every node; those that go on end at infinity."""
        return [span for name in self.nodes for span in self._nodes[name].holders.at(end_s)]

    def _sort(self, end_s: int) -> _Places:
        """Bring the columns in order; those of threads that were forgotten go."""
        names = self.nodes
        nodes = [self._nodes[name] for name in names]
        order = np.concatenate([node.columns for node in nodes])
        self._tape.move(end_s - self.length_s, order)
        self._first_s, self._heard_s = self._first_s[order], self._heard_s[order]
        sizes = [len(node.cpus) for node in nodes]
        for node, end in zip(nodes, np.cumsum(sizes).tolist(), strict=True):
            node.columns = np.arange(end - len(node.cpus), end)
        return _Places(
            names,
            np.repeat(np.arange(len(nodes), dtype=np.int32), sizes),
            np.concatenate([node.cpus for node in nodes]).astype(np.int32),
        )

    def _held(self, places: _Places, end_s: int) -> _Jobs:
        nodes = [self._nodes[name] for name in places.nodes]
        held = [node.holders.held(node.cpus, end_s) for node in nodes]
        if self._joined is None or len(held) != len(self._joined[0]) or any(map(is_not, held, self._joined[0])):
            self._joined = held, _join(held)
        return self._joined[1]

    def _forget(self, before_s: int) -> None:
        gone = self._heard_s < before_s
        if not gone.any():
            return
        self._places = None
        for name, node in list(self._nodes.items()):
            kept = ~gone[node.columns]
            if kept.any():
                node.keep(kept)
            else:
                del self._nodes[name]
