"""Channels of nodes and jobs from exported series: samples -> operands (channel, 2); operands over time -> ratios.

Which series are the operands of a channel, and by which rule they become its ratio, is in `core.channels`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import JOB, NODE, Rule, Schema, Selector, parse_selector
from clustertwin.core.compiled import compiled

_RULES: tuple[str, ...] = get_args(Rule)
_COMPLEMENT, _FRACTION, _RATE, _SHARE, _CAPPED, _SATURATING, _QUEUE, _STOLEN = range(len(_RULES))
_EPSILON = 1e-7  # counters of seconds are float64: a smaller step is rounding


@dataclass(frozen=True, slots=True)
class _RuleTable:
    """The rules of a schema as arrays."""

    rules: NDArray[np.int64]  # (channel,)
    halves: NDArray[np.float64]  # (channel,)
    divided: NDArray[np.bool_]  # (channel,) a rate is divided by the second operand
    per_thread: NDArray[np.intp]  # the channels whose second operand is the number of the node's threads


def _table(schema: Schema) -> _RuleTable:
    derivations = [channel.derivation for channel in schema.channels]
    per_thread = [d is not None and d.per_thread for d in derivations]
    divided = [d is not None and any(operands.second for operands in d.series.values()) for d in derivations]
    return _RuleTable(
        np.array([_RULES.index(d.rule) if d else -1 for d in derivations], np.int64),
        np.array([d.half if d else 0.0 for d in derivations]),
        np.array(per_thread) | np.array(divided),
        np.flatnonzero(per_thread),
    )


_NODE_TABLE, _JOB_TABLE = _table(NODE), _table(JOB)


def selectors(dialect: str, schema: Schema = NODE) -> list[tuple[Selector, ...]]:
    """The selectors of each operand of each channel, channel after channel; empty where there is none."""
    operands: list[tuple[Selector, ...]] = []
    for channel in schema.channels:
        series = channel.derivation.series.get(dialect) if channel.derivation else None
        operands += [tuple(map(parse_selector, operand)) for operand in series or ((), ())]
    return operands


@cache
def _operands_of(dialect: str, schema: Schema) -> tuple[int, dict[str, list[tuple[int, Selector]]]]:
    """The number of operands, and the operands and selectors of each metric."""
    operands = selectors(dialect, schema)
    of_metric: dict[str, list[tuple[int, Selector]]] = {}
    for number, operand in enumerate(operands):
        for selector in operand:
            of_metric.setdefault(selector.metric, []).append((number, selector))
    return len(operands), of_metric


class OperandSlots:
    """Where the operands of the channels of a node or a job are among some series. `places` are the numbers of these
    series among all that are read; without them, these are all."""

    def __init__(
        self,
        series: Sequence[tuple[str, Mapping[str, str]]],
        dialect: str,
        schema: Schema | None = None,
        places: Sequence[int] | None = None,
    ) -> None:
        operands, of_metric = _operands_of(dialect, schema or NODE)
        found: list[list[int]] = [[] for _ in range(operands)]
        for i, (name, labels) in zip(range(len(series)) if places is None else places, series, strict=True):
            for operand, selector in of_metric.get(name, ()):  # most series have none: those of the threads
                if found[operand][-1:] != [i] and selector.selects(name, labels):
                    found[operand].append(i)
        slots: list[int] = []
        starts: list[int] = []
        for chosen in found:
            starts.append(len(slots))
            slots += chosen or [-1]
        self._slots, self._starts = np.array(slots, np.intp), np.array(starts, np.intp)

    def moved(self, places: NDArray[np.intp]) -> OperandSlots:
        """The same operands where series i is at `places[i]` now."""
        moved = copy(self)
        moved._slots = places[self._slots]
        return moved

    def read(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values (…, series) of all series, and a NaN at the end -> operands (…, channel, 2), sums of series."""
        sums = np.add.reduceat(values[..., self._slots], self._starts, axis=-1)
        return sums.reshape(*values.shape[:-1], -1, 2)


