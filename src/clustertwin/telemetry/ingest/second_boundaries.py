"""Assign sample times to whole seconds: a stream of times -> the second boundary of each.

A sampler fires once a second, at its own phase and with some jitter. Rounding each time alone would lose and double
seconds if the phase is near a half. So the phase is tracked, and the boundary of time t is round(t - phase). The step
from boundary s to boundary s + 1 is the second s.

    phase 0.5, times   .49  1.51  2.49  3.50          rounded alone: 0, 2, 2, 4     here: 0, 1, 2, 3

A sampler that runs slow or fast drifts through all phases. When it is 0.81 away from the whole seconds, the boundaries
move by one: a second is then filled from the step before it, or two samples fall into one second.
"""

from __future__ import annotations

from math import isfinite

#: A step longer than this many intervals is a gap: at least one sample is missing.
GAP = 1.75
#: The phase is a mean over about this many samples.
_MEMORY = 32
#: Boundaries move by one when the phase is this far from zero. With a jitter of up to 0.15 that never happens, even if
#: the first sample is 0.15 late, just beyond a half, and all others are 0.15 early.
_SLIP = 0.81


class Boundaries:
    """Tracks one sampler. `place` takes its times in order; `late` and `doubled` count the samples that it skips."""

    def __init__(self, interval_s: float = 1.0) -> None:
        self.interval_s = interval_s
        self.late = self.doubled = 0
        self._phase = 0.0
        self._samples = 0
        self._time: float | None = None  # of the sample placed last, in intervals since the epoch
        self._last = 0.0  # of the last sample that was in order, placed or skipped
        self._boundary = 0

    def place(self, time_s: float) -> int | None:
        """The boundary of this sample, in intervals since the epoch; None if the sample is skipped."""
        time = time_s / self.interval_s
        if self._time is None or time - self._last > GAP:
            return self._restart(time)
        if not time > self._time:  # so that NaN is late too
            self.doubled += time == self._time
            self.late += time != self._time
            return None
        self._last = time
        boundary = round(time - self._phase)
        error = time - self._phase - boundary
        # A second sampler half an interval away (two Prometheus servers, one exporter) must not move the phase.
        crowded = abs(error) > 0.4 and time - self._time < 0.75
        if boundary <= self._boundary or crowded:
            self.doubled += 1
            return None
        self._samples += 1
        self._phase += error / min(self._samples, _MEMORY)
        if abs(self._phase) > _SLIP:
            self._phase -= 1 if self._phase > 0 else -1
        self._time, self._boundary = time, boundary
        return boundary

    def _restart(self, time: float) -> int | None:
        """At the start and after a gap the phase is unknown."""
        if not isfinite(time):
            self.late += 1
            return None
        self._samples, self._phase = 1, time - round(time)
        self._time, self._last, self._boundary = time, time, round(time)
        return self._boundary
