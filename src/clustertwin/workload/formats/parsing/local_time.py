"""Local times -> seconds since 1970, with both meanings of an hour that a clock change repeats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.formats.parsing.delimited import DelimitedBatch
from clustertwin.workload.formats.parsing.findings import LogFindings
from clustertwin.workload.formats.parsing.slurm_fields import NEVER

Floats = NDArray[np.float64]
_EPOCH = datetime(1970, 1, 1)


class LocalTimes:
    """Parses the times of one log. It caches the UTC offset of every ten minutes, so a million times parse quickly."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._offsets: dict[str, tuple[float, float]] = {}
        self.naive = False  # whether any time had no UTC offset

    def parse(self, batch: DelimitedBatch, name: str, findings: LogFindings) -> tuple[Floats, Floats]:
        """A column -> the earlier and the later meaning of each time; nan where there is none."""
        early = batch.parsed(name, lambda word: self.seconds(word)[0], findings)
        late = batch.parsed(name, lambda word: self.seconds(word)[1], findings) if self.naive else early
        return early, late

    def seconds(self, word: str) -> tuple[float, float]:
        """`2024-10-27T02:30:00` -> its two meanings, which differ in one hour of the year.

        Also parses times with an offset (`…+02:00`) and seconds since 1970.
        """
        if word in NEVER:
            return np.nan, np.nan
        if word.isdecimal():
            return float(word), float(word)
        moment = datetime.fromisoformat(word)  # its ValueError becomes the finding
        if not 1900 <= moment.year < 9999:  # conversions overflow near the ends of the calendar
            raise ValueError(f"the year {moment.year} is not plausible")
        if moment.tzinfo is not None:
            return moment.timestamp(), moment.timestamp()
        self.naive = True
        local_s = (moment - _EPOCH).total_seconds()
        key = word[:15]
        if key not in self._offsets:
            self._offsets[key] = self._offset(moment)
        early, late = self._offsets[key]
        return local_s - early, local_s - late

    def _offset(self, moment: datetime) -> tuple[float, float]:
        offsets = []
        for fold in (0, 1):
            local = moment.replace(tzinfo=self._zone, fold=fold)
            offset = local.utcoffset() or timedelta()
            if local.astimezone(UTC).astimezone(self._zone).replace(tzinfo=None) != moment:
                raise ValueError(f"this local time does not exist in {self._zone.key}: the clock change skips it")
            offsets.append(offset.total_seconds())
        return offsets[0], offsets[1]
