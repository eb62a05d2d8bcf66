"""The directions that tell jobs apart: embeddings (n, latent) and their jobs (n,) -> a projection (latent, few).

Windows of one job are known to belong together without anybody's label. Fisher's discriminant, with jobs for classes,
keeps the few directions in which jobs differ far more than the windows of one job do, each in units of the latter:
what an embedding says about the job, without what it says about this or that second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import Windows

RATIO = 5.0  # jobs must differ so much more than their own windows do, in variance
_RIDGE = 1e-6  # directions of no spread at all


def job_directions(z: NDArray[np.floating], windows: Windows, ratio: float = RATIO) -> NDArray[np.float64]:
    """Strongest first; one at least. Threads without a job are no job."""
    held = windows.job != ""
    name = np.char.add(np.char.add(windows.campaign[held], "/"), windows.job[held])
    job = np.unique(name, return_inverse=True)[1]
    x = z[held].astype(np.float64)
    count = np.bincount(job)
    centre = np.stack([np.bincount(job, column) for column in x.T], axis=1) / count[:, None]  # (job, latent)
    apart = x - centre[job]
    within = apart.T @ apart / max(len(x) - len(count), 1) + _RIDGE * np.eye(x.shape[1])
    # In these coordinates the windows of a job scatter evenly.
    even = np.linalg.inv(np.linalg.cholesky(within)).T  # (latent, latent)
    spread, axes = np.linalg.eigh(np.cov((x @ even).T))  # ascending
    keep = max(1, int((spread > 1 + ratio).sum()))
    return even @ axes[:, ::-1][:, :keep]
