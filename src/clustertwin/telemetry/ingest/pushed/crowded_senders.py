"""Senders whose series find no room: what is said of them for a while, and how often their series are tried again."""

from __future__ import annotations

#: What was true is said for this long.
SAID_S = 60.0
#: As many series of a sender may find no room within this time. It takes 25 µs each to try one again.
MOST_CROWDED, CROWDED_S = 5000, 10.0


class CrowdedSenders:
    """Its methods take the clock of this machine."""

    def __init__(self) -> None:
        self.said: dict[str, float] = {}  # sentence -> when it was true last; a few for each sender
        self._full: dict[str, tuple[str, float]] = {}  # the same of an instance
        self._tries: dict[str, tuple[float, int]] = {}  # sender -> since when, and how many of its series had no room

    def leave_out(self, sender: str, what: str, now_s: float) -> None:
        """Say that one of several senders has no room for more."""
        self.said[f"{sender} pushes more than its share; its {what} are left out"] = now_s

    def note_full(self, instance: str, reason: str, now_s: float) -> None:
        """Note that an instance was refused a thread."""
        self._full[instance] = reason, now_s

    def count(self, sender: str, now_s: float) -> None:
        """Count a series that has found no room."""
        since_s, count = self._tries.get(sender, (now_s, 0))
        self._tries[sender] = since_s, count + 1

    def may_retry(self, sender: str, now_s: float) -> bool:
        """Whether such series are tried again now: there may be hundreds of thousands."""
        since_s, count = self._tries.get(sender, (now_s, 0))
        if abs(now_s - since_s) < CROWDED_S:
            return count < MOST_CROWDED
        del self._tries[sender]
        return True

    def lapse(self, now_s: float) -> list[tuple[str, str]]:
        """Forget what has not been true for a while: instances that were refused a thread, and the reasons."""
        self.said = {sentence: at_s for sentence, at_s in self.said.items() if abs(now_s - at_s) <= SAID_S}
        over = [(name, reason) for name, (reason, at_s) in self._full.items() if abs(now_s - at_s) > SAID_S]
        for name, _ in over:
            del self._full[name]
        return over
