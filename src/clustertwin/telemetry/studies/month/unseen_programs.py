"""Programs that were never recorded: a table of levels -> their signatures, and those of a whole foreign site.

The shipped signatures come from four programs. These differ from all of them: other shares of idle, iowait and system
time, and other noise. Some idle by design. They are healthy: a detector must not call them faulty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.simulation.signature import IDLE, NORMAL_SCORES, Signature, Signatures
from clustertwin.telemetry.simulation.stick_breaking import Order

_ORDER: Order = (3, 2, 0, 1)  # other, iowait, then user and system


@dataclass(frozen=True, slots=True)
class Program:
    """Typical parts of a second, and how much they vary."""

    other: float  # idle
    iowait: float  # of the rest
    system: float  # of the busy time
    spread: float  # standard deviation of the logits
    like: str  # the recorded program with the same autocorrelation


#: Healthy programs that are on no recording.
UNSEEN: dict[str, Program] = {
    "quantum-chemistry": Program(0.02, 0.001, 0.06, 0.3, "np"),
    "alignment": Program(0.05, 0.03, 0.03, 0.6, "good-io"),
    "assembly": Program(0.30, 0.05, 0.15, 0.9, "good-io"),
    "notebook": Program(0.85, 0.001, 0.10, 1.5, "np"),
    "pipeline": Program(0.45, 0.02, 0.25, 1.0, "good-io"),
    "database": Program(0.55, 0.08, 0.35, 0.8, "good-io"),
    "compilation": Program(0.25, 0.01, 0.22, 1.2, "good-io"),
    "training": Program(0.35, 0.001, 0.12, 0.5, "np"),
    "post-processing": Program(0.60, 0.12, 0.20, 0.9, "good-io"),
    "monte-carlo": Program(0.003, 0.001, 0.004, 0.2, "np"),
    "solver": Program(0.12, 0.001, 0.20, 0.4, "np"),
    "archiving": Program(0.40, 0.18, 0.30, 0.8, "good-io"),
}
#: The usual programs of a foreign site, and its idle threads: its daemons work more, and its disks are slower.
FOREIGN: dict[str, Program] = {
    "foreign-dynamics": Program(0.08, 0.004, 0.09, 0.4, "np"),
    "foreign-fluids": Program(0.15, 0.02, 0.12, 0.6, "np"),
    "foreign-genomes": Program(0.20, 0.10, 0.08, 0.8, "good-io"),
    "foreign-lattice": Program(0.03, 0.001, 0.05, 0.3, "np"),
}
_FOREIGN_IDLE = Program(0.95, 0.01, 0.5, 1.0, IDLE)


def with_unseen_programs(signatures: Signatures, foreign: bool) -> Signatures:
    """The signatures with the programs of both tables; those of a foreign site with its idle threads too."""
    kinds = dict(signatures.kinds)
    for name, program in (UNSEEN | FOREIGN).items():
        kinds[name, ""] = _signature(name, program, signatures.kinds[program.like, ""])
    if foreign:
        kinds[IDLE, ""] = _signature(IDLE, _FOREIGN_IDLE, signatures.kinds[IDLE, ""])
    return replace(signatures, kinds=kinds)


def _signature(name: str, program: Program, like: Signature) -> Signature:
    shares = (program.other, program.iowait, 1 - program.system)
    quantiles = np.stack([_around(share, program.spread) for share in shares])
    return replace(like, job_type=name, order=_ORDER, quantiles=quantiles, trend=np.zeros(3), jobs=0, thread_s=0)


def _around(share: float, spread: float) -> NDArray[np.float64]:
    """(score,) the quantiles of a share that is logit-normal around this median."""
    quantiles: NDArray[np.float64] = 1 / (1 + (1 - share) / share * np.exp(-spread * NORMAL_SCORES))
    return quantiles
