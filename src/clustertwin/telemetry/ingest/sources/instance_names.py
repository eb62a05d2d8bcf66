"""Names of the nodes behind a Prometheus: instances and what their info metrics say -> a name for each, all different.

A name belongs to the instance that had it first, until that one has been silent for a while. Another that claims it is
refused: the values of both would be mixed, or the holder would begin anew under another name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from clustertwin.core.formatting import visible

#: A name is held for this long after the last answer with its holder.
HELD_S = 300.0
#: Holders that are kept, the newest. Prometheus may have a new instance in every answer.
MOST_HELD = 100_000


class InstanceNames:
    def __init__(self) -> None:
        self._held: dict[str, tuple[str, float]] = {}  # instance -> its name, and the end of the last answer with it

    def of(
        self, instances: Sequence[str], said: Mapping[str, str], end_s: float
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Instance -> its name, and for those that are refused, why. `said` has the names in the info metrics."""
        held = {instance: entry for instance, entry in self._held.items() if abs(end_s - entry[1]) < HELD_S}
        holder = {name: instance for instance, (name, _) in held.items()}
        claimed = {i: visible(said.get(i) or i.rpartition(":")[0] or i) for i in instances}
        refused = {
            instance: f"says that it is {name}, but {visible(holder[name])} has that name; its data is refused"
            for instance, name in claimed.items()
            if holder.get(name, instance) != instance
        }
        names = _distinct({i: name for i, name in claimed.items() if i not in refused}, instances)
        for instance, name in names.items():
            held.pop(instance, None)
            held[instance] = name, end_s
        self._held = dict(list(held.items())[-MOST_HELD:])
        return names, refused


def _distinct(names: Mapping[str, str], instances: Sequence[str]) -> dict[str, str]:
    """Nodes with equal names keep their addresses.

    So does a node that claims the address of another as its name: the two would be mixed. Names are compared as they
    are shown.
    """
    taken = Counter([*names.values(), *map(visible, instances)])
    return {
        instance: name if taken[name] == 1 or (taken[name] == 2 and name == visible(instance)) else instance
        for instance, name in names.items()
    }
