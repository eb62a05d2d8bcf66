"""The last minutes of a whole cluster, kept as they arrive: traces of single nodes -> the moment up to any second.

ring = Ring(CPU)
ring.push(trace)              # of any node, as often as there is something new
scores = detector.score(ring.moment(end_s))

What was not pushed is unknown. A node or a thread that nobody has heard of for `forget_s` is dropped. A moment is a
view, so that a hundred thousand threads cost nothing to show: it stays as it is, apart from seconds that come late.
What lies far ahead of all that was heard, like the seconds of a node whose clock is wrong, waits for a moment that is
asked for as late, and only the newest of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.detection.moment import LENGTH_S, Moment
from clustertwin.telemetry.scoring.holders import Held, Holders
from clustertwin.telemetry.scoring.tape import Tape


class _Node:
    """Where a node's threads are on the tape."""

    def __init__(self, remember_s: int) -> None:
        self.cpus: tuple[int, ...] = ()
        self.columns = np.zeros(0, np.intp)  # (cpu,)
        self.first_s = np.zeros(0, np.int64)  # (cpu,) the first second told of
        self.heard_s = np.zeros(0, np.int64)  # (cpu,) the end of the last
        self.holders = Holders(remember_s)

    def add(self, cpus: tuple[int, ...], columns: slice, first_s: int) -> None:
        order = np.argsort([*self.cpus, *cpus])
        self.cpus = tuple(sorted((*self.cpus, *cpus)))
        new = np.arange(columns.start, columns.stop)
        self.columns = np.concatenate([self.columns, new])[order]
        self.first_s = np.concatenate([self.first_s, np.full(len(new), first_s)])[order]
        self.heard_s = np.concatenate([self.heard_s, np.full(len(new), first_s)])[order]

    def keep(self, kept: NDArray[np.bool_]) -> None:
        self.cpus = tuple(np.array(self.cpus)[kept].tolist())
        self.columns, self.first_s, self.heard_s = self.columns[kept], self.first_s[kept], self.heard_s[kept]


class Ring:
    def __init__(self, schema: Schema, length_s: int = LENGTH_S, forget_s: int = 3600) -> None:
        self.schema, self.length_s, self.forget_s = schema, length_s, forget_s
        self._tape = Tape(len(schema), length_s)
        self._nodes: dict[str, _Node] = {}
        self._ahead: dict[str, Trace] = {}  # the newest trace of each node that lies beyond the tape
        self._in_order = True  # columns: by node, then cpu

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
        if trace.cpus != node.cpus:
            if new := tuple(sorted(set(trace.cpus) - set(node.cpus))):
                node.add(new, self._tape.add(len(new)), trace.start_s)
                self._in_order = False
            rows = np.searchsorted(node.cpus, trace.cpus)
            columns = node.columns[rows]
            node.heard_s[rows] = trace.end_s
        else:
            columns = slice(node.columns[0], node.columns[0] + len(node.cpus)) if self._in_order else node.columns
            node.heard_s[:] = trace.end_s
        self._tape.write(trace, columns)
        node.holders.push(trace)

    def moment(self, end_s: int) -> Moment:
        """Every known thread's seconds in [end_s - length_s, end_s); SettingsError while no node is known."""
        self._forget(end_s - self.forget_s)
        if self._ahead:
            self._tape.window(end_s)  # makes room for them
            for trace in list(self._ahead.values()):
                self.push(trace)
        if not self._nodes:
            raise SettingsError("the ring is empty: no node has been heard of")
        names = self.nodes
        nodes = [self._nodes[name] for name in names]
        if not self._in_order:
            self._tape.move(end_s - self.length_s, np.concatenate([node.columns for node in nodes]))
            first = 0
            for node in nodes:
                node.columns = np.arange(first, first + len(node.cpus))
                first += len(node.cpus)
            self._in_order = True
        values, valid = self._tape.window(end_s)
        jobs, job, since_s = _joined([node.holders.held(node.cpus, end_s) for node in nodes])
        for node in nodes:
            np.minimum(node.first_s, end_s, out=node.first_s)  # of a clock that was set back since
        # A thread is with its job, or without one, for no longer than it has been watched.
        since_s = np.maximum(np.ceil(since_s), np.concatenate([node.first_s for node in nodes]))
        return Moment(
            end_s=end_s,
            schema=self.schema,
            values=values,
            valid=valid,
            nodes=names,
            node=np.repeat(np.arange(len(nodes), dtype=np.int32), [len(node.cpus) for node in nodes]),
            cpu=np.concatenate([node.cpus for node in nodes]).astype(np.int32),
            jobs=jobs,
            job=job,
            age_s=np.maximum(end_s - since_s, 0).astype(np.int32),
        )

    def spans(self, end_s: int) -> list[JobSpan]:
        """The jobs that had begun by `end_s`, on every node; those that go on end at infinity."""
        return [span for name in self.nodes for span in self._nodes[name].holders.at(end_s)]

    def _forget(self, before_s: int) -> None:
        for name, node in list(self._nodes.items()):
            kept = node.heard_s >= before_s
            if kept.all():
                continue
            self._in_order = False
            if kept.any():
                node.keep(kept)
            else:
                del self._nodes[name]


def _joined(held: list[Held]) -> tuple[tuple[str, ...], NDArray[np.int32], NDArray[np.float64]]:
    """All nodes' jobs in one numbering, by name: a job may span nodes."""
    jobs = tuple(sorted({job for one in held for job in one.jobs}))
    number = {job: i for i, job in enumerate(jobs)}
    job = [np.array([*(number[name] for name in one.jobs), -1], np.int32)[one.job] for one in held]
    return jobs, np.concatenate(job), np.concatenate([one.since_s for one in held])
