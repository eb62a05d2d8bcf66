"""Put sample times on whole seconds: a stream of times -> the second boundary each one stands for.

A sampler fires once a second, at a phase of its own and with some jitter. Rounding each time by itself
would lose and double seconds whenever the phase lies near a half; so the phase is followed, and a time t
stands for the boundary round(t - phase). The step between the boundaries s and s + 1 is the second s.

    phase 0.5, times   .49  1.51  2.49  3.50          rounded alone: 0, 2, 2, 4     here: 0, 1, 2, 3

A sampler that runs slow or fast drifts through all phases. Once it is 0.81 away from the whole seconds the
labels move by one: a second is then filled from the step before it, or two samples share a second.
"""

from __future__ import annotations

from math import isfinite

#: A step longer than this many intervals is a gap: at least one sample is missing.
GAP = 1.75
#: The phase follows the mean of about this many samples.
_MEMORY = 32
#: Labels move by one when the phase is this far from zero. The first sample may be 0.15 late and so just beyond a half,
#: all others 0.15 early: a sampler with no more jitter than that never slips.
_SLIP = 0.81


class Boundaries:
    """Follows one sampler. `place` takes its times in order; `late` and `doubled` count what it passed over."""

    def __init__(self, interval_s: float = 1.0) -> None:
        self.interval_s = interval_s
        self.late = self.doubled = 0
        self._phase = 0.0
        self._seen = 0
        self._time: float | None = None  # of the sample placed last, in intervals since the epoch
        self._heard = 0.0  # of the last sample that was in order, placed or not
        self._boundary = 0

    def place(self, time_s: float) -> int | None:
        """The boundary (in intervals since the epoch) of this sample, or None where it adds none."""
        time = time_s / self.interval_s
        if self._time is None or time - self._heard > GAP:
            return self._restart(time)
        if not time > self._time:  # so that NaN is late too
            self.doubled += time == self._time
            self.late += time != self._time
            return None
        self._heard = time
        boundary = round(time - self._phase)
        error = time - self._phase - boundary
        # A second sampler half an interval away (two Prometheus servers, one exporter) must not pull us over.
        crowded = abs(error) > 0.4 and time - self._time < 0.75
        if boundary <= self._boundary or crowded:
            self.doubled += 1
            return None
        self._seen += 1
        self._phase += error / min(self._seen, _MEMORY)
        if abs(self._phase) > _SLIP:
            self._phase -= 1 if self._phase > 0 else -1
        self._time, self._boundary = time, boundary
        return boundary

    def _restart(self, time: float) -> int | None:
        """At the start and after a gap nothing is known about the phase."""
        if not isfinite(time):
            self.late += 1
            return None
        self._seen, self._phase = 1, time - round(time)
        self._time, self._heard, self._boundary = time, time, round(time)
        return self._boundary
