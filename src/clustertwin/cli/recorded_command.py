"""The command line as reports and models keep it: without directory names, which say where a person stores data."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def recorded_command() -> str:
    return shlex.join(["twin", *(Path(word).name or word for word in sys.argv[1:])])
