"""Time to quality: CPU seconds on one core until each architecture's validation error falls below a target.

    python benchmarks/training.py
    python benchmarks/training.py --models linear --hours 1

The data are a simulated cluster of 5 × 32 threads; five hours give about 28,000 training windows. The clock runs while
a model is prepared and trained, not while it is validated, and it starts after torch's own modules are loaded. The last
column is the error of PCA with the same number of components, which needs no training.
"""

from __future__ import annotations

import argparse
import time

import torch
from rich.console import Console
from rich.table import Table

from clustertwin.telemetry.models import find, training
from clustertwin.telemetry.models.batches import group_windows
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.studies.reference.embedding_quality import Pca
from clustertwin.telemetry.studies.reference.study_data import simulated_data

#: target validation error -> the CPU seconds that an architecture may take to reach it
TARGETS = {0.0064: {"linear": 1.0, "ae": 10.0}, 0.002: {"linear": 3.0}}
VALIDATE_EVERY = 40  # steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="linear,patch,vae,ae,node-gnn-ae,job-gnn-ae")
    parser.add_argument("--hours", type=float, default=5.4, help="Length of the simulated training campaign.")
    parser.add_argument("--limit", type=float, default=40.0, help="CPU seconds after which training stops.")
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # the first use imports modules for about a second
    data = simulated_data(hours=options.hours, test_hours=0.5)
    train, validation = data.normal("train"), data.normal("validation")
    targets = (f"CPU s to {target:g}" for target in TARGETS)
    columns = ("model", "numbers", *targets, "after, CPU s", "error", "PCA's error")
    table = Table(*columns, title=f"{len(train)} training windows, {len(validation)} for validation; one core")
    for name in options.models.split(","):
        model, reached_s, spent_s, error = run(name, train, validation, options.epochs, options.limit)
        pca = float(Pca(train, model.config.latent).embed(validation)[1].mean())
        cells = [
            (f"{reached_s[target]:.2f}" if target in reached_s else "–")
            + (f" (at most {allowed_s[name]:g})" if name in allowed_s else "")
            for target, allowed_s in TARGETS.items()
        ]
        table.add_row(name, str(model.config.latent), *cells, f"{spent_s:.1f}", f"{error:.5f}", f"{pca:.5f}")
    Console().print(table)


def run(name, train, validation, epochs, limit_s):
    """The loop of `training.fit`, interrupted every few steps to compute the validation error."""
    torch.manual_seed(0)
    config, network = find(name)
    settings = training.TrainingSettings(model=name, epochs=epochs)
    shape = Shape(train.schema, train.values.shape[1])
    model = network(config(shape=shape))
    data, held_out = group_windows(train, model.graph, shape), group_windows(validation, model.graph, shape)
    reached_s: dict[float, float] = {}
    spent_s = 0.0

    def validate() -> float:
        error = float(training.infer(model, held_out)[1].mean())
        model.train()
        for target in TARGETS:
            if error <= target:
                reached_s.setdefault(target, spent_s)
        return error

    began_s = time.process_time()
    model.prepare(data.x)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.rate, weight_decay=settings.decay, fused=True)
    spent_s += time.process_time() - began_s
    error = validate()
    for epoch in range(epochs):
        began_s, trained = time.process_time(), 0
        for step, batch in enumerate(data.batches(settings.batch, torch.Generator().manual_seed(epoch))):
            for parameters in optimiser.param_groups:
                parameters["lr"] = settings.rate * training.one_cycle((epoch + trained / len(data)) / epochs)
            loss, _ = model.loss(batch)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            trained += len(batch.x)
            if step % VALIDATE_EVERY == VALIDATE_EVERY - 1:
                spent_s += time.process_time() - began_s
                error = validate()
                began_s = time.process_time()
        spent_s += time.process_time() - began_s
        error = validate()
        if spent_s > limit_s:
            break
    return model, reached_s, spent_s, error


if __name__ == "__main__":
    main()
