"""CPU time from exposition text to rates: our parser and prometheus_client's on the same pages, in one run.

    python benchmarks/parser.py [--threads 128] [--json]

The best of several rounds, so that other load counts little. "to rates" is the whole live path of a scrape: text ->
values -> counters -> ratios of every thread. prometheus_client has no rates, so only its parsing is measured.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from clustertwin.telemetry.ingest.counters import MODES
from clustertwin.telemetry.ingest.exposition_parser import parse
from clustertwin.telemetry.ingest.incremental_parser import IncrementalParser
from clustertwin.telemetry.ingest.metrics_page import PageReader
from clustertwin.telemetry.ingest.rates import RateStream

PAGES = 40


def pages(threads: int, style: str) -> list[bytes]:
    """Scrapes one second apart, with busy and idle threads, written as our exporter or as node_exporter writes."""
    rng = np.random.default_rng(0)
    ticks = rng.integers(10**4, 10**8, size=(threads, len(MODES)))
    name, number = {"twin": ("twin_cpu_seconds_total", "{}e-2"), "node": ("node_cpu_seconds_total", "{}")}[style]
    texts = []
    for _ in range(PAGES):
        ticks = ticks + rng.multinomial(100, [0.3, 0, 0.1, 0.5, 0.05, 0, 0.05, 0], size=threads)
        lines = [f"# HELP {name} Seconds each thread spent in each mode.\n# TYPE {name} counter\n"]
        for cpu in range(threads):
            for mode, tick in zip(MODES, ticks[cpu], strict=True):
                shown = number.format(tick if style == "twin" else tick / 100)
                lines.append(f'{name}{{cpu="{cpu}",mode="{mode}"}} {shown}\n')
        texts.append("".join(lines).encode())
    return texts


def best_us(work: Callable[[bytes], object], texts: list[bytes], rounds: int) -> float:
    """CPU microseconds a page, in the best round."""
    for text in texts[:2]:
        work(text)  # compile, and build the template
    spent = []
    for _ in range(rounds):
        begun = time.process_time()
        for text in texts:
            work(text)
        spent.append((time.process_time() - begun) / len(texts))
    return min(spent) * 1e6


def to_rates() -> Callable[[bytes], object]:
    source, stream, second = PageReader("n1"), RateStream(), iter(range(10**9))

    def work(text: bytes) -> object:
        return stream.push(source.read(text, float(next(second))))

    return work


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=128)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    rows = []
    for style in ("twin", "node"):
        texts = pages(chosen.threads, style)
        peer = best_us(lambda t: list(text_string_to_metric_families(t.decode())), texts[:5], 5)
        rows += [
            (style, "prometheus_client, parse", peer, 1.0),
            *(
                (style, label, us, peer / us)
                for label, us in (
                    ("ours, parse", best_us(parse, texts[:10], 5)),
                    ("ours, the same target again", best_us(IncrementalParser().read, texts, 50)),
                    ("ours, to rates", best_us(to_rates(), texts, 50)),
                )
            ),
        ]
    if chosen.json:
        print(json.dumps([dict(zip(("page", "what", "us", "times_faster"), row, strict=True)) for row in rows]))
        return
    print(f"{chosen.threads} threads, {chosen.threads * len(MODES)} series a page; CPU time a page")
    for style, label, us, ratio in rows:
        print(f"{style:5}  {label:28} {us:10.1f} µs {ratio:8.1f} ×")


if __name__ == "__main__":
    main()
