"""Node channels from exported series: samples of a node -> operands (channel, 2); operands over time -> ratios.

Which series are the operands of a channel, and by which rule they become its ratio, is in `core.channels`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import NODE, parse_selector
from clustertwin.core.compiled import compiled

Selector = tuple[str, dict[str, str]]  # a metric, and the labels that a series of it must have

_RULES = ("complement", "rate", "share")
_COMPLEMENT, _RATE, _SHARE = range(len(_RULES))
_EPSILON = 1e-7  # counters of seconds are float64: a smaller step is rounding
_RULE_OF_CHANNEL = np.array([_RULES.index(c.derivation.rule) if c.derivation else -1 for c in NODE.channels], np.int64)


def selectors(dialect: str) -> list[tuple[Selector, ...]]:
    """The selectors of each operand of each node channel, channel after channel; empty where there is none."""
    operands: list[tuple[Selector, ...]] = []
    for channel in NODE.channels:
        series = channel.derivation.series.get(dialect) if channel.derivation else None
        operands += [tuple(map(parse_selector, operand)) for operand in series or ((), ())]
    return operands


def is_selected(name: str, labels: Mapping[str, str], operand: tuple[Selector, ...]) -> bool:
    return any(metric == name and wanted.items() <= labels.items() for metric, wanted in operand)


class OperandSlots:
    """Where the operands of the node channels are among the series of a page."""

    def __init__(self, series: Sequence[tuple[str, Mapping[str, str]]], dialect: str) -> None:
        slots: list[int] = []
        starts: list[int] = []
        for operand in selectors(dialect):
            starts.append(len(slots))
            slots += [i for i, (name, labels) in enumerate(series) if is_selected(name, labels, operand)] or [-1]
        self._slots, self._starts = np.array(slots, np.intp), np.array(starts, np.intp)

    def read(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values of all series, and a NaN at the end -> operands (channel, 2), sums of their series."""
        return np.add.reduceat(values[self._slots], self._starts).reshape(-1, 2)


@compiled
def _derive(operands, pick, elapsed_s, rules, ratios):  # type: ignore[no-untyped-def]
    """operands (time, channel, 2) at picked times -> ratios (step, channel), NaN where unknown.

    An operand that decreases is a counter that was reset. More than two seconds a second is a jump.
    """
    for k in range(len(pick) - 1):
        for c in range(len(rules)):
            first, second = operands[pick[k + 1], c, 0], operands[pick[k + 1], c, 1]
            increase = first - operands[pick[k], c, 0]
            value = np.nan
            if rules[c] == _COMPLEMENT:
                if second > 0 and 0 <= first <= second:
                    value = 1 - first / second
            elif rules[c] == _RATE:
                if -_EPSILON <= increase <= 2.0 * elapsed_s[k] + 0.5:
                    value = min(max(increase, 0.0) / elapsed_s[k], 1.0)
            elif rules[c] == _SHARE:
                total = second - operands[pick[k], c, 1]
                if increase >= 0 and total >= 0:
                    value = min(increase / total, 1.0) if total > 0 else min(increase, 1.0)
            ratios[k, c] = value


def derive(
    operands: NDArray[np.float64] | None, pick: NDArray[np.intp], elapsed_s: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Operands (time, channel, 2) at the picked times -> ratios (step, channel); NaN where unknown."""
    ratios = np.full((len(elapsed_s), len(NODE)), np.nan, np.float32)
    if operands is not None:
        _derive(operands, pick, elapsed_s, _RULE_OF_CHANNEL, ratios)
    return ratios
