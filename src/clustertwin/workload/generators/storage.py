"""Fitted generators on disk: a directory with `generator.json` and `arrays.npz`; data only, never pickle."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from clustertwin.core.errors import InputError, OutputError
from clustertwin.workload.generators.contract import Fitted, State
from clustertwin.workload.jobs import COLUMNS, Jobs, Machine

FORMAT = 1


def save(fitted: Fitted, name: str, directory: Path, force: bool = False) -> None:
    """Write what `name` has learnt; the directory is made."""
    state = fitted.state()
    if (directory / "generator.json").exists() and not force:
        raise OutputError(f"{directory} already holds a generator; --force overwrites it")
    directory.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(directory / "arrays.npz", allow_pickle=False, **state.arrays)
    # The JSON comes last: a directory with it is whole.
    text = json.dumps({"format": FORMAT, "generator": name, "facts": state.facts}, indent=1)
    (directory / "generator.json").write_text(text)


def read_state(directory: Path) -> tuple[str, State]:
    """The generator's name and what it has learnt."""
    path = directory / "generator.json"
    try:
        document = json.loads(path.read_text())
        with np.load(directory / "arrays.npz", allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise InputError(directory, f"no saved generator ({error})") from error
    if document.get("format") != FORMAT:
        raise InputError(path, f"format {document.get('format')!r}, this version reads {FORMAT}")
    return str(document["generator"]), State(document["facts"], arrays)


def jobs_state(jobs: Jobs, **facts: Any) -> State:
    """A state that holds a job table."""
    about = {"epoch_s": jobs.epoch_s, "machine": asdict(jobs.machine), "timezone": jobs.timezone,
             "names": {column: list(words) for column, words in jobs.names.items()}}  # fmt: skip
    return State({"log": about, **facts}, dict(jobs.columns()))


def jobs_from(state: State) -> Jobs:
    """The job table of such a state."""
    about = dict(state.facts["log"])
    names = {column: tuple(words) for column, words in about.pop("names").items()}
    machine = Machine(**about.pop("machine"))
    columns: dict[str, Any] = {name: state.arrays[name] for name in COLUMNS}
    return Jobs(**columns, machine=machine, names=names, **about)
