"""One pass of messages over complete graphs: embeddings (n, latent) and groups (n,) -> embeddings (n, latent).

    z_i' = z_i + f(z_i + Σ_j α_ij z_j)        α_ij = softmax_j a(z_i, z_j), j in the group of i

The first layer of the MLP `a` over both embeddings is a sum of two products, one for each side, so the pairwise part
is a broadcast: a group of T threads costs T products and a T × T sum, not T² products. A group may have any size; a
thread alone attends to itself.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: Threads a group, from which each is worth a call of its own.
_MANY = 32


class GraphUpdate(nn.Module):
    def __init__(self, latent: int, hidden: int) -> None:
        super().__init__()
        self.receive = nn.Linear(latent, hidden)
        self.send = nn.Linear(latent, hidden, bias=False)
        self.weigh = nn.Linear(hidden, 1, bias=False)
        self.f = nn.Sequential(nn.Linear(latent, hidden), nn.GELU(), nn.Linear(hidden, latent))
        # Starts as the identity: the graph earns its influence.
        nn.init.zeros_(self.f[-1].weight)
        nn.init.zeros_(self.f[-1].bias)

    def forward(self, z: Tensor, group: Tensor) -> Tensor:
        size = torch.unique_consecutive(group, return_counts=True)[1]  # (g,)
        many = len(z) >= _MANY * len(size)
        return z + self.f(z + (self._message(z, size) if torch.is_grad_enabled() or not many else self._heard(z, size)))

    def _message(self, z: Tensor, size: Tensor) -> Tensor:
        """Σ_j α_ij z_j, all groups at once."""
        slot = torch.arange(len(z), device=z.device) - (size.cumsum(0) - size).repeat_interleave(size)
        row = torch.arange(len(size), device=z.device).repeat_interleave(size)
        padded = z.new_zeros(len(size), int(size.max()), z.shape[1])  # (g, t, latent)
        padded[row, slot] = z
        there = torch.arange(padded.shape[1], device=z.device) < size[:, None]  # (g, t)
        pair = torch.tanh(self.receive(padded)[:, :, None] + self.send(padded)[:, None])  # (g, i, j, hidden)
        a = self.weigh(pair)[..., 0].masked_fill(~there[:, None], -torch.inf)  # (g, i, j)
        return (F.softmax(a, dim=-1) @ padded)[row, slot]  # (n, latent)

    def _heard(self, z: Tensor, size: Tensor) -> Tensor:
        """The same, group by group and without gradients: a tenth of the time, and no table of all pairs."""
        from clustertwin.telemetry.models.fused.graph_attention import graph_messages

        groups = z.cpu().contiguous().split(size.tolist())
        return torch.cat([torch.from_numpy(graph_messages(self, one.numpy())) for one in groups]).to(z.device)
