"""A contrastive term: embeddings (n, latent) and their jobs (n,) -> how poorly the windows of one job find each other.

Threads of one job do the same work, and that is known without any label. The term is the cross-entropy of naming a
window's job by the directions of the other windows' embeddings; added to the loss with a small weight it gathers what
belongs together, at some cost to what reconstruction alone would detect.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def scatter(z: Tensor, job: Tensor, temperature: float = 0.1) -> Tensor:
    """Zero where a window's direction is far nearer to its own job's than to any other's; idle threads are one job."""
    direction = F.normalize(z, dim=1)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    likeness = (direction @ direction.T / temperature).masked_fill(itself, -torch.inf)  # (n, n)
    kin = (job[:, None] == job[None]) & ~itself
    chance = likeness - likeness.logsumexp(1, keepdim=True)
    count = kin.sum(1)  # (n,) how many of its job are in the batch
    missed = -chance.masked_fill(~kin, 0).sum(1) / count.clamp(min=1)
    return missed[count > 0].sum() / (count > 0).sum().clamp(min=1)
