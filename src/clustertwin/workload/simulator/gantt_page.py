"""Write a schedule as a page that zooms: schedule, processors of each job -> HTML with its data and its script.

The jobs are columns of whole numbers: differences, as variable-length bytes in base64. The page draws them on a canvas.
It loads nothing, and its policy of content allows its own script and style only.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clustertwin.core.formatting import visible
from clustertwin.page import page
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator.schedule import Schedule

PARTS = Path(__file__).parent / "gantt_parts"
_GROUPS = 7 * np.arange(10, dtype=np.uint64)  # 64 bits in groups of seven

#: The ranges (first, count) of the processors of each job.
Ranges = Sequence[Sequence[tuple[int, int]]]


def gantt_page(schedule: Schedule, ranges: Ranges, between_s: tuple[float, float]) -> str:
    """The page of the jobs that wait or run between these times."""
    shown = np.flatnonzero((schedule.jobs.submit_s <= between_s[1]) & (schedule.end_s >= between_s[0]))
    document = chart_document(schedule, ranges, shown) | {"view_s": [float(time_s) for time_s in between_s]}
    # "<" could close the element; JSON allows it as \u003c.
    data = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
    frame, style, script = ((PARTS / f"gantt.{suffix}").read_text() for suffix in ("html", "css", "js"))
    title = f"{schedule.policy}, backfilling: {schedule.backfill}"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_digest(script)}'"
    body = (
        f'<meta http-equiv=Content-Security-Policy content="{policy}"><style>{style}</style>'
        f"<main><h1>{escape(title)}</h1><p class=note>{escape(schedule.caption())}</p>{frame}</main>"
        f"<script type=application/json id=schedule>{data}</script><script>{script}</script>"
    )
    return page(title, body)


def chart_document(schedule: Schedule, ranges: Ranges, shown: NDArray[np.intp]) -> dict[str, Any]:
    """What the page's script reads: the machine, the names of users, and a column for each figure of a job."""
    jobs = schedule.jobs.take(shown)
    submit_s, start_s = np.rint(jobs.submit_s), np.rint(schedule.start_s[shown])
    boxes = [ranges[job] for job in shown.tolist()]
    columns: dict[str, ArrayLike] = {
        "id": np.diff(jobs.id, prepend=0),
        "submit_s": np.diff(submit_s, prepend=0),
        "wait_s": start_s - submit_s,
        "run_s": np.rint(schedule.end_s[shown]) - start_s,
        "request_s": np.rint(jobs.request_s),
        "size": schedule.size[shown],
        "user": jobs.user,
        "boxes": [len(box) for box in boxes],
        "first": [first for box in boxes for first, _ in box],
        "count": [count for box in boxes for _, count in box],
    }
    return {
        "procs": schedule.procs,
        "epoch_s": jobs.epoch_s,
        "timezone": jobs.timezone,
        "users": _user_names(jobs),
        "columns": {name: base64.b64encode(varints(values)).decode() for name, values in columns.items()},
    }


def varints(values: ArrayLike) -> bytes:
    """Whole numbers as bytes, seven bits in each, the lowest first. The sign is the lowest bit.

    >>> varints([0, -1, 1, 64]).hex(" ")
    '00 01 02 80 01'
    """
    signed = np.asarray(values, dtype=np.float64).astype(np.int64)
    folded = ((signed << 1) ^ (signed >> 63)).astype(np.uint64)
    rest = folded[:, None] >> _GROUPS  # (n, 10)
    data = (rest & np.uint64(127)).astype(np.uint8)
    data[:, :-1] |= np.where(rest[:, 1:] > 0, np.uint8(128), np.uint8(0))  # more bytes follow
    used = rest > 0
    used[:, 0] = True
    return data[used].tobytes()


def _user_names(jobs: Jobs) -> dict[str, str]:
    """Code -> name, for the users in the page that have a name."""
    names = jobs.names.get("user", ())
    return {str(code): visible(names[code]) for code in np.unique(jobs.user).tolist() if 0 <= code < len(names)}


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
