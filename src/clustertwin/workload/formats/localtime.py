"""Times as a clock on the wall showed them -> seconds since 1970, with both meanings of an hour that came twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.formats.delimited import Batch
from clustertwin.workload.formats.reading import Findings
from clustertwin.workload.formats.slurm import NEVER

Floats = NDArray[np.float64]
_EPOCH = datetime(1970, 1, 1)


class LocalTimes:
    """Parses the times of one log; remembers the zone's offsets by ten minutes, so a million times cost little."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._offsets: dict[str, tuple[float, float]] = {}
        self.naive = False  # whether any time came without its offset

    def parse(self, batch: Batch, name: str, findings: Findings) -> tuple[Floats, Floats]:
        """A column: the earlier and the later meaning of each time; nan where there is none."""
        early = batch.parsed(name, lambda word: self.seconds(word)[0], findings)
        late = batch.parsed(name, lambda word: self.seconds(word)[1], findings) if self.naive else early
        return early, late

    def seconds(self, word: str) -> tuple[float, float]:
        """`2024-10-27T02:30:00` -> its two meanings, equal but for one hour of the year. Also `…+02:00` and seconds."""
        if word in NEVER:
            return np.nan, np.nan
        if word.isdigit():
            return float(word), float(word)
        moment = datetime.fromisoformat(word)  # ValueError says what is wrong with it
        if moment.tzinfo is not None:
            return moment.timestamp(), moment.timestamp()
        self.naive = True
        wall = (moment - _EPOCH).total_seconds()
        key = word[:15]
        if key not in self._offsets:
            self._offsets[key] = self._offset(moment)
        early, late = self._offsets[key]
        return wall - early, wall - late

    def _offset(self, moment: datetime) -> tuple[float, float]:
        offsets = []
        for fold in (0, 1):
            here = moment.replace(tzinfo=self._zone, fold=fold)
            offset = here.utcoffset() or timedelta()
            if here.astimezone(UTC).astimezone(self._zone).replace(tzinfo=None) != moment:
                raise ValueError(f"no clock in {self._zone.key} showed this time: it was skipped in spring")
            offsets.append(offset.total_seconds())
        return offsets[0], offsets[1]
