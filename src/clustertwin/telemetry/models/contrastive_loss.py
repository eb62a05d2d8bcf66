"""The supervised contrastive loss with jobs as classes: embeddings (n, latent) and their jobs (n,) -> a scalar.

The threads of one job do the same work, and this is known without labels. The loss is the cross-entropy of predicting
the job of a window from the cosine similarity of its embedding to the others. Added to the reconstruction error with a
small weight, it pulls the threads of a job together. Detection by reconstruction error becomes slightly worse.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

_TEMPERATURE = 0.1


def contrastive_loss(z: Tensor, job: Tensor) -> Tensor:
    """Near zero if every window is far closer to its own job than to any other; idle threads count as one job."""
    direction = F.normalize(z, dim=1)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    similarity = (direction @ direction.T / _TEMPERATURE).masked_fill(itself, -torch.inf)  # (n, n)
    positive = (job[:, None] == job[None]) & ~itself
    log_probability = similarity - similarity.logsumexp(1, keepdim=True)
    positives = positive.sum(1)  # (n,) other windows of the same job in the batch
    cross_entropy = -log_probability.masked_fill(~positive, 0).sum(1) / positives.clamp(min=1)
    return cross_entropy[positives > 0].sum() / (positives > 0).sum().clamp(min=1)
