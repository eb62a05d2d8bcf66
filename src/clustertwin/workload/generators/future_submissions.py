"""Submissions of the next hours: a log -> a function that draws jobs, from the default generator fitted to the log."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clustertwin.workload import generators
from clustertwin.workload.jobs import Jobs


def future_submissions(
    log: Jobs, load: float, hours: float, rng: np.random.Generator
) -> Callable[[np.random.Generator], Jobs]:
    """`load` scales the rate of the log. Submit times are seconds from now, within the hours."""
    fitted = generators.make().fit(log, rng)
    span_s = float(log.submit_s[-1] - log.submit_s[0])
    n = max(1, round(len(log) * load * hours * 3600 / max(span_s, 1.0)))

    def submissions(rng: np.random.Generator) -> Jobs:
        jobs = fitted.sample(n, rng)
        elapsed_s = jobs.submit_s - jobs.submit_s[0]
        return Jobs.build(
            submit_s=1.0 + elapsed_s * (hours * 3600 / max(float(elapsed_s[-1]), 1.0)),
            run_s=jobs.run_s,
            request_s=jobs.request_s,
            cpus=jobs.cpus,
            nodes=jobs.nodes,
            user=np.maximum(jobs.user, 0),
        )

    return submissions
