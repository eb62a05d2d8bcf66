"""The command line as reports and models keep it: without directory names, and without passwords in addresses."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def recorded_command() -> str:
    return shlex.join(["twin", *map(_without_place, sys.argv[1:])])


def _without_place(word: str) -> str:
    """
    >>> _without_place("/home/ada/day1"), _without_place("--out=/home/ada/model"), _without_place(".")
    ('day1', '--out=model', '.')
    >>> _without_place("https://ada:secret@mlflow.example.org")
    'mlflow.example.org'
    """
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    name = Path(value).name or value
    return option + equals + (name.rpartition("@")[2] if "://" in value else name)
