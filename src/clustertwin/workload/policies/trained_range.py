"""What a learned policy has seen: job records and a machine -> ranges, and how another log lies outside of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: A log is outside if more than this part of its jobs is.
TOLERATED = 0.1
#: A machine is outside if it is this many times as large or as small.
MACHINE_FACTOR = 2.0
#: A load is outside if it is this many times the highest: queues become deeper than any in the training.
LOAD_FACTOR = 1.15
#: Of fewer jobs the load says little.
LEAST_JOBS_OF_LOAD = 1000


@dataclass(frozen=True, slots=True)
class TrainedRange:
    """Ranges that hold 98 % of the jobs of a training. Empty ranges are unknown."""

    procs: int  # of the machine, or of the smallest
    request_s: tuple[float, float] = (0.0, np.inf)
    size_ratio: tuple[float, float] = (0.0, 1.0)  # processors of a job over those of the machine
    knows_run_times: bool = False  # all limits equal the run times, as in logs without limits
    most_procs: int = 0  # of the largest machine; 0 is `procs`
    most_load: float = np.inf  # the highest offered load

    def outside(self, records: NDArray[Any], procs: int) -> list[str]:
        """How job records and a machine lie outside of this range, one phrase each."""
        phrases = []
        most = self.most_procs or self.procs
        if not self.procs / MACHINE_FACTOR <= procs <= most * MACHINE_FACTOR:
            had = f"{self.procs:,}" if most == self.procs else f"{self.procs:,} to {most:,}"
            phrases.append(f"the machine has {procs:,} processors, in training it had {had}")
        load = offered_load(records, procs)
        if len(records) >= LEAST_JOBS_OF_LOAD and load > LOAD_FACTOR * self.most_load:
            phrases.append(f"the offered load is {load:.0%}, in training it was at most {self.most_load:.0%}")
        low_s, high_s = self.request_s
        beyond = float(((records["request_s"] < low_s) | (records["request_s"] > high_s)).mean())
        if beyond > TOLERATED:
            phrases.append(f"{beyond:.0%} of the time limits are not between {low_s:,.0f} and {high_s:,.0f} s")
        low, high = self.size_ratio
        ratio = records["procs"] / procs
        beyond = float(((ratio < low) | (ratio > high)).mean())
        if beyond > TOLERATED:
            phrases.append(f"{beyond:.0%} of the jobs do not take {low:.1%} to {high:.0%} of the machine")
        if self.knows_run_times and not limits_equal_run_times(records):
            phrases.append("in training the limits were the run times, here they are not")
        return phrases


def range_of(records: NDArray[Any], procs: int) -> TrainedRange:
    """The range of a training on these records."""
    low_s, high_s = np.quantile(records["request_s"], [0.01, 0.99])
    low, high = np.quantile(records["procs"] / procs, [0.01, 0.99])
    return TrainedRange(
        procs, (float(low_s), float(high_s)), (float(low), float(high)), limits_equal_run_times(records),
        most_load=offered_load(records, procs),
    )  # fmt: skip


def range_over(ranges: Sequence[TrainedRange]) -> TrainedRange:
    """The range of a training on several machines."""
    if len(ranges) == 1:
        return ranges[0]
    lows, highs = zip(*(each.request_s for each in ranges), strict=True)
    least, most = zip(*(each.size_ratio for each in ranges), strict=True)
    return TrainedRange(
        min(each.procs for each in ranges),
        (min(lows), max(highs)),
        (min(least), max(most)),
        all(each.knows_run_times for each in ranges),
        max(each.procs for each in ranges),
        max(each.most_load for each in ranges),
    )


def offered_load(records: NDArray[Any], procs: int) -> float:
    """Processor time of the jobs, relative to that of the machine from the first submission to the last."""
    span_s = float(np.ptp(records["submit_s"]))
    return float((records["run_s"] * records["procs"]).sum() / (span_s * procs)) if span_s > 0 else np.inf


def limits_equal_run_times(records: NDArray[Any]) -> bool:
    """Whether limits tell run times: of no job, or of all of them."""
    return bool((records["request_s"] == records["run_s"]).mean() > 0.99)


def range_from(values: dict[str, Any]) -> TrainedRange | None:
    """The range in the values of a checkpoint; an older one has only the size of its machine."""
    if "range" in values:
        entry = values["range"]
        pairs = {name: (float(entry[name][0]), float(entry[name][1])) for name in ("request_s", "size_ratio")}
        return TrainedRange(
            int(entry["procs"]), knows_run_times=bool(entry["knows_run_times"]),
            most_procs=int(entry.get("most_procs", 0)), most_load=float(entry.get("most_load") or np.inf), **pairs,
        )  # fmt: skip
    procs = values.get("rules", {}).get("procs")
    return TrainedRange(int(procs)) if procs else None
