"""Masked PPO (Schulman et al., 2017) in one file: machines with sequences -> weights of the learned policy.

The actor is the kernel network of `policies/learned.py` with the same weights in the same order, so a trained policy
runs in the compiled simulation. Rows without a job are masked. The critic pools over the jobs of an observation.

A rollout is collected in shards, in this process or on Ray. Each shard has its own seed, so the result does not depend
on where it runs.
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
from clustertwin.workload.policies import find_policy
from clustertwin.workload.policies.learned import FEATURES, HIDDEN
from clustertwin.workload.rl.policy_evaluation import mean_slowdowns
from clustertwin.workload.rl.training_sequences import TrainingMachine, draw_in_turn
from clustertwin.workload.simulator.environment.schedule_batch import ScheduleBatch
from clustertwin.workload.simulator.machine_state import Records
from clustertwin.workload.simulator.simulate_log import SchedulingRules


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """Hyperparameters. There is no discount factor: an episode is finite, and every second of waiting counts."""

    num_envs: int = 16  # sequences in a rollout
    num_shards: int = 2  # parts of a rollout that can be collected in parallel; at least one for each machine
    max_jobs: int = 64  # rows of an observation
    update_epochs: int = 4
    minibatch_size: int = 1024
    learning_rate: float = 2e-3
    clip_range: float = 0.2
    gae_lambda: float = 0.97
    entropy_coef: float = 0.003
    max_grad_norm: float = 0.5
    reference: str = "sjf"  # rewards are divided by the slowdown of this policy on the same sequence


MASKED_LOGIT = -1e9
CRITIC_WIDTH = 32


class Actor(nn.Module):
    """(…, K, F) observations -> (…, K) logits: the kernel network, applied to every job."""

    def __init__(self, weights: NDArray[np.float64]) -> None:
        super().__init__()
        rows = torch.tensor(weights, dtype=torch.float32).reshape(FEATURES + 2, HIDDEN)
        self.weight, self.bias, self.output = (nn.Parameter(part.clone()) for part in (rows[:-2], rows[-2], rows[-1]))

    def forward(self, observations: Tensor, masks: Tensor) -> Tensor:
        job_logits = torch.relu(torch.addmm(self.bias, observations[masks], self.weight)) @ self.output  # (jobs,)
        return torch.full(masks.shape, MASKED_LOGIT).masked_scatter(masks, job_logits)

    def vector(self) -> NDArray[np.float64]:
        """The weights in the order that the compiled policy reads."""
        parts = (self.weight.flatten(), self.bias, self.output)
        return torch.cat(parts).detach().numpy().astype(np.float64)


class Critic(nn.Module):
    """(n, K, F) observations -> (n,) values, from the mean and the maximum over the jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(FEATURES, CRITIC_WIDTH), nn.ReLU())
        self.value = nn.Sequential(nn.Linear(2 * CRITIC_WIDTH + 1, CRITIC_WIDTH), nn.ReLU(), nn.Linear(CRITIC_WIDTH, 1))

    def forward(self, observations: Tensor, masks: Tensor, remaining: Tensor) -> Tensor:
        jobs = self.embed(observations[masks])  # (jobs, width), not negative
        step = masks.nonzero()[:, 0]  # (jobs,): the observation that each job belongs to
        zeros = torch.zeros(len(masks), jobs.shape[1])
        mean = zeros.index_add(0, step, jobs) / masks.sum(-1, keepdim=True).clamp(min=1)
        maximum = zeros.scatter_reduce(0, step.unsqueeze(-1).expand_as(jobs), jobs, "amax")
        pooled = torch.cat([mean, maximum, remaining.unsqueeze(-1)], dim=-1)
        return self.value(pooled).squeeze(-1)


@dataclass(frozen=True, slots=True)
class RolloutShard:
    """What a worker needs to collect its part of a rollout."""

    sequences: Sequence[Records]
    parameters: Sequence[NDArray[Any]]  # of the actor, then of the critic
    rules: SchedulingRules
    settings: PpoSettings
    seed: int


@dataclass(frozen=True, slots=True)
class Rollout:
    """The steps of several episodes, (step, …)."""

    observations: Tensor
    masks: Tensor
    remaining: Tensor  # the share of the sequence that has not started
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor
    slowdown_ratios: NDArray[np.float64]  # (episode,): mean slowdown over that of the reference policy


@torch.no_grad()
def collect(shard: RolloutShard) -> Rollout:
    """Run the episodes of a shard and estimate the advantages."""
    rules, settings, sequences = shard.rules, shard.settings, shard.sequences
    weight, bias, output, *critic_parameters = shard.parameters
    critic = Critic()
    for parameter, array in zip(critic.parameters(), critic_parameters, strict=True):
        parameter.copy_(torch.tensor(array))
    rng = np.random.default_rng(shard.seed)
    envs = ScheduleBatch(rules, len(sequences), len(sequences[0]), settings.max_jobs)
    reference = mean_slowdowns([find_policy(settings.reference)], sequences, rules)[0]  # (env,)
    envs.reset(sequences)
    steps: list[tuple[NDArray[Any], ...]] = []
    while not envs.over.all():
        observation, mask, remaining, active = envs.observations.copy(), envs.masks, envs.remaining, ~envs.over
        # numpy is much faster than torch for few jobs; the critic evaluates all steps at once below.
        logits = np.maximum(observation.reshape(-1, FEATURES) @ weight + bias, 0.0) @ output
        logits = np.where(mask, logits.reshape(mask.shape), np.float32(MASKED_LOGIT))
        action = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)  # a sample of their softmax
        envs.step(action)
        steps.append((observation, mask, remaining, action, logits, active, envs.rewards / reference))
    observations, masks, remaining, actions, logits, active, rewards = (  # (step, env, …)
        torch.from_numpy(np.stack(column)) for column in zip(*steps, strict=True)
    )
    values = torch.zeros(active.shape)
    values[active] = critic(observations[active], masks[active], remaining[active].float())
    log_probs = torch.log_softmax(logits[active], -1).gather(-1, actions[active].unsqueeze(-1)).squeeze(-1)
    advantages = generalized_advantages(rewards.float(), values, active, settings.gae_lambda)
    return Rollout(
        observations[active], masks[active], remaining[active].float(), actions[active], log_probs,
        advantages[active], (advantages + values)[active], envs.mean_slowdowns() / reference,
    )  # fmt: skip


