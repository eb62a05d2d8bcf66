"""Fisher's linear discriminant with jobs as classes: embeddings (n, latent), jobs (n,) -> a projection (latent, few).

The windows of one job belong together, and this is known without labels. The discriminant keeps the few directions in
which the variance between jobs is much larger than the variance within jobs. Each is scaled to unit variance within
jobs. The projection keeps what the embedding says about the job and drops what it says about single seconds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import Windows

RATIO = 5.0  # smallest ratio of the variance between jobs to the variance within jobs
_RIDGE = 1e-6  # for directions without variance


def discriminant_directions(z: NDArray[np.floating], windows: Windows) -> NDArray[np.float64]:
    """The directions, strongest first, and at least one. Threads without a job are ignored."""
    with_job = windows.job != ""
    name = np.char.add(np.char.add(windows.campaign[with_job], "/"), windows.job[with_job])
    job = np.unique(name, return_inverse=True)[1]
    x = z[with_job].astype(np.float64)
    count = np.bincount(job)
    centre = np.stack([np.bincount(job, column) for column in x.T], axis=1) / count[:, None]  # (job, latent)
    centred = x - centre[job]
    within = centred.T @ centred / max(len(x) - len(count), 1) + _RIDGE * np.eye(x.shape[1])
    # In whitened coordinates the windows of a job have unit covariance.
    whitening = np.linalg.inv(np.linalg.cholesky(within)).T  # (latent, latent)
    variance, axes = np.linalg.eigh(np.cov((x @ whitening).T))  # ascending
    keep = max(1, int((variance > 1 + RATIO).sum()))
    return whitening @ axes[:, ::-1][:, :keep]
