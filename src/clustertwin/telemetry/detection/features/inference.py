"""Run an autoencoder over a moment: model, moment -> embedding and error of every thread. The only door to torch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from clustertwin.telemetry.models.contract import Batch, reconstruction_error
from clustertwin.telemetry.models.model_store import Stored
from clustertwin.telemetry.moments.moment import Moment

_CHUNK = 8192  # threads at a time, so that memory does not grow with the cluster


@torch.no_grad()
def evaluate(stored: Stored, moment: Moment) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Embeddings (thread, latent) and mean squared errors (thread,) of the last window."""
    model = stored.model
    if fused := model.fused():
        values, valid = moment.windows(model.config.shape.length)
        if valid.all():
            return fused(values, valid)
    embedding = np.empty((len(moment), model.config.latent), np.float32)
    error = np.empty(len(moment), np.float32)
    if fused:
        for start in range(0, len(moment), _CHUNK):
            piece = slice(start, start + _CHUNK)
            mended = _mended(values[piece], valid[piece])
            embedding[piece], error[piece] = fused(mended, np.ones_like(valid[piece]))
        return embedding, error
    for rows, batch in _batches(moment, model.graph, model.config.shape.length):
        z, reconstruction = model(batch)
        embedding[rows], error[rows] = z.numpy(), reconstruction_error(batch, reconstruction).numpy()
    return embedding, error


@torch.no_grad()
def reconstruct(stored: Stored, moment: Moment) -> NDArray[np.float32]:
    """The last window of every thread as the model has it: (thread, length, channel)."""
    shape = stored.model.config.shape
    made = np.empty((len(moment), shape.length, len(shape.schema)), np.float32)
    for rows, batch in _batches(moment, stored.model.graph, shape.length):
        made[rows] = stored.model(batch)[1].numpy()
    return made


def _mended(values: NDArray[np.float32], valid: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Windows (n, length, channel) with their lost seconds as the mean of the others.

    To a model that reads whole windows, five seconds of nothing are stranger than any anomaly.
    """
    if valid.all():
        return values
    known = valid[:, :, None]
    mean = (values * known).sum(1, keepdims=True) / np.maximum(known.sum(1, keepdims=True), 1)
    return np.where(known, values, mean).astype(np.float32)


def _batches(moment: Moment, graph: str, length: int) -> Iterator[tuple[NDArray[np.intp], Batch]]:
    """Rows and their windows; threads that a graph model sees together stay together."""
    values, valid = moment.windows(length)
    alone = np.arange(len(moment))
    group = {"node": moment.node, "job": np.where(moment.job >= 0, moment.job, -1 - alone)}.get(graph, alone)
    order = np.argsort(group, kind="stable")
    # A batch ends with the group that crosses a multiple of its size.
    ends = np.flatnonzero(np.diff(group[order], append=group.max(initial=0) + 1)) + 1
    crossing = np.flatnonzero(np.diff(ends // _CHUNK, append=-1))
    for start, end in pairwise([0, *ends[crossing].tolist()]):
        rows = order[start:end]
        parts = (_mended(values[rows], valid[rows]), np.ones_like(valid[rows]), group[rows].astype(np.int64))
        yield rows, Batch(*map(torch.from_numpy, parts))
