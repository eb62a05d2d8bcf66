"""Fitted generators on disk: a directory with `generator.json` and `arrays.npz`. Data only, never pickle."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from clustertwin.core import files
from clustertwin.core.errors import InputError
from clustertwin.workload.generators.contract import Fitted, GeneratorState
from clustertwin.workload.jobs import COLUMNS, Jobs, Machine

FORMAT = 1


def save(fitted: Fitted, name: str, directory: Path, force: bool = False) -> None:
    """Write the generator `name` to a directory, which is created if needed."""
    state = fitted.state()
    document = directory / "generator.json"
    files.refuse_existing(document, force)
    files.make_directory(directory)
    # The JSON is removed first and written last: a directory that has it is complete.
    document.unlink(missing_ok=True)
    with files.replacing(directory / "arrays.npz") as out:
        np.savez_compressed(out, allow_pickle=False, **state.arrays)
    files.write(document, json.dumps({"format": FORMAT, "generator": name, "facts": state.facts}, indent=1))


def read_state(directory: Path) -> tuple[str, GeneratorState]:
    """The name and the data of a saved generator."""
    path = directory / "generator.json"
    try:
        document = json.loads(path.read_text())
        with np.load(directory / "arrays.npz", allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise InputError(directory, f"the directory has no saved generator ({error})") from error
    if document.get("format") != FORMAT:
        raise InputError(path, f"the file has format {document.get('format')!r}; this version reads format {FORMAT}")
    return str(document["generator"]), GeneratorState(document["facts"], arrays)


def jobs_state(jobs: Jobs, **facts: Any) -> GeneratorState:
    """A state that holds a job table."""
    about = {"epoch_s": jobs.epoch_s, "machine": asdict(jobs.machine), "timezone": jobs.timezone,
             "names": {column: list(words) for column, words in jobs.names.items()}}  # fmt: skip
    return GeneratorState({"log": about, **facts}, dict(jobs.columns()))


def jobs_from(state: GeneratorState) -> Jobs:
    """The job table of such a state."""
    about = dict(state.facts["log"])
    names = {column: tuple(words) for column, words in about.pop("names").items()}
    machine = Machine(**about.pop("machine"))
    columns: dict[str, Any] = {name: state.arrays[name] for name in COLUMNS}
    return Jobs(**columns, machine=machine, names=names, **about)
