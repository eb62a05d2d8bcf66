"""Measure events on campaigns that the detector was not trained on: recall, delay and false events per node-day.

    python benchmarks/events.py [--campaigns 4] [--normal 6] [--hours 4] [--seed 9000] [--detector DIR] [--stride-s 10]
    python benchmarks/events.py RECORDING… [--campaigns 0 --normal 0]

The campaigns are simulated, with the channels that the exporter has. You can add directories of recordings from your
own `twin campaign run --anomalies`. Their jobs can be short, so an anomaly there counts as soon as it fills a window
(100 s); in simulated campaigns, after 300 s.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from clustertwin.core.traces import Trace
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.moments.moment import WINDOW_S
from clustertwin.telemetry.recording import Recording, find
from clustertwin.telemetry.simulation.anomalies import available_anomalies
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.harm_channels import with_harm_channels
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate
from clustertwin.telemetry.studies.event_metrics import AnomalyRecall, EventCounts, count_events, merge_counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="*", help="directories of labelled recordings")
    parser.add_argument("--campaigns", type=int, default=4, help="simulated campaigns with anomalies")
    parser.add_argument("--normal", type=int, default=6, help="simulated campaigns without anomalies")
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=9000)
    parser.add_argument("--stride-s", type=int, default=10)
    parser.add_argument("--detector", type=Path, default=None, help="a directory; by default the bundled detector")
    options = parser.parse_args()

    import torch

    from clustertwin.telemetry.detection.bundled import bundled
    from clustertwin.telemetry.detection.detector_store import read

    torch.set_num_threads(1)
    detector = read(options.detector) if options.detector else bundled()
    signatures = read_signatures()

    def campaign(number: int, anomalies: tuple[str, ...]) -> EventCounts:
        settings = ClusterSettings(hours=options.hours, anomalies=anomalies)
        seed = options.seed + number
        traces = with_harm_channels(simulate(settings, signatures, seed), seed)
        return count(detector, traces, f"campaign {number}", options.stride_s)

    print(f"detector {detector.version}, stride {options.stride_s} s, threshold {detector.threshold:.2f}\n")
    faulty = merge_counts([campaign(i, available_anomalies(signatures)) for i in range(options.campaigns)])
    healthy = merge_counts([campaign(1000 + i, ()) for i in range(options.normal)])
    real = merge_counts(
        [recorded(detector, path, options.stride_s) for root in options.recordings for path in find(root)]
    )
    show({"simulated": faulty, "recorded": real})
    for name, result in (("healthy campaigns", healthy), ("campaigns with anomalies", faulty), ("recordings", real)):
        if result.node_days:
            rate = (
                f"{result.false_events} in {result.node_days:.2f} node-days = {result.false_per_node_day:.2f} per day"
            )
            print(f"false events, {name}: {rate}")


def recorded(detector: Detector, directory: Path, stride_s: int) -> EventCounts:
    recording = Recording.open(directory)
    traces = [recording.trace(node) for node in recording.nodes]
    return count(detector, traces, str(directory), stride_s, shortest_s=WINDOW_S)


def count(
    detector: Detector, traces: Sequence[Trace], name: str, stride_s: int, shortest_s: float = 300
) -> EventCounts:
    """Count the events of one campaign, and print each false one."""
    result = count_events(detector, traces, stride_s, shortest_s)
    print(f"{name}: {result.detected} of {result.total} detected, {result.false_events} false", file=sys.stderr)
    for event in result.false:
        print(f"  {described(event, traces)}", file=sys.stderr)
    return result


def described(event: Event, traces: Sequence[Trace]) -> str:
    types = {span.job: span.job_type for trace in traces for span in trace.spans}
    jobs = ", ".join(f"{job} ({types[job]})" for job in event.jobs) or "threads without a job"
    return f"{' '.join(event.nodes)} {jobs}: {event.view}, score {event.score:.1f}, {event.threads} threads"


def show(columns: dict[str, EventCounts]) -> None:
    """One row per anomaly, with recall and delay for each kind of campaign."""
    shown = {name: {row.anomaly: row for row in result.anomalies} for name, result in columns.items() if result.total}
    print(f"{'anomaly':<18}" + "".join(f"{name:>12}{'recall':>8}{'median delay':>14}" for name in shown))
    for anomaly in sorted({anomaly for rows in shown.values() for anomaly in rows}):
        print(f"{anomaly:<18}" + "".join(_cells(rows.get(anomaly)) for rows in shown.values()))
    totals = (f"{columns[name].detected} of {columns[name].total}" for name in shown)
    print(f"{'all':<18}" + "".join(f"{total:>12}{'':>22}" for total in totals) + "\n")


def _cells(row: AnomalyRecall | None) -> str:
    if row is None:
        return f"{'–':>12}{'':>22}"
    delay = f"{row.delay_s:.0f} s" if row.delays_s else "–"
    return f"{f'{row.detected} of {row.total}':>12}{row.recall:>8.2f}{delay:>14}"


if __name__ == "__main__":
    main()
