"""F1 of Carastan-Santos and de Camargo (SC'17), fitted by regression to simulated schedules: request -> score."""

from __future__ import annotations

import numpy as np

from clustertwin.workload.policies.policy_contract import Now, Request


def score(request: Request, now: Now) -> float:
    # A log can begin at second 0 and have time limits of 0 s; 0.1 keeps the logarithms finite.
    size = np.log10(np.maximum(request.request_s, 0.1)) * request.procs
    return size + 870.0 * np.log10(np.maximum(request.submit_s, 0.1))
