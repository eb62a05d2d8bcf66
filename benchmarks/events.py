"""Events on simulated campaigns that nothing was learnt from: recall and delay by anomaly, false events per node-day.

python benchmarks/events.py [--campaigns 4] [--normal 6] [--hours 4] [--seed 9000] [--detector DIR] [--stride-s 10]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clustertwin.telemetry.campaign.simulation.anomalies import possible
from clustertwin.telemetry.campaign.simulation.cluster import simulate
from clustertwin.telemetry.campaign.simulation.demand import ClusterSettings
from clustertwin.telemetry.campaign.simulation.signature import read_signatures
from clustertwin.telemetry.detection.event_study import Result, judge, merged, score_all, track


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=4, help="with anomalies")
    parser.add_argument("--normal", type=int, default=6, help="without")
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=9000)
    parser.add_argument("--stride-s", type=int, default=10)
    parser.add_argument("--detector", type=Path, default=None, help="a directory; else the one that ships")
    options = parser.parse_args()

    import torch

    from clustertwin.telemetry.detection.bundled import bundled
    from clustertwin.telemetry.detection.detector import read

    torch.set_num_threads(1)
    detector = read(options.detector) if options.detector else bundled()
    signatures = read_signatures()

    def campaign(number: int, anomalies: tuple[str, ...]) -> Result:
        settings = ClusterSettings(hours=options.hours, anomalies=anomalies)
        traces = simulate(settings, signatures, options.seed + number)
        scored = list(score_all(detector, traces, options.stride_s))
        result = judge(track(scored, detector.threshold), traces)
        found = f"{sum(row.found for row in result.found)} of {sum(row.there for row in result.found)}"
        print(f"campaign {number}: {found} found, {result.false_events} false", file=sys.stderr)
        return result

    ill = merged([campaign(i, possible(signatures)) for i in range(options.campaigns)])
    well = merged([campaign(1000 + i, ()) for i in range(options.normal)])
    print(f"detector {detector.version}, stride {options.stride_s} s, threshold {detector.threshold:.2f}\n")
    print(f"{'anomaly':<18}{'there':>6}{'found':>6}{'recall':>8}{'median delay':>14}")
    for row in ill.found:
        print(f"{row.anomaly:<18}{row.there:>6}{row.found:>6}{row.recall:>8.2f}{row.delay_s:>12.0f} s")
    total, found = sum(row.there for row in ill.found), sum(row.found for row in ill.found)
    print(f"{'all':<18}{total:>6}{found:>6}{found / max(total, 1):>8.2f}\n")
    print(f"false events on healthy campaigns: {well.false_events} in {well.node_days:.2f} node-days")
    print(f"  = {well.false_per_node_day:.2f} per node-day; among anomalies: {ill.false_per_node_day:.2f}")


if __name__ == "__main__":
    main()