@compiled
def _derive(operands, pick, elapsed_s, rules, halves, divided, ratios):  # type: ignore[no-untyped-def]
    """operands (row, time, channel, 2) at picked times -> ratios (row, step, channel), NaN where unknown.

    An operand that decreases is a counter that was reset. More than two seconds a second is a jump.
    """
    for row in range(len(operands)):
        for k in range(len(pick) - 1):
            for c in range(len(rules)):
                first, second = operands[row, pick[k + 1], c, 0], operands[row, pick[k + 1], c, 1]
                increase = first - operands[row, pick[k], c, 0]
                value = np.nan
                if rules[c] == _COMPLEMENT:
                    if second > 0 and 0 <= first <= second:
                        value = 1 - first / second
                elif rules[c] == _FRACTION:
                    if second > 0 and first >= 0:
                        value = min(first / second, 1.0)
                elif rules[c] == _RATE:
                    if -_EPSILON <= increase <= 2.0 * elapsed_s[k] + 0.5:
                        value = min(max(increase, 0.0) / elapsed_s[k], 1.0)
                elif rules[c] == _SHARE:
                    total = second - operands[row, pick[k], c, 1]
                    if increase >= 0 and total >= 0:
                        value = min(increase / total, 1.0) if total > 0 else min(increase, 1.0)
                elif rules[c] == _QUEUE:
                    if first >= 0 and second > 0:
                        value = first / (first + second)
                elif rules[c] == _CAPPED or rules[c] == _SATURATING:
                    divisor = second if divided[c] else 1.0
                    if increase >= -_EPSILON and np.isfinite(increase) and divisor > 0:
                        rate = max(increase, 0.0) / elapsed_s[k] / divisor
                        value = min(rate, 1.0) if rules[c] == _CAPPED else rate / (rate + halves[c])
                ratios[row, k, c] = value


def derive(
    operands: NDArray[np.float64] | None, pick: NDArray[np.intp], elapsed_s: NDArray[np.float64], threads: int
) -> NDArray[np.float32]:
    """A node's operands (time, channel, 2) at the picked times -> ratios (step, channel); NaN where unknown.

    `steal` stays unknown here: it follows from the counters of the threads (`stolen`).
    """
    ratios = np.full((1, len(elapsed_s), len(NODE)), np.nan, np.float32)
    if operands is not None:
        table = _NODE_TABLE
        operands = operands.copy()
        operands[:, table.per_thread, 1] = threads
        _derive(operands[None], pick, elapsed_s, table.rules, table.halves, table.divided, ratios)
    return ratios[0]


def derive_jobs(
    operands: NDArray[np.float64], pick: NDArray[np.intp], elapsed_s: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Operands (job, time, channel of JOB, 2) at the picked times -> ratios (job, step, channel); NaN where unknown."""
    ratios = np.full((len(operands), len(elapsed_s), len(JOB)), np.nan, np.float32)
    table = _JOB_TABLE
    _derive(operands, pick, elapsed_s, table.rules, table.halves, table.divided, ratios)
    return ratios


@compiled
def _stolen(seconds, pick, steal, ratios):  # type: ignore[no-untyped-def]
    """seconds (cpu, time, mode) at picked times -> ratios (step,): the increase of `steal` over that of all modes.

    A thread whose counters are missing or decrease is left out.
    """
    for k in range(len(pick) - 1):
        part = whole = 0.0
        for cpu in range(seconds.shape[0]):
            total = 0.0
            for mode in range(seconds.shape[2]):
                total += seconds[cpu, pick[k + 1], mode] - seconds[cpu, pick[k], mode]
            step = seconds[cpu, pick[k + 1], steal] - seconds[cpu, pick[k], steal]
            if total > 0 and np.isfinite(total) and np.isfinite(step):
                part += max(step, 0.0)
                whole += total
        ratios[k] = min(part / whole, 1.0) if whole > 0 else np.nan


def stolen(seconds: NDArray[np.float64], modes: tuple[str, ...], pick: NDArray[np.intp]) -> NDArray[np.float32] | float:
    """Counters of threads (cpu, time, mode) -> the part of their time that the hypervisor took (step,)."""
    if "steal" not in modes:
        return float("nan")
    ratios = np.empty(max(len(pick) - 1, 0), np.float32)
    _stolen(seconds, pick, modes.index("steal"), ratios)
    return ratios
