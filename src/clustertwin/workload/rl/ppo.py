"""Masked PPO, whole: a pool of sequences -> weights of the learned policy. Schulman et al. (2017), one file.

The actor is the kernel of `policies/learned.py`, the same weights in the same vector, so that what is trained here runs
in the compiled simulator as it is. Jobs beyond the queue's end are masked; the critic pools over the jobs it sees.

A rollout is gathered in shards, each with a seed of its own, here or on Ray: what is learned does not depend on where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clustertwin.engine import Engine, each
from clustertwin.workload.policies import policy as find_policy
from clustertwin.workload.policies.learned import FEATURES, HIDDEN, WEIGHTS
from clustertwin.workload.rl.sequences import Pool
from clustertwin.workload.rl.worth import Rules, slowdowns
from clustertwin.workload.simulator.machine import Records
from clustertwin.workload.simulator.vector import Schedules


@dataclass(frozen=True, slots=True)
class PpoSettings:
    envs: int = 16  # sequences in a rollout
    shards: int = 2  # the rollout is gathered in; more workers than this have nothing to do
    view: int = 64  # jobs the learner sees
    epochs: int = 4
    batch: int = 1024  # decisions
    rate: float = 2e-3
    clip: float = 0.2
    smoothing: float = 0.97  # λ of generalised advantages; the horizon is the sequence, so nothing is discounted
    entropy: float = 0.003
    reference: str = "sjf"  # rewards are counted against this policy on the same sequence


NEVER = -1e9  # the logit of a job that is not there


class Actor(nn.Module):
    """(…, K, F) -> (…, K) logits: one kernel, every job."""

    def __init__(self, weights: NDArray[np.float64]) -> None:
        super().__init__()
        rows = torch.tensor(weights, dtype=torch.float32).reshape(FEATURES + 2, HIDDEN)
        self.weight, self.bias, self.out = (nn.Parameter(part.clone()) for part in (rows[:-2], rows[-2], rows[-1]))

    def forward(self, seen: Tensor, mask: Tensor) -> Tensor:
        logits = torch.relu(torch.addmm(self.bias, seen[mask], self.weight)) @ self.out  # (jobs there are,)
        return torch.full(mask.shape, NEVER).masked_scatter(mask, logits)

    def vector(self) -> NDArray[np.float64]:
        """The weights as the compiled policy reads them."""
        parts = (self.weight.flatten(), self.bias, self.out)
        return torch.cat(parts).detach().numpy().astype(np.float64)


class Critic(nn.Module):
    """(n, K, F) -> (n,) what is still to come, from the mean and the peak over the jobs seen."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.job = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(2 * width + 1, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, seen: Tensor, mask: Tensor, left: Tensor) -> Tensor:
        jobs = self.job(seen[mask])  # (jobs there are, width), none below zero
        whose = mask.nonzero()[:, 0]  # the decision that each of them belongs to
        nothing = torch.zeros(len(mask), jobs.shape[1])
        mean = nothing.index_add(0, whose, jobs) / mask.sum(-1, keepdim=True).clamp(min=1)
        peak = nothing.scatter_reduce(0, whose.unsqueeze(-1).expand_as(jobs), jobs, "amax")
        pooled = torch.cat([mean, peak, left.unsqueeze(-1)], dim=-1)
        return self.head(pooled).squeeze(-1)


@dataclass(frozen=True, slots=True)
class Shard:
    """What a worker needs to gather its part of a rollout, wherever it is."""

    loads: Sequence[Records]
    networks: Sequence[NDArray[Any]]  # the parameters of the actor, then of the critic
    rules: Rules
    settings: PpoSettings
    seed: int


@dataclass(frozen=True, slots=True)
class Rollout:
    """Decisions of several sequences, (decision, …), those after a sequence's end left out."""

    seen: Tensor
    mask: Tensor
    left: Tensor  # the part of the sequence that is not yet scheduled
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    target: Tensor
    ratios: NDArray[np.float64]  # (sequence,) slowdown against the reference


