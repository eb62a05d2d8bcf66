"""Windows -> tensors in batches of whole groups: what a model sees together stays together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import Windows
from clustertwin.telemetry.models.contract import Batch, Shape


@dataclass(frozen=True, slots=True)
class Grouped:
    """Windows as tensors, ordered by group; `order` tells which window each row was."""

    x: Tensor  # (n, length, channel), zero where masked
    valid: Tensor  # (n, length)
    group: Tensor  # (n,) 0, 0, 1, 2, 2, 2, …
    job: Tensor  # (n,) a number for each job, -1: none
    order: NDArray[np.intp]  # (n,)

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, rows: Tensor) -> Batch:
        return Batch(self.x[rows], self.valid[rows], self.group[rows], self.job[rows])

    def batches(self, size: int, generator: torch.Generator | None = None) -> Iterator[Batch]:
        """Batches of about `size` windows, groups never split; shuffled by the generator, in order without one."""
        count = torch.bincount(self.group)
        first = count.cumsum(0) - count
        turn = torch.randperm(len(count), generator=generator) if generator else torch.arange(len(count))
        count, first = count[turn], first[turn]
        end = count.cumsum(0)
        rows = torch.arange(int(end[-1])) - (end - count).repeat_interleave(count) + first.repeat_interleave(count)
        # A batch ends with the group that crosses a multiple of its size.
        crossing = torch.nonzero(torch.diff(end // size, prepend=torch.zeros(1, dtype=torch.int64)))[:, 0]
        cuts = [0, *end[crossing].tolist()]
        if cuts[-1] != len(rows):
            cuts.append(len(rows))
        for start, stop in pairwise(cuts):
            yield self.batch(rows[start:stop])


def group(windows: Windows, graph: str, shape: Shape) -> Grouped:
    """Order windows by what sees what: `graph` is "" (nothing), "node" or "job"."""
    if windows.schema != shape.schema or windows.values.shape[1] != shape.length:
        raise SettingsError(
            f"the model takes windows of {shape.length} samples of {', '.join(shape.schema.names)}; "
            f"these have {windows.values.shape[1]} of {', '.join(windows.schema.names)}"
        )
    number = _numbers(windows, graph)
    order = np.argsort(number, kind="stable")
    dense = np.unique(number[order], return_inverse=True)[1]
    valid = windows.valid[order] & np.isfinite(windows.values[order]).all(-1)
    x = np.where(valid[:, :, None], windows.values[order], np.float32(0))
    # Copies that torch allots are aligned; numpy's may not be, and sums over them then differ in their last bit.
    columns = (x, valid, dense.astype(np.int64), _jobs(windows)[order])
    x_, valid_, dense_, job_ = (torch.from_numpy(column).clone() for column in columns)
    return Grouped(x_, valid_, dense_, job_, order)


def _jobs(windows: Windows) -> NDArray[np.int64]:
    """A number for each window's job; two campaigns may both have a job 1."""
    named = np.char.add(np.char.add(windows.campaign, "/"), windows.job)
    return np.where(windows.job == "", -1, np.unique(named, return_inverse=True)[1])


def _numbers(windows: Windows, graph: str) -> NDArray[np.int64]:
    """A number for each window's group."""
    alone = np.arange(len(windows), dtype=np.int64)
    if not graph:
        return alone
    name = windows.node if graph == "node" else windows.job
    together = np.unique(name, return_inverse=True)[1] * np.int64(1 << 34) + (windows.start_s - windows.start_s.min())
    # A thread without a job is a graph of one.
    return np.where(name == "", -1 - alone, together)
