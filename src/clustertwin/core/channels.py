"""What is measured each second on each thread: named channels in simplex groups, or bounded on their own.

A schema is the one agreement between collectors, recordings, windows and models. Every value lies in
[0, 1] by its meaning, so nothing is ever scaled by data. The channels of a simplex group sum to one.
"""

from __future__ import annotations

from dataclasses import dataclass

from clustertwin.core.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Channel:
    """One ratio; `group` names the simplex it belongs to, or is empty for a bounded channel on its own."""

    name: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """An ordered set of channels."""

    channels: tuple[Channel, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.channels):
            raise SettingsError(f"channel names must differ: {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.channels)

    def index(self, name: str) -> int:
        if name not in self.names:
            raise SettingsError(f"no channel {name!r}; there are {', '.join(self.names)}")
        return self.names.index(name)

    @property
    def simplexes(self) -> dict[str, tuple[int, ...]]:
        """Group name -> the indices of its channels, which sum to one."""
        groups: dict[str, list[int]] = {}
        for i, channel in enumerate(self.channels):
            if channel.group:
                groups.setdefault(channel.group, []).append(i)
        return {name: tuple(indices) for name, indices in groups.items()}

    @property
    def bounded(self) -> tuple[int, ...]:
        """Indices of the channels that stand alone in [0, 1]."""
        return tuple(i for i, channel in enumerate(self.channels) if not channel.group)

    def __len__(self) -> int:
        return len(self.channels)

    def __add__(self, other: Schema) -> Schema:
        return Schema(self.channels + other.channels)

    def to_json(self) -> list[dict[str, str]]:
        return [{"name": channel.name, "group": channel.group} for channel in self.channels]

    @classmethod
    def from_json(cls, rows: list[dict[str, str]]) -> Schema:
        return cls(tuple(Channel(row["name"], row.get("group", "")) for row in rows))


#: Where a hardware thread's second went. `other` holds idle, irq, steal and the rest.
CPU = Schema(tuple(Channel(name, "cpu") for name in ("user", "system", "iowait", "other")))

#: Optional company, the same for every thread of a node.
NODE = Schema((Channel("memory_used"), Channel("io_pressure")))
