"""The command-line options that all job programs share: CPUs, scratch directory, seed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from clustertwin.telemetry.campaign.jobs.pinning import cpu_list


def parser(description: str) -> argparse.ArgumentParser:
    """A parser with `--cpus 0,1`, `--scratch DIR` and `--seed N`."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--cpus", type=cpu_list, default=tuple(sorted(os.sched_getaffinity(0))), help="e.g. 0,1,2")
    options.add_argument("--scratch", type=_directory, default=Path.cwd(), help="directory for the program's files")
    options.add_argument("--seed", type=int, default=0)
    return options


def _directory(text: str) -> Path:
    path = Path(text)
    path.mkdir(parents=True, exist_ok=True)
    return path
