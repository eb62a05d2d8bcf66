"""The last minutes of a whole cluster, kept as they arrive: traces of single nodes -> the moment up to any second.

ring = Ring(CPU)
ring.push(trace)              # of any node, as often as there is something new
scores = detector.score(ring.moment(end_s))

What was not pushed is unknown. A node or a thread that nobody has heard of for `forget_s` is dropped.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.detection.moment import LENGTH_S, Moment, assemble
from clustertwin.telemetry.scoring.holders import Holders

#: Nodes are not heard in step: one may be so many seconds ahead of the moment and still lose nothing of it.
SLACK_S = 30


class Ring:
    def __init__(self, schema: Schema, length_s: int = LENGTH_S, forget_s: int = 3600) -> None:
        self.schema, self.length_s, self.forget_s = schema, length_s, forget_s
        self._nodes: dict[str, _Node] = {}

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
        if trace.node not in self._nodes:
            self._nodes[trace.node] = _Node(self.length_s, len(self.schema))
        self._nodes[trace.node].push(trace)

    def moment(self, end_s: int) -> Moment:
        """Every known thread's seconds in [end_s - length_s, end_s); SettingsError while no node is known."""
        for name in [name for name, node in self._nodes.items() if not node.forget(end_s - self.forget_s)]:
            del self._nodes[name]
        if not self._nodes:
            raise SettingsError("the ring is empty: no node has been heard of")
        known = [(name, self._nodes[name]) for name in self.nodes]
        blocks = [(name, node.cpus, *node.cut(end_s, self.length_s)) for name, node in known]
        moment = assemble(end_s, self.schema, blocks, self.spans(end_s))
        # A thread is with its job, or without one, for no longer than it has been watched.
        watched_s = np.maximum(end_s - np.concatenate([node.first_s for _, node in known]), 0)
        return replace(moment, age_s=np.minimum(moment.age_s, watched_s).astype(np.int32))

    def spans(self, end_s: int) -> list[JobSpan]:
        """The jobs that had begun by `end_s`, on every node; those that go on end at infinity."""
        return [span for name in self.nodes for span in self._nodes[name].holders.at(end_s)]


class _Node:
    """One node's seconds: second s lies in slot s % capacity, and `second` says which one is really there."""

    def __init__(self, length_s: int, channels: int) -> None:
        capacity = length_s + SLACK_S
        self.cpus: tuple[int, ...] = ()
        self.values = np.zeros((0, capacity, channels), np.float32)  # (cpu, slot, channel)
        self.valid = np.zeros((0, capacity), np.bool_)
        self.second = np.full(capacity, -1, np.int64)  # (slot,)
        self.first_s = np.zeros(0, np.int64)  # (cpu,) the first second told of
        self.heard_s = np.zeros(0, np.int64)  # (cpu,) the end of the last
        self.holders = Holders(length_s)

    def push(self, trace: Trace) -> None:
        if trace.end_s == trace.start_s:
            return
        if new := set(trace.cpus) - set(self.cpus):
            self._grow(tuple(sorted(new)), trace.start_s)
        rows = np.searchsorted(self.cpus, trace.cpus)
        self.heard_s[rows] = trace.end_s
        seconds = np.arange(max(trace.start_s, trace.end_s - len(self.second)), trace.end_s)
        if seconds[-1] <= self.second.max() - len(self.second):
            # Its clock was set back: what it told of the future is not worth the present.
            self.second[:], self.first_s[:] = -1, trace.start_s
        seconds = seconds[seconds > self.second.max() - len(self.second)]
        slots = seconds % len(self.second)
        stale = slots[self.second[slots] != seconds]
        self.valid[:, stale] = False
        self.second[slots] = seconds
        told = seconds - trace.start_s
        valid = trace.valid[:, told]
        self.values[rows[:, None], slots] = np.where(valid[:, :, None], trace.values[:, told], np.float32(0))
        self.valid[rows[:, None], slots] = valid
        self.holders.push(trace)

    def cut(self, end_s: int, length_s: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Copies of the seconds up to `end_s`: values (cpu, second, channel), zero where not valid (cpu, second)."""
        seconds = np.arange(end_s - length_s, end_s)
        slots = seconds % len(self.second)
        valid = self.valid[:, slots] & (self.second[slots] == seconds)
        return np.where(valid[:, :, None], self.values[:, slots], np.float32(0)), valid

    def forget(self, before_s: int) -> bool:
        """Drop the threads not heard of since; whether any is left."""
        keep = self.heard_s >= before_s
        if not keep.all():
            self._take(keep)
        return bool(self.cpus)

    def _grow(self, new: tuple[int, ...], first_s: int) -> None:
        order = np.argsort([*self.cpus, *new])
        self.cpus = tuple(sorted((*self.cpus, *new)))
        more = len(new)
        self.values = np.concatenate([self.values, np.zeros((more, *self.values.shape[1:]), np.float32)])[order]
        self.valid = np.concatenate([self.valid, np.zeros((more, len(self.second)), np.bool_)])[order]
        self.first_s = np.concatenate([self.first_s, np.full(more, first_s)])[order]
        self.heard_s = np.concatenate([self.heard_s, np.full(more, first_s)])[order]

    def _take(self, keep: NDArray[np.bool_]) -> None:
        self.cpus = tuple(cpu for cpu, kept in zip(self.cpus, keep, strict=True) if kept)
        self.values, self.valid = self.values[keep], self.valid[keep]
        self.first_s, self.heard_s = self.first_s[keep], self.heard_s[keep]