def generalized_advantages(rewards: Tensor, values: Tensor, active: Tensor, gae_lambda: float) -> Tensor:
    """Generalised advantage estimates without discount, (step, env). A step that is not active has none."""
    advantages = torch.zeros_like(values)
    zero = torch.zeros(())
    next_value, next_advantage = torch.zeros(values.shape[1]), torch.zeros(values.shape[1])
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + next_value - values[t]
        next_advantage = advantages[t] = torch.where(active[t], delta + gae_lambda * next_advantage, zero)
        next_value = torch.where(active[t], values[t], zero)
    return advantages


def concatenate_rollouts(parts: Sequence[Rollout]) -> Rollout:
    """The shards of one rollout, in order."""
    columns = ("observations", "masks", "remaining", "actions", "log_probs", "advantages", "returns")
    tensors = {column: torch.cat([getattr(part, column) for part in parts]) for column in columns}
    return Rollout(**tensors, slowdown_ratios=np.concatenate([part.slowdown_ratios for part in parts]))


class Ppo:
    """The learner. `iterate` collects a rollout and updates both networks."""

    def __init__(
        self,
        machines: Sequence[TrainingMachine],
        settings: PpoSettings,
        weights: NDArray[np.float64],
        seed: int,
        engine: Engine = "here",
    ) -> None:
        """Train from these weights of the actor; the critic begins with random weights."""
        torch.set_num_threads(1)  # sums over several threads differ in the last bit, and then in the policy
        torch.manual_seed(seed)
        self.machines, self.settings, self.engine = machines, settings, engine
        self.actor, self.critic = Actor(weights), Critic()
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=settings.learning_rate)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a resumed run needs: both networks and the moments of the optimizer."""
        named = {f"net.{i}": p.detach().numpy() for i, p in enumerate(self.parameters)}
        for i, p in enumerate(self.parameters):
            for name, value in self.optimizer.state[p].items():
                named[f"adam.{i}.{name}"] = value.detach().numpy().reshape(value.shape or (1,))
        return named

    def load_arrays(self, named: dict[str, NDArray[Any]]) -> None:
        """Continue from the arrays of another run."""
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
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})

    def iterate(self, rng: np.random.Generator) -> float:
        """One rollout and one update. Returns the mean slowdown relative to the reference policy; below 1 is better."""
        rollout = self.collect_rollout(rng)
        torch.manual_seed(int(rng.integers(2**62)))
        self.update(rollout)
        return float(np.exp(np.log(rollout.slowdown_ratios).mean()))

    def collect_rollout(self, rng: np.random.Generator) -> Rollout:
        settings = self.settings
        drawn = draw_in_turn(self.machines, settings.num_envs, rng)
        parameters = [parameter.detach().numpy() for parameter in self.parameters]
        num_shards = max(1, settings.num_shards // len(drawn))  # of each machine
        shards = [
            RolloutShard(sequences[i::num_shards], parameters, rules, settings, int(rng.integers(2**62)))
            for rules, sequences in drawn
            for i in range(min(num_shards, len(sequences)))
        ]
        return concatenate_rollouts(each(collect, shards, self.engine, workers=1))

    def update(self, rollout: Rollout) -> None:
        """Several epochs of clipped policy updates and value updates on minibatches of a rollout."""
        settings = self.settings
        advantages = (rollout.advantages - rollout.advantages.mean()) / (rollout.advantages.std() + 1e-8)
        for _ in range(settings.update_epochs):
            for minibatch in torch.randperm(len(rollout.actions)).split(settings.minibatch_size):
                logits = self.actor(rollout.observations[minibatch], rollout.masks[minibatch])
                distribution = torch.distributions.Categorical(logits=logits, validate_args=False)
                log_ratio = distribution.log_prob(rollout.actions[minibatch]) - rollout.log_probs[minibatch]
                ratio = log_ratio.exp()
                clipped_ratio = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
                advantage = advantages[minibatch]
                policy_loss = -torch.minimum(ratio * advantage, clipped_ratio * advantage).mean()

                values = self.critic(
                    rollout.observations[minibatch], rollout.masks[minibatch], rollout.remaining[minibatch]
                )
                value_loss = nn.functional.smooth_l1_loss(values, rollout.returns[minibatch])
                entropy = distribution.entropy().mean()
                loss = policy_loss + value_loss - settings.entropy_coef * entropy

                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, settings.max_grad_norm)
                self.optimizer.step()
