"""Windows -> tensors in batches of whole groups: windows that exchange messages stay in one batch."""

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
class GroupedWindows:
    """Windows as tensors, sorted by group; row i is window `order[i]`."""

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
        """Batches of about `size` windows that never split a group; shuffled if a generator is given."""
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


def group_windows(windows: Windows, graph: str, shape: Shape) -> GroupedWindows:
    """Sort windows by the graph they belong to: `graph` is "" (no graph), "node" or "job"."""
    if windows.schema != shape.schema or windows.values.shape[1] != shape.length:
        raise SettingsError(
            f"the model accepts windows of {shape.length} samples with the channels {', '.join(shape.schema.names)}; "
            f"these windows have {windows.values.shape[1]} samples with {', '.join(windows.schema.names)}"
        )
    number = _group_numbers(windows, graph)
    order = np.argsort(number, kind="stable")
    dense = np.unique(number[order], return_inverse=True)[1]
    valid = windows.valid[order] & np.isfinite(windows.values[order]).all(-1)
    x = np.where(valid[:, :, None], windows.values[order], np.float32(0))
    # torch allocates aligned memory and numpy may not. Sums over unaligned arrays can differ in the last bit.
    columns = (x, valid, dense.astype(np.int64), _job_numbers(windows)[order])
    x_, valid_, group, job = (torch.from_numpy(column).clone() for column in columns)
    return GroupedWindows(x_, valid_, group, job, order)


def _job_numbers(windows: Windows) -> NDArray[np.int64]:
    """A number for each window's job. The campaign is part of the name: two campaigns can both have a job 1."""
    names = np.char.add(np.char.add(windows.campaign, "/"), windows.job)
    return np.where(windows.job == "", -1, np.unique(names, return_inverse=True)[1])


def _group_numbers(windows: Windows, graph: str) -> NDArray[np.int64]:
    """A number for each window's group."""
    single = np.arange(len(windows), dtype=np.int64)
    if not graph:
        return single
    name = windows.node if graph == "node" else windows.job
    shared = np.unique(name, return_inverse=True)[1] * np.int64(1 << 34) + (windows.start_s - windows.start_s.min())
    # A thread without a job is a graph of one node.
    return np.where(name == "", -1 - single, shared)
