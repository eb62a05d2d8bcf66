"""Measure how many threads one core can score each second: ours, eager torch and onnxruntime in one run.

    python benchmarks/scoring.py [--threads 160 1600 16000 160000] [--seconds 8] [--json]

Every second the counters of each node, already parsed, become ratios and go into the buffer. Then the bundled model
computes the embedding and the error of every thread over the last 100 s. Times are CPU times of this process on one
core, the best of a few rounds. "holds" is the number of threads that one core can score each second. The other
libraries get the same windows and are charged the same ingest; they are measured on a sample of the threads. "peak" is
the speed of one large matrix product, by the faster of two libraries, in the same run: on a busy host all figures fall
with it.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import torch
from threadpoolctl import threadpool_limits

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Trace
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.ingest.counters import NodeReading
from clustertwin.telemetry.ingest.rates import RateStream
from clustertwin.telemetry.models.architectures.graph_layer import GraphUpdate
from clustertwin.telemetry.models.contract import Batch, reconstruction_error
from clustertwin.telemetry.models.fused.fused_linear import FusedLinear
from clustertwin.telemetry.models.fused.graph_attention import attention_weights
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer

NODE_THREADS = 160  # of one node
SAMPLE = 8192  # threads that the other libraries are measured on
START_S = 1_000_000


class Cluster:
    """Nodes whose counters advance by a second, busy in all modes."""

    def __init__(self, threads: int) -> None:
        self.rng = np.random.default_rng(0)
        self.names = [f"n{i:05d}" for i in range(max(threads // NODE_THREADS, 1))]
        self.cpus = tuple(range(threads // len(self.names)))
        steps = self.rng.multinomial(100, [0.5, 0, 0.1, 0.3, 0.05, 0, 0.05, 0], (64, len(self.cpus))) / 100.0
        self._steps, self._seconds, self._second = steps, np.zeros((len(self.cpus), 8)), START_S

    def __len__(self) -> int:
        return len(self.names) * len(self.cpus)

    def past(self, node: str, seconds: int) -> Trace:
        values = self.rng.dirichlet(np.full(4, 0.5), (len(self.cpus), seconds)).astype(np.float32)
        return Trace(node, self.cpus, START_S - seconds, CPU, values, np.ones(values.shape[:2], np.bool_))

    def readings(self) -> list[NodeReading]:
        """All nodes share one table, because making the counters must not take measurable time."""
        self._seconds = self._seconds + self._steps[self._second % 64]
        self._second += 1
        return [NodeReading(name, self._second - 1.0, self.cpus, self._seconds) for name in self.names]


def cpu_s(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def best_s(work: Callable[[], object], rounds: int) -> float:
    work()
    return min(cpu_s(work) for _ in range(rounds))


def peak_gflops() -> float:
    square = torch.rand(1024, 1024)
    ways = (lambda: square @ square, lambda: square.numpy() @ square.numpy())
    return 2 * 1024**3 / min(best_s(way, 8) for way in ways) / 1e9


def flop(fused: FusedLinear) -> int:
    """Floating-point operations per window: two for each weight."""
    matrices = (fused.encoder, fused.encoder_correction, fused.decoder_hidden, fused.ratio, fused.correction)
    return 2 * sum(matrix.numel() for matrix in matrices)


def ours(threads: int, fused: FusedLinear, seconds: int) -> dict[str, float]:
    cluster, buffer = Cluster(threads), TraceBuffer(CPU, length_s=100)
    for name in cluster.names:
        buffer.push(cluster.past(name, 100))
    streams = [RateStream() for _ in cluster.names]
    ingest, score = [], []
    for second in range(seconds + 2):
        readings = cluster.readings()

        def take(readings: list[NodeReading] = readings) -> None:
            for stream, reading in zip(streams, readings, strict=True):
                trace = stream.push(reading)
                if trace is not None:
                    buffer.push(trace)

        ingest.append(cpu_s(take))
        end_s = START_S + second
        score.append(cpu_s(lambda end_s=end_s: fused(*buffer.moment(end_s).windows(100))))
    in_s, out_s = min(ingest[2:]), min(score[2:])
    return {
        "threads": len(cluster),
        "ingest_s": in_s,
        "score_s": out_s,
        "holds": len(cluster) / (in_s + out_s),
        "gflops": flop(fused) * len(cluster) / out_s / 1e9,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


class EmbeddingAndError(torch.nn.Module):
    """Windows -> embedding and error, in the form that onnxruntime needs."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, there: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch = Batch(x, there, torch.arange(1))
        z, reconstruction = self.model(batch)
        return z, reconstruction_error(batch, reconstruction)


