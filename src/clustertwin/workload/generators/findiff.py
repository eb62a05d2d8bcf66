"""A diffusion model of mixed-type rows, after FinDiff (Sattarov et al., 2023): rows -> noise -> rows, in torch.

A job is one vector: codes become fixed random embeddings, amounts become normal scores. A schedule adds Gaussian noise,
and a network with an embedding of the step learns to predict the noise. Sampling removes it step by step; the closest
embedding then gives the code. The interval is a column like any other. The code is our own; sizes, rates and the
schedule are those of the authors' own program. Its 3,000 epochs take hours on one processor, so the training gets a
budget of processor time: as many epochs as fit, with the learning rate falling to zero at their end.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.workload.generators.contract import Fitted, GeneratorState, LossCurve, check_log
from clustertwin.workload.generators.job_rows import RowDecoder, ranks, rows
from clustertwin.workload.generators.workload_change import ModelledLog
from clustertwin.workload.jobs import Jobs

Floats = NDArray[np.float64]

BLOCK_JOBS = 20_000
CACHED_JOBS = 1024  # denoised together: the activations of more do not fit into a processor's cache
FEW = 256  # a column with fewer distinct values is treated as a code
#: What models saved before these settings existed were made with.
BEFORE_REFERENCE_SIZE = {"layers": 3, "schedule": "cosine", "activation": "SiLU"}


@dataclass(frozen=True, slots=True)
class FinDiff:
    steps: int = 500  # diffusion steps
    epochs: int = 3000
    batch: int = 512
    width: int = 1024  # of each hidden layer
    code_dim: int = 2  # of a code's embedding
    step_dim: int = 64  # of the step's embedding
    rate: float = 1e-4  # learning rate
    layers: int = 4  # hidden layers
    schedule: str = "linear"  # of the noise, or "cosine"
    activation: str = "LeakyReLU"  # a class of torch.nn
    budget_minutes: float = 45.0  # processor time of the training; math.inf trains all epochs

    def fit(self, jobs: Jobs, rng: np.random.Generator) -> FittedFinDiff:
        check_log(jobs)
        torch, normal = require("torch", "models"), require("scipy.special", "models")
        columns = rows(jobs)
        values = {name: np.unique(column) for name, column in columns.items()}
        codes = tuple(name for name in columns if name in ("user", "status") or len(values[name]) < FEW)
        amounts = tuple(name for name in columns if name not in codes)
        torch.manual_seed(int(rng.integers(2**31)))
        network = _network(self, tuple(len(values[name]) for name in codes), len(amounts))
        code = torch.as_tensor(
            np.stack([np.searchsorted(values[name], columns[name]) for name in codes], axis=1)
            if codes else np.empty((len(jobs), 0), dtype=np.int64)
        )  # (job, code column)  # fmt: skip
        ordered = {name: np.sort(columns[name]) for name in amounts}
        score = torch.as_tensor(
            np.stack([normal.ndtri(ranks(columns[name], rng)) for name in amounts], axis=1)
            if amounts else np.empty((len(jobs), 0)), dtype=torch.float32,
        )  # (job, amount)  # fmt: skip
        alpha_bar = remaining_signal(self.schedule, self.steps)
        signal = torch.as_tensor(np.sqrt(alpha_bar), dtype=torch.float32)
        noise = torch.as_tensor(np.sqrt(1 - alpha_bar), dtype=torch.float32)
        optimiser = torch.optim.Adam(network.parameters(), lr=self.rate)
        epochs, began_s = self.epochs, process_time()
        epoch = 0
        curve: list[tuple[float, float]] = []
        while epoch < epochs:
            for group in optimiser.param_groups:
                group["lr"] = self.rate * (1 + math.cos(math.pi * epoch / epochs)) / 2
            total = 0.0
            for batch in torch.randperm(len(jobs)).split(self.batch):
                with torch.no_grad():
                    # Embeddings are not trained: trained ones collapse, because close codes are easy to denoise.
                    x = torch.cat([network.embed(code[batch]), score[batch]], dim=1)  # (batch, vector)
                step = torch.randint(self.steps, (len(batch),))
                epsilon = torch.randn_like(x)
                loss = ((network(signal[step, None] * x + noise[step, None] * epsilon, step) - epsilon) ** 2).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += loss.item() * len(batch)
            epoch += 1
            if epoch == 1:  # its time shows how many epochs the budget allows
                epochs = min(epochs, epochs_in_budget(self.budget_minutes, process_time() - began_s))
            curve.append((float(epoch), total / len(jobs)))
        weights = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
        return FittedFinDiff(
            self, weights, {name: values[name] for name in codes}, ordered, RowDecoder.of(jobs), tuple(curve)
        )


@dataclass(frozen=True, slots=True)
class FittedFinDiff(Fitted):
    settings: FinDiff
    weights: dict[str, NDArray[Any]]
    codes: dict[str, Floats]  # column -> the value of each code
    ordered: dict[str, Floats]  # column -> its real values, sorted
    decoder: RowDecoder
    curve: LossCurve = ()

    def stream(self, n: int, rng: np.random.Generator) -> Iterator[Jobs]:
        torch = require("torch", "models")
        network = _network(self.settings, tuple(len(values) for values in self.codes.values()), len(self.ordered))
        network.load_state_dict({name: torch.as_tensor(array) for name, array in self.weights.items()})

        def draw(count: int) -> dict[str, Floats]:
            source = torch.Generator().manual_seed(int(rng.integers(2**31)))
            sizes = [min(CACHED_JOBS, count - begin) for begin in range(0, count, CACHED_JOBS)]
            return self._columns(network, torch.cat([_denoise(network, self.settings, n, source) for n in sizes]))

        return self.decoder.stream(n, BLOCK_JOBS, draw)

    def _columns(self, network: Any, x: Any) -> dict[str, Floats]:
        """(job, vector) -> columns: the code of the closest embedding, the amount at the quantile of the score."""
        normal = require("scipy.special", "models")
        chosen = network.closest(x).numpy()
        columns = {name: values[chosen[:, i]] for i, (name, values) in enumerate(self.codes.items())}
        scores = x[:, x.shape[1] - len(self.ordered) :].numpy().astype(np.float64)
        for i, (name, values) in enumerate(self.ordered.items()):
            at = (np.arange(len(values)) + 0.5) / len(values)
            columns[name] = np.interp(normal.ndtr(scores[:, i]), at, values)
        return columns

    def modelled_log(self) -> ModelledLog:
        return self.decoder.modelled_log(self.codes.get("user", ()))

    def losses(self) -> LossCurve:
        return self.curve

    def state(self) -> GeneratorState:
        parts = (("weight", self.weights), ("code", self.codes), ("ordered", self.ordered))
        arrays = {f"{part}.{name}": array for part, entries in parts for name, array in entries.items()}
        order = {"codes": list(self.codes), "amounts": list(self.ordered)}
        return GeneratorState({"settings": asdict(self.settings), "frame": asdict(self.decoder), **order}, arrays)

    @classmethod
    def from_state(cls, state: GeneratorState) -> FittedFinDiff:
        arrays = state.arrays
        weights = {name.removeprefix("weight."): a for name, a in arrays.items() if name.startswith("weight.")}
        codes = {name: arrays[f"code.{name}"] for name in state.facts["codes"]}
        ordered = {name: arrays[f"ordered.{name}"] for name in state.facts["amounts"]}
        decoder = RowDecoder.from_facts(state.facts["frame"])
        return cls(FinDiff(**BEFORE_REFERENCE_SIZE | state.facts["settings"]), weights, codes, ordered, decoder)


def _network(settings: FinDiff, levels: tuple[int, ...], amounts: int) -> Any:
    """The denoiser. It is built in a function, so that importing this file does not import torch."""
    torch = require("torch", "models")
    nn = torch.nn
    module: Any = nn.Module

    class Denoiser(module):
        def __init__(self) -> None:
            super().__init__()
            size = settings.code_dim * len(levels) + amounts
            self.tables = nn.ModuleList(nn.Embedding(count, settings.code_dim) for count in levels)
            activation = getattr(nn, settings.activation)
            self.step = nn.Sequential(nn.Linear(settings.step_dim, settings.width), activation())
            self.enter = nn.Linear(size, settings.width)
            widths = [settings.width] * settings.layers + [size]
            self.body = nn.Sequential(*(part for pair in pairwise(widths) for part in (activation(), nn.Linear(*pair))))

        def embed(self, code: Any) -> Any:
            """(batch, column) codes -> (batch, column * code_dim)"""
            parts = [table(code[:, i]) for i, table in enumerate(self.tables)]
            return torch.cat(parts, dim=1) if parts else torch.empty(len(code), 0)

        def closest(self, x: Any) -> Any:
            """(batch, vector) -> (batch, column) codes"""
            pieces = x[:, : settings.code_dim * len(levels)].split(settings.code_dim, dim=1) if levels else ()
            chosen = [
                torch.cdist(piece, table.weight.detach()).argmin(dim=1)
                for piece, table in zip(pieces, self.tables, strict=True)
            ]
            return torch.stack(chosen, dim=1) if chosen else torch.empty(len(x), 0, dtype=torch.long)

        def forward(self, x: Any, step: Any) -> Any:
            half = settings.step_dim // 2
            wave = step[:, None] * torch.exp(-torch.arange(half) * (np.log(10_000) / half))  # (batch, half)
            at = self.step(torch.cat([wave.sin(), wave.cos()], dim=1))
            return self.body(self.enter(x) + at)

    return Denoiser()


def remaining_signal(schedule: str, steps: int) -> Floats:
    """(step,) alpha-bar, the remaining share of the signal: linear (Ho et al., 2020) or cosine (Nichol, 2021)."""
    if schedule == "linear":
        return np.asarray(np.cumprod(1 - np.linspace(1e-4, 0.02, steps)), dtype=np.float64)
    at = (np.arange(1, steps + 1) / steps + 0.008) / 1.008
    return np.clip(np.cos(at * np.pi / 2) ** 2 / np.cos(0.008 / 1.008 * np.pi / 2) ** 2, 1e-5, 1 - 1e-5)


def epochs_in_budget(budget_minutes: float, epoch_s: float) -> int:
    """How many epochs of a measured length fit into a budget of processor time, at least one.

    >>> epochs_in_budget(2, epoch_s=30)
    4
    """
    return sys.maxsize if math.isinf(budget_minutes) else max(1, int(budget_minutes * 60 / max(epoch_s, 1e-6)))


def _denoise(network: Any, settings: FinDiff, n: int, source: Any) -> Any:
    """Noise -> (n, vector), step by step (DDPM)."""
    torch = require("torch", "models")
    steps = settings.steps
    alpha_bar = remaining_signal(settings.schedule, steps)
    size = network.enter.in_features
    with torch.no_grad():
        x = torch.randn(n, size, generator=source)
        for step in range(steps - 1, -1, -1):
            now, before = alpha_bar[step], alpha_bar[step - 1] if step else 1.0
            alpha = max(now / before, 1e-3)
            epsilon = network(x, torch.full((n,), step))
            clean = ((x - np.sqrt(1 - now) * epsilon) / np.sqrt(now)).clamp(-6, 6)
            mean = np.sqrt(before) * (1 - alpha) / (1 - now) * clean + np.sqrt(alpha) * (1 - before) / (1 - now) * x
            sigma = np.sqrt((1 - before) / (1 - now) * (1 - alpha)) if step else 0.0
            x = mean + sigma * torch.randn(n, size, generator=source)
    return x
