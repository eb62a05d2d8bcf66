"""Slurm's configuration files -> their entries with file and line: comments, continuations, Include, quotes.

An entry is one logical line: keys are lower case, since Slurm ignores their case, and values stand as written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clustertwin.core.errors import InputError
from clustertwin.core.foreign_files import read_regular

_PAIR = re.compile(r'\s*([A-Za-z][\w.]*)\s*[-*+/]?=\s*("([^"]*)"|\S*)')
_INCLUDE = re.compile(r"include\s+(\S.*)$", re.IGNORECASE)
#: A slurm.conf of a large site has 100 KB, and a dump of its accounts a few megabytes.
MOST_BYTES = 1 << 28
#: A file that includes itself, directly or not, is refused at this depth.
DEEPEST_INCLUDE = 20
#: Twenty files, each of which includes the next one twice, would be read a million times.
MOST_FILES = 1000


class SiteError(InputError):
    """A site's configuration."""


@dataclass(frozen=True, slots=True)
class ConfEntry:
    """One logical line: its place and its pairs, in order; the first key says what kind of entry it is."""

    file: str
    line: int
    pairs: tuple[tuple[str, str], ...]

    @property
    def kind(self) -> str:
        return self.pairs[0][0]

    @property
    def values(self) -> dict[str, str]:
        return dict(self.pairs)

    def error(self, reason: str) -> SiteError:
        return SiteError(self.file, reason, self.line)


def read_entries(path: Path) -> list[ConfEntry]:
    """A file and the files that it includes, in order."""
    return list(_Includes(path.parent).entries(path, 0))


class _Includes:
    """Follows Include. As in Slurm, names are relative to the directory of slurm.conf, and %c is the ClusterName."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._cluster, self._files = directory, "", 0

    def entries(self, path: Path, depth: int) -> Iterator[ConfEntry]:
        self._files += 1
        if self._files > MOST_FILES:
            raise SiteError(path, f"more than {MOST_FILES} files are included")
        if depth > DEEPEST_INCLUDE:
            raise SiteError(path, f"Include is nested more than {DEEPEST_INCLUDE} times; does a file include itself?")
        for number, text in logical_lines(read_text(path)):
            if include := _INCLUDE.match(text):
                yield from self.entries(self._target(include[1], path, number), depth + 1)
                continue
            entry = ConfEntry(str(path), number, parse_pairs(text, path, number))
            self._cluster = entry.values.get("clustername", self._cluster)
            yield entry

    def _target(self, text: str, path: Path, line: int) -> Path:
        name = text.strip().strip('"')
        if "%c" in name and not self._cluster:
            raise SiteError(path, f"Include {name}: ClusterName must be set before it", line)
        name = name.replace("%c", self._cluster)
        for directory in (self._directory, path.parent):
            if os.path.isfile(directory / name):  # Path.is_file() raises an error if the name is too long
                return directory / name
        raise SiteError(path, f"Include {name}: there is no such file", line)


def read_text(path: Path) -> str:
    """A text file in UTF-8, or in UTF-16 where a byte order mark says so. Comments may have another encoding."""
    try:
        content = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise SiteError(path, error.strerror or str(error)) from error
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            return content.decode("utf-16")
        except UnicodeDecodeError as error:
            raise SiteError(path, f"the file begins like UTF-16 text and is damaged: {error.reason}") from error
    text = content.decode("utf-8-sig", "surrogateescape")
    for number, line in logical_lines(text) if not text.isascii() else ():
        if any("\udc80" <= letter <= "\udcff" for letter in line):
            raise SiteError(path, f"{ascii(line)[1:41]}… is not UTF-8 text", number)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank lines; a backslash at the end joins the next line."""
    held, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        part = re.split(r"(?<!\\)#", line, maxsplit=1)[0].rstrip()
        first = first or number
        if part.endswith("\\") and part == line.rstrip():
            held += part[:-1] + " "
            continue
        joined = (held + part).strip()
        if joined:
            yield first, joined.replace("\\#", "#")
        held, first = "", 0
    if held.strip():
        yield first, held.strip()


def parse_pairs(text: str, path: Path | str, line: int) -> tuple[tuple[str, str], ...]:
    """`NodeName=n[1-2] CPUs=4` -> pairs; anything else on the line is an error with its place."""
    pairs, at = [], 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None:
            raise SiteError(path, f"{text[at:].strip()[:40]!r} is not Key=value", line)
        pairs.append((match[1].lower(), match[3] if match[3] is not None else match[2]))
        at = match.end()
        while at < len(text) and text[at].isspace():
            at += 1
    return tuple(pairs)