@torch.no_grad()
def gather(shard: Shard) -> Rollout:
    """Schedule the sequences of a shard with its actor, and see what each decision was good for."""
    rules, settings, loads = shard.rules, shard.settings, shard.loads
    actor, critic = Actor(np.zeros(WEIGHTS)), Critic()
    for parameter, values in zip([*actor.parameters(), *critic.parameters()], shard.networks, strict=True):
        parameter.copy_(torch.tensor(values))
    weight, bias, out = shard.networks[:3]
    rng = np.random.default_rng(shard.seed)
    envs, length = len(loads), len(loads[0])
    env = Schedules(rules.procs, rules.gpus, rules.backfill == "easy", envs, length, settings.view, rules.bound_s)
    reference = slowdowns([find_policy(settings.reference)], loads, rules)[0]  # (env,)
    env.reset(loads)
    rows: list[tuple[NDArray[Any], ...]] = []
    while not env.over.all():
        seen, mask, left, alive = env.seen.copy(), env.mask, 1.0 - env.clocks["started"] / length, ~env.over
        # A few jobs at a time: numpy is much faster at this than torch, and the critic can look at all later.
        logits = np.maximum(seen.reshape(-1, FEATURES) @ weight + bias, 0.0) @ out
        logits = np.where(mask, logits.reshape(mask.shape), np.float32(NEVER))
        action = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)  # a draw from their softmax
        env.step(action)
        rows.append((seen, mask, left, action, logits, alive, env.reward / reference))
    seen, mask, left, action, logits, alive, reward = (  # (decision, env, …)
        torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)
    )
    value = torch.zeros(alive.shape)
    value[alive] = critic(seen[alive], mask[alive], left[alive].float())
    log_prob = torch.log_softmax(logits[alive], -1).gather(-1, action[alive].unsqueeze(-1)).squeeze(-1)
    advantage = torch.zeros_like(value)
    following, ahead = torch.zeros(envs), torch.zeros(envs)
    for t in reversed(range(len(reward))):
        surprise = reward[t].float() + following - value[t]
        ahead = torch.where(alive[t], surprise + settings.smoothing * ahead, torch.zeros(()))
        advantage[t] = ahead
        following = torch.where(alive[t], value[t], torch.zeros(()))
    return Rollout(
        seen[alive], mask[alive], left[alive].float(), action[alive], log_prob, advantage[alive],
        (advantage + value)[alive], env.slowdown() / reference,
    )  # fmt: skip


def joined(parts: Sequence[Rollout]) -> Rollout:
    """The shards of one rollout, in order."""
    columns = ("seen", "mask", "left", "action", "log_prob", "advantage", "target")
    tensors = {column: torch.cat([getattr(part, column) for part in parts]) for column in columns}
    return Rollout(**tensors, ratios=np.concatenate([part.ratios for part in parts]))


class Ppo:
    """A learner: `iterate` rolls out, learns, and says how it went."""

    def __init__(
        self,
        pool: Pool,
        rules: Rules,
        settings: PpoSettings,
        weights: NDArray[np.float64],
        seed: int,
        engine: Engine = "here",
    ) -> None:
        """Train from these weights of the actor; the critic knows nothing yet."""
        torch.set_num_threads(1)  # sums over several threads end in another last bit, and soon in another policy
        torch.manual_seed(seed)
        self.pool, self.rules, self.settings, self.engine = pool, rules, settings, engine
        self.actor, self.critic = Actor(weights), Critic()
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimiser = torch.optim.Adam(self.parameters, lr=settings.rate)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that a resumed run needs: both networks and the optimiser's moments."""
        named = {f"net.{i}": p.detach().numpy() for i, p in enumerate(self.parameters)}
        for i, p in enumerate(self.parameters):
            for name, value in self.optimiser.state[p].items():
                named[f"adam.{i}.{name}"] = value.detach().numpy().reshape(value.shape or (1,))
        return named

    def load_arrays(self, named: dict[str, NDArray[Any]]) -> None:
        with torch.no_grad():
            for i, p in enumerate(self.parameters):
                p.copy_(torch.from_numpy(named[f"net.{i}"]))
        state = {
            i: {
                "step": torch.tensor(float(named[f"adam.{i}.step"][0])),
                "exp_avg": torch.from_numpy(named[f"adam.{i}.exp_avg"]),
                "exp_avg_sq": torch.from_numpy(named[f"adam.{i}.exp_avg_sq"]),
            }
            for i in range(len(self.parameters))
        }
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})

    def iterate(self, rng: np.random.Generator) -> float:
        """One rollout and what is learned from it; gives the mean slowdown against the reference, below 1 is better."""
        rollout = self.roll_out(rng)
        torch.manual_seed(int(rng.integers(2**62)))
        self.learn(rollout)
        return float(np.exp(np.log(rollout.ratios).mean()))

    def roll_out(self, rng: np.random.Generator) -> Rollout:
        settings = self.settings
        loads = [self.pool.draw(rng) for _ in range(settings.envs)]
        networks = [parameter.detach().numpy() for parameter in self.parameters]
        shards = [
            Shard(loads[i :: settings.shards], networks, self.rules, settings, int(rng.integers(2**62)))
            for i in range(min(settings.shards, settings.envs))
        ]
        return joined(each(gather, shards, self.engine, workers=1))

    def learn(self, rollout: Rollout) -> None:
        settings = self.settings
        advantage = (rollout.advantage - rollout.advantage.mean()) / (rollout.advantage.std() + 1e-8)
        for _ in range(settings.epochs):
            for some in torch.randperm(len(rollout.action)).split(settings.batch):
                choice = torch.distributions.Categorical(
                    logits=self.actor(rollout.seen[some], rollout.mask[some]), validate_args=False
                )
                change = (choice.log_prob(rollout.action[some]) - rollout.log_prob[some]).exp()
                kept = change.clamp(1 - settings.clip, 1 + settings.clip)
                gain = torch.minimum(change * advantage[some], kept * advantage[some]).mean()
                value = self.critic(rollout.seen[some], rollout.mask[some], rollout.left[some])
                miss = nn.functional.smooth_l1_loss(value, rollout.target[some])
                loss = miss - gain - settings.entropy * choice.entropy().mean()
                self.optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, 0.5)
                self.optimiser.step()
