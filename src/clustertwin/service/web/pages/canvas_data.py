"""What the heat maps draw: a snapshot -> rows of bytes over time, as JSON values.

Bytes 0 to 254 stand for 0 to 1, and 255 for an unknown value. A node without an unusual thread has a level below the
middle, by its highest score. One with unusual threads has a level above it, by the share of its threads that are. For
a score, the middle of the scale is the threshold and its end is ten times the threshold.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import Trace
from clustertwin.service.live.snapshot import Snapshot
from clustertwin.service.web.api.json_values import plain
from clustertwin.telemetry.moments.moment import Moment

UNKNOWN = 255
MOST_ROWS = 200
CLUSTER_COLUMNS = 240


def levels(ratios: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
    """[0, 1] -> bytes; NaN -> unknown."""
    known = ~np.isnan(ratios)
    quantised = np.full(ratios.shape, UNKNOWN, np.uint8)
    quantised[known] = np.rint(np.clip(ratios[known], 0, 1) * (UNKNOWN - 1)).astype(np.uint8)
    return quantised


def encoded(quantised: NDArray[np.uint8]) -> str:
    return b64encode(np.ascontiguousarray(quantised).tobytes()).decode()


def cluster(snapshot: Snapshot) -> dict[str, Any]:
    """Nodes × time: the unusual threads of each node over the last hour; the node with the highest score is first."""
    history, threshold = snapshot.history, snapshot.threshold
    names = [state.node for state in snapshot.nodes][:MOST_ROWS]
    step_s, end_s, scores = _resampled(history.times_s, history.score, max(snapshot.stride_s, 5))
    row = {node: i for i, node in enumerate(history.nodes)}
    empty = np.full(scores.shape[1], np.nan, np.float32)
    shown = np.array([scores[row[name]] if name in row else empty for name in names]).reshape(len(names), len(empty))
    ratios = score_ratios(shown, threshold)
    coloured = ratios
    if history.share is not None:
        shares = _resampled(history.times_s, history.share, max(snapshot.stride_s, 5))[2]
        part = np.array([shares[row[name]] if name in row else empty for name in names]).reshape(shown.shape)
        coloured = share_ratios(ratios, part)
    return {
        "labels": names,
        "more": max(len(snapshot.nodes) - MOST_ROWS, 0),
        "columns": len(empty),
        "end_s": end_s,
        "step_s": step_s,
        "threshold": None if np.isnan(threshold) else threshold,
        "levels": encoded(levels(coloured)),
        "score_levels": encoded(levels(ratios)),
        "threads": [state.threads for state in snapshot.nodes[:MOST_ROWS]],
        "alarming_threads": [state.alarming for state in snapshot.nodes[:MOST_ROWS]],
    }


def score_ratios(score: NDArray[np.float32], threshold: float) -> NDArray[np.float32]:
    """Scores -> [0, 1]: linear up to the threshold, logarithmic from there to ten times the threshold."""
    relative = score / np.float32(threshold)
    above = 0.5 + 0.5 * np.log10(np.maximum(relative, 1))
    return np.where(relative > 1, above, relative / 2).astype(np.float32)


def share_ratios(scores: NDArray[np.float32], shares: NDArray[np.float32]) -> NDArray[np.float32]:
    """Ratios of scores and shares of unusual threads -> [0, 1]: above 0.5 by the share, else by the score."""
    above = 0.55 + 0.45 * shares
    return np.where(shares > 0, above, np.minimum(scores, 0.5)).astype(np.float32)


def unusual_threads(snapshot: Snapshot, name: str) -> list[tuple[int, float]]:
    """The threads of a node above the threshold, with their scores; highest first."""
    moment = snapshot.scored
    if moment is None or name not in moment.nodes:
        return []
    cpus = moment.cpu[moment.node == moment.nodes.index(name)]
    scores = _scores(snapshot, name, cpus)
    above = np.flatnonzero(scores > snapshot.threshold)
    return [(int(cpus[i]), float(scores[i])) for i in above[np.argsort(-scores[above], kind="stable")]]


def _resampled(
    times_s: NDArray[np.int64], score: NDArray[np.float32], stride_s: int
) -> tuple[int, int, NDArray[np.float32]]:
    """Scores at irregular times -> columns of equal width with the highest score in each; NaN if a column has none."""
    if not len(times_s):
        return stride_s, 0, np.full((len(score), 0), np.nan, np.float32)
    end_s = int(times_s[-1])
    span_s = max(end_s - int(times_s[0]) + stride_s, 60 * stride_s)
    step_s = max(stride_s, -(-span_s // CLUSTER_COLUMNS))
    columns = -(-span_s // step_s)
    place = columns - 1 - (end_s - times_s) // step_s
    highest = np.full((len(score), columns), -np.inf, np.float32)
    for column, scores in zip(place.tolist(), np.where(np.isnan(score), -np.inf, score).T, strict=True):
        np.maximum(highest[:, column], scores, out=highest[:, column])
    # If scorings are a little further apart than a column is wide, some columns stay empty. Fill them from the left.
    scored = np.isin(np.arange(columns), place)
    between = np.flatnonzero(~scored[1:-1] & scored[:-2] & scored[2:]) + 1
    highest[:, between] = highest[:, between - 1]
    highest[np.isneginf(highest)] = np.nan
    return step_s, end_s, highest


def node(snapshot: Snapshot, name: str, channel: str) -> dict[str, Any] | None:
    """Threads × seconds of one node, with its jobs as bands; None if the node is unknown."""
    moment = snapshot.moment
    if moment is None or name not in moment.nodes:
        return None
    rows = np.flatnonzero(moment.node == moment.nodes.index(name))
    return {
        "cpus": moment.cpu[rows].tolist(),
        "columns": moment.values.shape[1],
        "end_s": moment.end_s,
        "step_s": 1,
        "channel": channel,
        "levels": encoded(levels(shares(moment, rows, channel))),
        "scores": plain(_scores(snapshot, name, moment.cpu[rows])),
        "threshold": None if np.isnan(snapshot.threshold) else snapshot.threshold,
        "bands": _bands(moment, rows),
    }


def shares(measured: Moment | Trace, rows: NDArray[np.intp], channel: str) -> NDArray[np.float32]:
    """(thread, second) of one channel. `busy` is user, system and iowait together."""
    index = measured.schema.index("other" if channel == "busy" else channel)
    values = measured.values[rows, :, index]
    return np.where(measured.valid[rows], 1 - values if channel == "busy" else values, np.nan)


def _scores(snapshot: Snapshot, name: str, cpus: NDArray[np.int32]) -> NDArray[np.float32]:
    """The last scores of these threads; NaN for a thread that has appeared since the last scoring."""
    if snapshot.scored is None or snapshot.scores is None or name not in snapshot.scored.nodes:
        return np.full(len(cpus), np.nan, np.float32)
    rows = np.flatnonzero(snapshot.scored.node == snapshot.scored.nodes.index(name))
    score = dict(zip(snapshot.scored.cpu[rows].tolist(), snapshot.scores.score[rows].tolist(), strict=True))
    return np.array([score.get(int(cpu), np.nan) for cpu in cpus], np.float32)


def _bands(moment: Moment, rows: NDArray[np.intp]) -> list[dict[str, Any]]:
    """One band for each run of adjacent threads of a job: its rows, and the time since the job has them."""
    bands: list[dict[str, Any]] = []
    for place, row in enumerate(rows):
        if moment.job[row] < 0:
            continue
        name, from_s = moment.jobs[moment.job[row]], int(moment.end_s - moment.age_s[row])
        last = bands[-1] if bands else None
        if last and last["name"] == name and last["rows"][1] == place - 1 and last["from_s"] == from_s:
            last["rows"][1] = place
        else:
            bands.append({"name": name, "rows": [place, place], "from_s": from_s, "to_s": moment.end_s})
    return bands
