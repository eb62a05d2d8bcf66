"""How often the 80 % interval of a promise holds, by how many jobs have timed out before (simulated).

    python benchmarks/promises.py

A job that is left alone runs to its limit, to Slurm's next check of limits (every 30 s, at a random phase), and until
its processes have ended (a second in the mean). Times are whole seconds, as in sacct. The rival takes the quantiles of
the overruns that were seen.
"""

from __future__ import annotations

import random

from clustertwin.service.act.savings import CHECK_S, future_overruns

TRIALS = 4000


def main() -> None:
    print(
        f"{'jobs seen':>9} {'held':>6} {'width':>6}   {'quantiles of those seen: held':>30} {'width':>6}   (simulated)"
    )
    for count in (1, 3, 10, 30, 100):
        rng = random.Random(count)
        rows: list[tuple[bool, float, bool, float]] = []
        for _ in range(TRIALS):
            seen = tuple(sorted(overrun(rng) for _ in range(count)))
            real = overrun(rng)
            drawn = future_overruns(seen)
            ours, plain = (drawn[10], drawn[89]), (quantile(seen, 0.1), quantile(seen, 0.9))
            rows.append((inside(real, ours), ours[1] - ours[0], inside(real, plain), plain[1] - plain[0]))
        held, width, plain_held, plain_width = (sum(column) / TRIALS for column in zip(*rows, strict=True))
        print(f"{count:>9} {held:>6.0%} {width:>4.0f} s   {plain_held:>30.0%} {plain_width:>4.0f} s")


def overrun(rng: random.Random) -> float:
    return float(int(rng.uniform(0.0, CHECK_S) + rng.expovariate(1.0)))


def quantile(values: tuple[float, ...], share: float) -> float:
    at = share * (len(values) - 1)
    low, high = values[int(at)], values[min(int(at) + 1, len(values) - 1)]
    return low + (at - int(at)) * (high - low)


def inside(value: float, interval: tuple[float, float]) -> bool:
    return interval[0] <= value <= interval[1]


if __name__ == "__main__":
    main()
