"""One thread, measured and reconstructed: detector, moment, thread -> both series for each channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.service.web.api.json_values import plain
from clustertwin.telemetry.moments.moment import Moment

if TYPE_CHECKING:  # importing it imports torch, which takes seconds
    from clustertwin.telemetry.detection.detector import Detector


def thread(detector: Detector | None, moment: Moment, name: str, cpu: int) -> dict[str, Any] | None:
    """The measured and the reconstructed ratios of each channel; None if the thread is unknown."""
    if name not in moment.nodes:
        return None
    rows = np.flatnonzero((moment.node == moment.nodes.index(name)) & (moment.cpu == cpu))
    if not len(rows):
        return None
    row = int(rows[0])
    measured = np.where(moment.valid[row, :, None], moment.values[row], np.nan)  # (second, channel)
    expected = np.full_like(measured, np.nan)
    window = reconstruct(detector, moment, row) if detector else None
    if window is not None:
        expected[-len(window) :] = window
    return {
        "end_s": moment.end_s,
        "job": moment.jobs[moment.job[row]] if moment.job[row] >= 0 else "",
        "channels": {
            channel: {"seen": plain(measured[:, i]), "expected": plain(expected[:, i])}
            for i, channel in enumerate(moment.schema.names)
        },
    }


def reconstruct(detector: Detector, moment: Moment, row: int) -> NDArray[np.float32] | None:
    """(second, channel) of the last window; None if too few of its seconds are valid for a score."""
    from clustertwin.telemetry.detection.features import inference

    length = detector.stored.model.config.shape.length
    if moment.valid[row, -length:].mean() < detector.settings.enough:
        return None
    # Together with the other threads of the job: a graph model reads them too.
    threads, wanted = moment.with_peers(np.array([row]))
    return inference.reconstruct(detector.stored, threads)[wanted[0]]
