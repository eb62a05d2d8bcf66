"""How much of a limit each sender uses: a sender that wants more -> whether there is room, and who must make some.

A single sender may use all of the room. As soon as there are several, each has an equal share: a sender above its share
leaves a reserve free, and once the reserve is used up, the one with the most makes room for one below its share. So no
sender can use up the room of the others.
"""

from __future__ import annotations

from collections import Counter


class SenderShares:
    """What each sender has of one kind. `reserve` is the part of the limit that those above their share leave free."""

    def __init__(self, reserve: float) -> None:
        self.reserve = reserve
        self.total = 0
        self._used: Counter[str] = Counter()

    def add(self, sender: str, count: int) -> None:
        """Note that a sender has more, or fewer if `count` is negative."""
        self.total += count
        self._used[sender] += count
        if not self._used[sender]:
            del self._used[sender]

    def is_alone(self, sender: str) -> bool:
        return not self._used.keys() - {sender}

    def has_room(self, sender: str, most: int) -> bool:
        """Whether the sender may have one more, if all of them may have `most`."""
        is_above = not self.is_alone(sender) and self._used[sender] >= self._share(sender, most)
        return self.total < (most - int(most * self.reserve) if is_above else most)

    def giver(self, sender: str, most: int) -> tuple[str, int] | None:
        """Who must make room at the limit, so that the sender gets its share, and how much it has above its own.

        None if the sender has its share already.
        """
        share = self._share(sender, most)
        largest = max(self._used, key=self._used.__getitem__, default=sender)
        has_most = self._used[largest]
        return (largest, has_most - share) if self._used[sender] < min(share, has_most) else None

    def why_full(self, sender: str, most: int, what: str) -> str:
        """Why a sender gets no more `what`."""
        if self.is_alone(sender):
            return f"{most} {what} are pushed, which is the limit"
        return f"no room for more {what}: {self.total} of {most} are in use, and {sender} has its share"

    def _share(self, sender: str, most: int) -> int:
        return most // len(self._used.keys() | {sender})
