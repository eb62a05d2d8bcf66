"""A signature: the stochastic process that the seconds of one kind of thread follow, as its parameters.

The process is a Gaussian copula process over stick-breaking shares. A stationary Gaussian series per share carries the
autocorrelation, and the recorded quantiles are the marginal distribution. The spectrum has two parts: one is common to
the threads of a job, the other is independent for each thread.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.errors import InputError
from clustertwin.telemetry.simulation.barrier import Barrier
from clustertwin.telemetry.simulation.stick_breaking import ORDERS, Order

#: Normal scores at which quantiles are stored: they resolve one second in a thousand.
NORMAL_SCORES = np.linspace(-3.2, 3.2, 65)
SEGMENT_S = 64  # spectra are stored at multiples of 1/64 Hz
FREQUENCIES = SEGMENT_S // 2 + 1
PEER = "/peer"  # suffix for a healthy thread of a job in which another one is anomalous: `straggler-x2/peer`
IDLE = "idle"  # a thread without a job
FORMAT = 1
_LOWER = np.tril_indices(3)
_BELOW = np.tril_indices(3, -1)


@dataclass(frozen=True, slots=True)
class Signature:
    """One kind of thread. `anomaly` is empty for a normal thread and ends in `/peer` for a peer of an anomalous one."""

    job_type: str
    anomaly: str
    order: Order  # of the channels in the stick-breaking transform
    quantiles: NDArray[np.float64]  # (share, score) the marginal: the share at each of NORMAL_SCORES
    shared: NDArray[np.complex128]  # (frequency, share, share) Cholesky factor of the part common to a job
    own: NDArray[np.complex128]  # (frequency, share, share) Cholesky factor of a thread's independent part
    trend: NDArray[np.float64]  # (share,) correlation with a ramp through the job: 1 sorts the values, 0 is stationary
    start: NDArray[np.float64]  # (second, channel) mean ratios while a job starts
    end: NDArray[np.float64]  # (second, channel) mean ratios while it ends
    jobs: int  # number of recorded jobs it was fitted to
    thread_s: int  # their length, summed over threads

    @property
    def key(self) -> tuple[str, str]:
        return self.job_type, self.anomaly


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of every recorded kind of thread, and their origin."""

    kinds: dict[tuple[str, str], Signature]  # (job type, anomaly) -> signature
    barrier: Barrier | None  # the model of MPI jobs; None if no MPI job was recorded
    provenance: dict[str, Any]  # host, kernel, CPUs, date, command


def to_json(signatures: Signatures) -> str:
    """One line per signature: the file is small and its diffs stay readable."""
    lines = ",\n".join(json.dumps(_row(kind)) for kind in signatures.kinds.values())
    head, barrier = json.dumps(signatures.provenance, indent=1), json.dumps(_barrier_row(signatures.barrier))
    return f'{{"format": {FORMAT}, "provenance": {head},\n"barrier": {barrier},\n"signatures": [\n{lines}\n]}}\n'


def parse_signatures(text: str, where: str = "signatures") -> Signatures:
    """Parse the text of a signatures file. Any other or a damaged file raises an InputError with the reason."""
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise InputError(where, f"format {document['format']} is not supported; this version reads format {FORMAT}")
        kinds = [_signature(row) for row in document["signatures"]]
        return Signatures(
            {kind.key: kind for kind in kinds}, _barrier(document["barrier"]), dict(document["provenance"])
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(where, f"not a signatures file ({type(error).__name__}: {error})") from error


def read_signatures(path: Path | None = None) -> Signatures:
    """Read a file made by `twin campaign fit`, or the one that is part of clustertwin."""
    if path is None:
        return parse_signatures(resources.files(__package__).joinpath("signatures.json").read_text(), "signatures.json")
    try:
        return parse_signatures(path.read_text(), str(path))
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from error


def write_signatures(path: Path, signatures: Signatures) -> None:
    """Write one JSON file; its directory is created if needed."""
    files.make_directory(path.parent)
    files.write(path, to_json(signatures))


def _row(kind: Signature) -> dict[str, Any]:
    return {
        "job_type": kind.job_type,
        "anomaly": kind.anomaly,
        "jobs": kind.jobs,
        "thread_s": kind.thread_s,
        "order": kind.order,
        "quantiles": _rounded(kind.quantiles),
        "trend": _rounded(kind.trend),
        "start": _rounded(kind.start),
        "end": _rounded(kind.end),
        "shared": _rounded(_packed(kind.shared)),
        "own": _rounded(_packed(kind.own)),
    }


def _signature(row: dict[str, Any]) -> Signature:
    return Signature(
        job_type=str(row["job_type"]),
        anomaly=str(row["anomaly"]),
        order=ORDERS[ORDERS.index(tuple(row["order"]))],
        quantiles=_shaped(row["quantiles"], (3, len(NORMAL_SCORES))),
        shared=_unpacked(_shaped(row["shared"], (FREQUENCIES, 9))),
        own=_unpacked(_shaped(row["own"], (FREQUENCIES, 9))),
        trend=_shaped(row["trend"], (3,)),
        start=_shaped(row["start"], (len(row["start"]), 4)),
        end=_shaped(row["end"], (len(row["end"]), 4)),
        jobs=int(row["jobs"]),
        thread_s=int(row["thread_s"]),
    )


def _barrier_row(barrier: Barrier | None) -> dict[str, Any] | None:
    if barrier is None:
        return None
    return {"step_s": barrier.step_s, "compute": _rounded(barrier.compute), "wait": _rounded(barrier.wait)}


def _barrier(row: dict[str, Any] | None) -> Barrier | None:
    if row is None:
        return None
    low_s, high_s = map(float, row["step_s"])
    return Barrier((low_s, high_s), _shaped(row["compute"], (4,)), _shaped(row["wait"], (4,)))


def _packed(factor: NDArray[np.complex128]) -> NDArray[np.float64]:
    """(frequency, 3, 3) lower triangular factors with a real diagonal -> (frequency, 9) real numbers."""
    return np.concatenate([factor[:, *_LOWER].real, factor[:, *_BELOW].imag], axis=1)


def _unpacked(numbers: NDArray[np.float64]) -> NDArray[np.complex128]:
    factor = np.zeros((len(numbers), 3, 3), np.complex128)
    factor[:, *_LOWER] = numbers[:, :6]
    factor[:, *_BELOW] += 1j * numbers[:, 6:]
    return factor


def _shaped(numbers: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = np.asarray(numbers, np.float64).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError("a number is not finite")
    return array


def _rounded(array: NDArray[np.float64]) -> Any:
    return np.round(array, 3).tolist()
