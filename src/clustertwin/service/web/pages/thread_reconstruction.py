"""Original against reconstructed: detector, moment, thread -> its last seconds, as seen and as the model has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.service.web.api.json_values import plain
from clustertwin.telemetry.moments.moment import Moment

if TYPE_CHECKING:  # with it comes torch, which takes seconds
    from clustertwin.telemetry.detection.detector import Detector


def thread(detector: Detector | None, moment: Moment, name: str, cpu: int) -> dict[str, Any] | None:
    """Seconds, and for each channel the seen and the reconstructed ratios; None for a thread nobody knows."""
    if name not in moment.nodes:
        return None
    rows = np.flatnonzero((moment.node == moment.nodes.index(name)) & (moment.cpu == cpu))
    if not len(rows):
        return None
    row = int(rows[0])
    made = reconstruct(detector, moment, row) if detector else None
    seen = np.where(moment.valid[row, :, None], moment.values[row], np.nan)  # (second, channel)
    expected = np.full_like(seen, np.nan)
    if made is not None:
        expected[-len(made) :] = made
    return {
        "end_s": moment.end_s,
        "job": moment.jobs[moment.job[row]] if moment.job[row] >= 0 else "",
        "channels": {
            channel: {"seen": plain(seen[:, i]), "expected": plain(expected[:, i])}
            for i, channel in enumerate(moment.schema.names)
        },
    }


def reconstruct(detector: Detector, moment: Moment, row: int) -> NDArray[np.float32] | None:
    """(second, channel) of the last window; None where fewer seconds are valid than a score needs."""
    from clustertwin.telemetry.detection.features import inference

    length = detector.stored.model.config.shape.length
    if moment.valid[row, -length:].mean() < detector.settings.enough:
        return None
    # With its company: a graph model sees the other threads of the job too.
    few, mine = moment.with_peers(np.array([row]))
    return inference.reconstruct(detector.stored, few)[mine[0]]
