"""A signature: how the threads of one kind of job spend their seconds, as the numbers of a random process.

The process is a Gaussian copula: a stationary Gaussian series per share gives time its structure, and the
recorded quantiles give each second its value. The spectrum is split in two: what the threads of a job have in
common and what each has on its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import InputError, OutputError
from clustertwin.telemetry.simulation.barrier import Barrier
from clustertwin.telemetry.simulation.shares import ORDERS, Order

#: Normal scores at which quantiles are kept: fine enough for one second in a thousand.
SCORES = np.linspace(-3.2, 3.2, 65)
SEGMENT_S = 64  # spectra are known at multiples of 1/64 Hz
FREQUENCIES = SEGMENT_S // 2 + 1
PEER = "/peer"  # a healthy thread of a job in which another is afflicted: `straggler-x2/peer`
IDLE = "idle"  # a thread without a job
FORMAT = 1
_LOWER = np.tril_indices(3)
_BELOW = np.tril_indices(3, -1)


@dataclass(frozen=True, slots=True)
class Signature:
    """One kind of thread; `anomaly` is empty for a normal one and ends in `/peer` beside an afflicted one."""

    job_type: str
    anomaly: str
    order: Order  # of the channels, in which they take their shares of a second
    quantiles: NDArray[np.float64]  # (share, score) the share at each of SCORES
    shared: NDArray[np.complex128]  # (frequency, share, share) lower factor of the spectrum common to a job's threads
    own: NDArray[np.complex128]  # (frequency, share, share) lower factor of what a thread has on its own
    trend: NDArray[np.float64]  # (share,) how far it climbs through a job: 1 is in perfect order, 0 not at all
    start: NDArray[np.float64]  # (second, channel) mean ratios while a job starts
    end: NDArray[np.float64]  # (second, channel) mean ratios while it ends
    jobs: int  # how many recorded jobs stand behind it
    thread_s: int  # and how many seconds of threads

    @property
    def key(self) -> tuple[str, str]:
        return self.job_type, self.anomaly


@dataclass(frozen=True, slots=True)
class Signatures:
    """All kinds of threads that were recorded, and where they come from."""

    kinds: dict[tuple[str, str], Signature]  # (job type, anomaly) -> signature
    barrier: Barrier | None  # what an MPI rank's seconds look like; None where no MPI job was recorded
    provenance: dict[str, Any]  # host, kernel, CPUs, date, command


def to_json(signatures: Signatures) -> str:
    """One line per signature: small, and still a diff that a person can follow."""
    lines = ",\n".join(json.dumps(_row(kind)) for kind in signatures.kinds.values())
    head, barrier = json.dumps(signatures.provenance, indent=1), json.dumps(_barrier_row(signatures.barrier))
    return f'{{"format": {FORMAT}, "provenance": {head},\n"barrier": {barrier},\n"signatures": [\n{lines}\n]}}\n'


def parse_signatures(text: str, where: str = "signatures") -> Signatures:
    """The text of a signatures file; a foreign or damaged one is refused with a reason."""
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise InputError(where, f"format {document['format']}, this version reads {FORMAT}")
        kinds = [_signature(row) for row in document["signatures"]]
        return Signatures(
            {kind.key: kind for kind in kinds}, _barrier(document["barrier"]), dict(document["provenance"])
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(where, f"not a signatures file ({type(error).__name__}: {error})") from error


def read_signatures(path: Path | None = None) -> Signatures:
    """A file made by `twin campaign fit`, or the one that came with clustertwin."""
    if path is None:
        return parse_signatures(files(__package__).joinpath("signatures.json").read_text(), "signatures.json")
    try:
        return parse_signatures(path.read_text(), str(path))
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from error


def write_signatures(path: Path, signatures: Signatures) -> None:
    """One JSON file, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".part")
        draft.write_text(to_json(signatures))
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error


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
        quantiles=_shaped(row["quantiles"], (3, len(SCORES))),
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
    """(frequency, 3, 3) lower factors with a real diagonal -> (frequency, 9) numbers."""
    return np.concatenate([factor[:, *_LOWER].real, factor[:, *_BELOW].imag], axis=1)


def _unpacked(numbers: NDArray[np.float64]) -> NDArray[np.complex128]:
    factor = np.zeros((len(numbers), 3, 3), np.complex128)
    factor[:, *_LOWER] = numbers[:, :6]
    factor[:, *_BELOW] += 1j * numbers[:, 6:]
    return factor


def _shaped(numbers: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = np.asarray(numbers, np.float64).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError("a number that is not finite")
    return array


def _rounded(array: NDArray[np.float64]) -> Any:
    return np.round(array, 3).tolist()
