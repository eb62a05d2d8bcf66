"""A pandas DataFrame -> the job table: the way in for data of your own, and the inverse of `Jobs.to_pandas`."""

from __future__ import annotations

from datetime import timedelta
from difflib import get_close_matches
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import TraceError
from clustertwin.core.extras import require
from clustertwin.workload.jobs import COLUMNS, Jobs, Status

NAMED = ("user", "group", "queue")
WHERE = "the DataFrame"


def jobs_from_frame(frame: Any) -> Jobs:
    """The jobs of a DataFrame, in the order of submission.

    Columns are those of `Jobs`. `run_s`, and `submit_s` or `submit` (dates; without a time zone they are UTC) must be
    there. Durations may be timedeltas; users, groups, queues and status may be words. A missing value is unknown.
    """
    pandas = require("pandas", "pandas")
    _check_columns(list(frame.columns))
    submit_s, epoch_s, timezone = _submissions(pandas, frame)
    columns: dict[str, Any] = {"submit_s": submit_s}
    names: dict[str, tuple[str, ...]] = {}
    for name in frame.columns.intersection(COLUMNS).drop("submit_s", errors="ignore"):
        if name in NAMED and not pandas.api.types.is_numeric_dtype(frame[name]):
            coded = pandas.Categorical(frame[name])
            columns[name], names[name] = coded.codes, tuple(map(str, coded.categories))
        else:
            columns[name] = _numbers(pandas, frame[name], name)
    jobs = Jobs.build(**columns, names=names, epoch_s=epoch_s, timezone=timezone)
    return jobs.take(np.argsort(jobs.submit_s, kind="stable"))


def _check_columns(names: list[Any]) -> None:
    for name in names:
        if name not in (*COLUMNS, "submit"):
            near = get_close_matches(str(name), COLUMNS, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? Rename or drop it" if near else "drop it"
            raise TraceError(WHERE, f"unknown column {name!r}: {hint}. A job table has {', '.join(COLUMNS)}")
    if "run_s" not in names or not {"submit", "submit_s"} & set(names):
        raise TraceError(WHERE, "it needs the columns run_s, and submit_s (seconds) or submit (dates)")


def _submissions(pandas: Any, frame: Any) -> tuple[NDArray[np.float64], float, str]:
    """Seconds since an epoch, the epoch, and the time zone."""
    seconds = _numbers(pandas, frame["submit_s"], "submit_s") if "submit_s" in frame else None
    if "submit" not in frame:
        assert seconds is not None
        return seconds, 0.0, "UTC"
    dates = frame["submit"]
    if not pandas.api.types.is_datetime64_any_dtype(dates):
        raise TraceError(WHERE, "submit holds no dates; convert it with pandas.to_datetime")
    if dates.isna().any():
        raise TraceError(WHERE, f"submit is missing in row {int(dates.isna().argmax())}; drop such rows")
    zone = _zone_name(dates.dt.tz) if dates.dt.tz is not None else "UTC"
    naive = dates.dt.tz_convert("UTC").dt.tz_localize(None) if dates.dt.tz is not None else dates
    epochs_s = (naive - pandas.Timestamp(0)).dt.total_seconds().to_numpy()
    if not len(epochs_s):
        return epochs_s, 0.0, zone
    epoch_s = float(epochs_s.min() if seconds is None else epochs_s[0] - seconds[0])
    return epochs_s - epoch_s, epoch_s, zone


def _zone_name(zone: Any) -> str:
    """The IANA name of a time zone. An offset of whole hours, as in `09:00+01:00`, has one too: Etc/GMT-1.

    >>> from datetime import timezone
    >>> _zone_name(timezone(timedelta(hours=1)))
    'Etc/GMT-1'
    """
    name, offset = str(zone), zone.utcoffset(None)
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError) as error:
        if offset is None or offset % timedelta(hours=1):
            raise TraceError(WHERE, f"submit has the time zone {name}; convert it with dt.tz_convert") from error
    return f"Etc/GMT{-(offset // timedelta(hours=1)):+d}"


def _numbers(pandas: Any, column: Any, name: str) -> NDArray[np.float64]:
    """A column as numbers: timedeltas in seconds, status words as codes, -1 where a value is missing."""
    if pandas.api.types.is_timedelta64_dtype(column):
        column = column.dt.total_seconds()
    elif name == "status" and not pandas.api.types.is_numeric_dtype(column):
        column = column.map(_status_code, na_action="ignore")
    try:
        return np.asarray(pandas.to_numeric(column).to_numpy(dtype=np.float64, na_value=-1))
    except (ValueError, TypeError) as error:
        raise TraceError(WHERE, f"{name} holds no numbers ({error})") from error


def _status_code(word: object) -> int:
    try:
        return int(Status[str(word).upper()])
    except KeyError:
        words = ", ".join(status.name.lower() for status in Status)
        raise TraceError(WHERE, f"status {word!r} is unknown; use {words}") from None
