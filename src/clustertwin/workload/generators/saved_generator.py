"""Fitted generators on disk: a directory with `generator.json` and `arrays.npz`. Data only, never pickle."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.errors import InputError
from clustertwin.core.foreign_files import open_regular, parse_json, read_regular
from clustertwin.workload.generators.contract import Fitted, GeneratorState
from clustertwin.workload.jobs import COLUMNS, Jobs, Machine

FORMAT = 1
#: Of the facts, which name the users of a log.
MOST_BYTES = 1 << 28
#: Bytes of arrays for each byte of their file, and what a small file may have. Ours have fewer than 50; a small file of
#: zeros could fill the memory.
MOST_UNPACKED, ANY_BYTES = 200, 64 << 20


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
    """The name and the data of a saved generator, which somebody else may have written."""
    path = directory / "generator.json"
    try:
        document = parse_json(read_regular(path, MOST_BYTES))
        arrays = _read_arrays(directory / "arrays.npz")
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(directory, f"the directory has no saved generator ({error})") from error
    if not isinstance(document, dict) or not isinstance(document.get("facts"), dict):
        raise InputError(path, "not the facts of a saved generator")
    if document.get("format") != FORMAT:
        raise InputError(path, f"the file has format {document.get('format')!r}; this version reads format {FORMAT}")
    return str(document.get("generator")), GeneratorState(document["facts"], arrays)


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file. They are counted before they are unpacked."""
    with open(open_regular(path), "rb") as file, zipfile.ZipFile(file) as archive:
        size, unpacked = os.fstat(file.fileno()).st_size, sum(entry.file_size for entry in archive.infolist())
        if unpacked > max(MOST_UNPACKED * size, ANY_BYTES):
            raise ValueError(f"{unpacked:,} bytes of arrays in {size:,} bytes: no job log is so regular")
        file.seek(0)
        with np.load(file, allow_pickle=False) as saved:
            return {name: saved[name] for name in saved.files}


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
    return Jobs.build(**columns, machine=machine, names=names, **about)
