"""Names and patterns such as `n0*` -> whether a name matches one of them. Compiled once, remembered for each name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

from clustertwin.core.errors import SettingsError

LONGEST = 255  # characters of a name or pattern, as of the names of nodes and jobs
MOST_WILDCARDS = 8  # of one pattern: the time to match grows with them
MOST_REMEMBERED = 100_000  # names
_WILDCARDS = frozenset("*?[")


def is_pattern(text: str) -> bool:
    return not _WILDCARDS.isdisjoint(text)


def matches(name: str, pattern: str) -> bool:
    """Whether the name equals the pattern or matches it. Names such as [::1]:9752 and job[3] look like patterns."""
    return name == pattern or (is_pattern(pattern) and _compiled(pattern).match(name) is not None)


def only(name: str) -> str:
    r"""A pattern for this name in a form, where spaces and commas part names. It has wildcards only if it must.

    >>> only("n01"), only("job[3]"), only("n0*"), only("n01 n02")
    ('n01', 'job[3]', 'n0[*]', 'n01?n02')
    """
    if not re.search(r"[*?\s,]", name):
        return name
    return re.sub(r"[\s,]", "?", re.sub(r"[*?[]", r"[\g<0>]", name))


class NamePatterns:
    """Names and patterns. It remembers the names that were compared with it."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._names = frozenset(texts)
        self._patterns = tuple(_compiled(text) for text in self._names if is_pattern(text))
        self._known: dict[str, bool] = {}

    def match(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            known = name in self._names or any(pattern.match(name) for pattern in self._patterns)
            self._known[name] = known
        return known


def check(texts: Iterable[str]) -> None:
    """Raise if a text is too long, or has too many wildcards."""
    for text in texts:
        if len(text) > LONGEST:
            raise SettingsError(f"{text[:20]!r}…: a name or pattern may have at most {LONGEST} characters")
        if sum(map(text.count, _WILDCARDS)) > MOST_WILDCARDS:
            raise SettingsError(f"{text!r}: a pattern may have at most {MOST_WILDCARDS} wildcards")


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))
