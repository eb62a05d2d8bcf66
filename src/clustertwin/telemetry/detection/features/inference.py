"""Run an autoencoder over a moment: model, moment -> embedding and error of every thread.

This is the only module of detection that calls torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from clustertwin.telemetry.models.contract import Batch, reconstruction_error
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.moments.moment import Moment

_CHUNK = 8192  # threads per batch, so that memory use does not grow with the cluster


@torch.no_grad()
def infer(stored: StoredModel, moment: Moment) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Embeddings (thread, latent) and mean squared reconstruction errors (thread,) of the last window."""
    model = stored.model
    moment = moment.select(model.config.shape.schema)
    if fused := model.fused():
        values, valid = moment.windows(model.config.shape.length)
        if valid.all():
            return fused(values, valid)
    embedding = np.empty((len(moment), model.config.latent), np.float32)
    error = np.empty(len(moment), np.float32)
    if fused:
        for start in range(0, len(moment), _CHUNK):
            rows = slice(start, start + _CHUNK)
            filled = _fill_gaps(values[rows], valid[rows])
            embedding[rows], error[rows] = fused(filled, np.ones_like(valid[rows]))
        return embedding, error
    for indices, batch in _batches(moment, model.graph, model.config.shape.length):
        z, reconstruction = model(batch)
        embedding[indices], error[indices] = z.numpy(), reconstruction_error(batch, reconstruction).numpy()
    return embedding, error


@torch.no_grad()
def reconstruct(stored: StoredModel, moment: Moment) -> NDArray[np.float32]:
    """The model's reconstruction of the last window of every thread: (thread, length, channel of the model)."""
    shape = stored.model.config.shape
    moment = moment.select(shape.schema)
    reconstruction = np.empty((len(moment), shape.length, len(shape.schema)), np.float32)
    for rows, batch in _batches(moment, stored.model.graph, shape.length):
        reconstruction[rows] = stored.model(batch)[1].numpy()
    return reconstruction


def _fill_gaps(values: NDArray[np.float32], valid: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Windows (n, length, channel) with invalid seconds replaced by the mean of the valid ones.

    The model reads complete windows: five seconds of zeros would raise the error more than any anomaly does.
    """
    if valid.all():
        return values
    known = valid[:, :, None]
    mean = (values * known).sum(1, keepdims=True) / np.maximum(known.sum(1, keepdims=True), 1)
    return np.where(known, values, mean).astype(np.float32)


def _batches(moment: Moment, graph: str, length: int) -> Iterator[tuple[NDArray[np.intp], Batch]]:
    """Row indices and their windows; the threads of one graph of the model are in one batch."""
    values, valid = moment.windows(length)
    alone = np.arange(len(moment))
    group = {"node": moment.node, "job": np.where(moment.job >= 0, moment.job, -1 - alone)}.get(graph, alone)
    order = np.argsort(group, kind="stable")
    # A batch ends with the group that crosses a multiple of its size.
    ends = np.flatnonzero(np.diff(group[order], append=group.max(initial=0) + 1)) + 1
    crossing = np.flatnonzero(np.diff(ends // _CHUNK, append=-1))
    for start, end in pairwise([0, *ends[crossing].tolist()]):
        rows = order[start:end]
        parts = (_fill_gaps(values[rows], valid[rows]), np.ones_like(valid[rows]), group[rows].astype(np.int64))
        yield rows, Batch(*map(torch.from_numpy, parts))