def other_libraries(model: Any, fused: FusedLinear, rounds: int) -> dict[str, float]:
    """Seconds per thread for each other way to run the model on the same windows."""
    rng = np.random.default_rng(2)
    values = rng.dirichlet(np.full(4, 0.5), (SAMPLE, 100)).astype(np.float32)
    valid = np.ones((SAMPLE, 100), np.bool_)
    batch = Batch(torch.from_numpy(values), torch.from_numpy(valid), torch.arange(SAMPLE))

    @torch.no_grad()
    def eager(batch: Batch = batch) -> tuple[np.ndarray, np.ndarray]:
        z, reconstruction = model(batch)
        return z.numpy(), reconstruction_error(batch, reconstruction).numpy()

    file = io.BytesIO()
    small = torch.from_numpy(values[:2]), torch.ones(2, 100)
    axes = {name: {0: "n"} for name in ("x", "there", "z", "error")}
    torch.onnx.export(
        EmbeddingAndError(model),
        small,
        file,
        input_names=["x", "there"],
        output_names=["z", "error"],
        dynamic_axes=axes,
        dynamo=False,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = {"x": values, "there": valid.astype(np.float32)}

    def in_small_batches(size: int = 256) -> None:
        for start in range(0, SAMPLE, size):
            rows = slice(start, start + size)
            eager(Batch(batch.x[rows], batch.valid[rows], batch.group[rows]))

    wanted = eager()
    for got in (fused(values, valid), session.run(None, feed)):
        for result, reference in zip(got, wanted, strict=True):
            assert np.abs(result - reference).max() < 1e-4, "two libraries give different numbers"
    off = max(float(np.abs(a - b).max()) for a, b in zip(fused(values, valid), wanted, strict=True))
    return {
        "eager torch": best_s(eager, rounds) / SAMPLE,
        "eager torch, batches of 256": best_s(in_small_batches, rounds) / SAMPLE,
        "onnxruntime": best_s(lambda: session.run(None, feed), rounds) / SAMPLE,
        "off": off,
    }


def graph(rounds: int = 100) -> dict[str, float]:
    """Microseconds for the graph weights of a node of 256 threads, and their difference from the torch layer."""
    torch.manual_seed(0)
    update, z = GraphUpdate(16, 32), torch.randn(256, 16)

    @torch.no_grad()
    def naive() -> np.ndarray:
        pair = torch.tanh(update.receive(z)[:, None] + update.send(z)[None])
        return torch.softmax(update.weigh(pair)[..., 0], -1).numpy()

    array = z.numpy()
    return {
        "ours_us": best_s(lambda: attention_weights(update, array), rounds) * 1e6,
        "torch_us": best_s(naive, 20) * 1e6,
        "off": float(np.abs(attention_weights(update, array) - naive()).max()),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, nargs="+", default=[160, 1600, 16_000, 160_000])
    options.add_argument("--seconds", type=int, default=8)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    stored = bundled().stored
    model, fused = stored.model, stored.model.fused()
    assert fused is not None
    ours(160, fused, 2)  # compile
    peak = peak_gflops()
    rows = [ours(threads, fused, chosen.seconds) for threads in chosen.threads]
    others, pairs = other_libraries(model, fused, 4), graph()
    off = others.pop("off")
    if chosen.json:
        print(json.dumps({"peak_gflops": peak, "ours": rows, "peers_s": others, "off": off, "graph": pairs}))
        return
    print(
        f"{stored.name}: {flop(fused):,} FLOP per window; peak of a matrix product {peak:.0f} GFLOP/s",
        end="",
    )
    print(f"; largest difference {off:.1e}")
    print(f"{'threads':>8} {'ingest':>9} {'score':>9} {'holds':>9} {'GFLOP/s':>8} {'of peak':>8} {'memory':>9}")
    for row in rows:
        print(
            f"{row['threads']:8,.0f} {row['ingest_s']:7.4f} s {row['score_s']:7.4f} s {row['holds']:9,.0f} "
            f"{row['gflops']:8.1f} {row['gflops'] / peak:8.0%} {row['rss_mb']:6,.0f} MB"
        )
    last = rows[-1]
    for name, a_thread_s in others.items():
        holds = 1 / (a_thread_s + last["ingest_s"] / last["threads"])
        print(f"{name:28} holds {holds:9,.0f}   ours {last['holds'] / holds:.1f} ×")
    print(f"graph weights of 256 threads: {pairs['ours_us']:,.0f} µs, torch {pairs['torch_us']:,.0f} µs", end="")
    print(f", largest difference {pairs['off']:.1e}")


if __name__ == "__main__":
    main()
