"""Time to quality: CPU seconds of one core until each architecture's validation error falls below a mark.

    python benchmarks/training.py
    python benchmarks/training.py --models linear --hours 1

A simulated cluster of 5 × 32 threads; about 28,000 training windows in five hours. The clock runs while a model is
prepared and trained, not while it is validated; torch's own modules are loaded before it starts. PCA of as many
numbers stands beside each model: the error that needs no training.
"""

from __future__ import annotations

import argparse
import time

import torch
from rich.console import Console
from rich.table import Table

from clustertwin.telemetry.models import find, training
from clustertwin.telemetry.models.batches import group
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.studies.reference.embedding_quality import Pca
from clustertwin.telemetry.studies.reference.study_data import simulated

#: validation error to reach, and the CPU seconds it may take: (default model, stacked convolutions)
MARKS = {0.0064: {"linear": 1.0, "ae": 10.0}, 0.002: {"linear": 3.0}}
EVERY = 40  # steps between two looks at the validation error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="linear,patch,vae,ae,node-gnn-ae,job-gnn-ae")
    parser.add_argument("--hours", type=float, default=5.4)
    parser.add_argument("--limit", type=float, default=40.0, help="CPU seconds after which a model is stopped.")
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # its first use imports a second's worth of modules
    data = simulated(hours=options.hours, test_hours=0.5)
    train, validation = data.normal("train"), data.normal("validation")
    columns = ("model", "numbers", *(f"CPU s to {mark:g}" for mark in MARKS), "after, CPU s", "error", "PCA's error")
    shown = Table(*columns, title=f"{len(train)} training windows, {len(validation)} for validation; one core")
    for name in options.models.split(","):
        model, reached, spent_s, error = run(name, train, validation, options.epochs, options.limit)
        pca = float(Pca(train, model.config.latent).embed(validation)[1].mean())
        marks = [
            (f"{reached[mark]:.2f}" if mark in reached else "–") + (f" (at most {may[name]:g})" if name in may else "")
            for mark, may in MARKS.items()
        ]
        shown.add_row(name, str(model.config.latent), *marks, f"{spent_s:.1f}", f"{error:.5f}", f"{pca:.5f}")
    Console().print(shown)


def run(name, train, validation, epochs, limit_s):
    """The loop of `training.fit`, stopped to look every few steps."""
    torch.manual_seed(0)
    config, network = find(name)
    settings = training.Settings(model=name, epochs=epochs)
    shape = Shape(train.schema, train.values.shape[1])
    model = network(config(shape=shape))
    data, held_out = group(train, model.graph, shape), group(validation, model.graph, shape)
    reached: dict[float, float] = {}
    spent_s = 0.0

    def look() -> float:
        error = float(training.evaluate(model, held_out)[1].mean())
        model.train()
        for mark in MARKS:
            if error <= mark:
                reached.setdefault(mark, spent_s)
        return error

    began_s = time.process_time()
    model.prepare(data.x)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.rate, weight_decay=settings.decay, fused=True)
    spent_s += time.process_time() - began_s
    error = look()
    for epoch in range(epochs):
        began_s, seen = time.process_time(), 0
        for step, batch in enumerate(data.batches(settings.batch, torch.Generator().manual_seed(epoch))):
            for parameters in optimiser.param_groups:
                parameters["lr"] = settings.rate * training.one_cycle((epoch + seen / len(data)) / epochs)
            loss, _ = model.loss(batch)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            seen += len(batch.x)
            if step % EVERY == EVERY - 1:
                spent_s += time.process_time() - began_s
                error = look()
                began_s = time.process_time()
        spent_s += time.process_time() - began_s
        error = look()
        if spent_s > limit_s:
            break
    return model, reached, spent_s, error


if __name__ == "__main__":
    main()
