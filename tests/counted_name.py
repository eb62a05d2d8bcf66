"""A name of a node that counts how often it is looked up in tables."""

from __future__ import annotations


class CountedName(str):
    """A name that counts how often it is looked up."""

    lookups = 0
    __slots__ = ()

    def __hash__(self) -> int:
        CountedName.lookups += 1
        return super().__hash__()
