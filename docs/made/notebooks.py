"""Execute the notebooks of the documentation in place, so that the site shows their results.

python docs/made/notebooks.py [NAME …]    two minutes; more at first, for compiling
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def execute(path: Path, timeout_s: int = 600) -> nbformat.NotebookNode:
    """The notebook with its results. It runs in a directory of its own; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as directory:
        client = NotebookClient(
            notebook,
            timeout=timeout_s,
            startup_timeout=timeout_s,
            kernel_name="python3",
            resources={"metadata": {"path": directory}},
        )
        executed = client.execute()
    for cell in executed.cells:
        cell.get("metadata", {}).pop("execution", None)  # when each cell ran: noise in a diff
    return executed


def main(names: list[str]) -> None:
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not names or path.stem in names:
            begun_s = time.monotonic()
            executed = execute(path)
            nbformat.write(executed, path)
            print(f"{path.name}: {time.monotonic() - begun_s:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
