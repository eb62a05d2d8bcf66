"""Prepare a program of the zoo: a row of the table -> its environment, its folder of inputs, its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from clustertwin.core import files
from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.zoo.program_table import Kind, ZooProgram, find_program

_FOLDER = Path(__file__).parent


def program_environment(inputs: Path, cpus: int, kind: Kind = "serial") -> dict[str, str]:
    """What the shell commands of the table can rely on. An MPI program has a rank for each CPU, of one thread each."""
    threads = 1 if kind == "MPI" else cpus
    numeric = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    source = _FOLDER.parents[3]
    return {
        **os.environ,
        **dict.fromkeys(numeric, str(threads)),
        "INPUTS": str(inputs),
        "DECKS": str(_FOLDER / "decks"),
        "PROGRAMS": str(_FOLDER / "programs"),
        "PYTHON": sys.executable,
        "PYTHONPATH": str(source),
        "THREADS": str(threads),
        "RANKS": str(cpus),
        "LC_ALL": "C.UTF-8",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    }


def prepare_inputs(name: str, cache: Path) -> Path:
    """The folder of a program's inputs; made once, by the command of its row."""
    program, folder = find_program(name), cache / name
    if folder.exists():
        return folder
    draft = cache / f".{name}.new"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    done = subprocess.run(
        ["bash", "-ec", program.inputs or ":"],
        cwd=draft,
        env=program_environment(draft, 1),
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise SettingsError(f"{name}: the inputs could not be made: {(done.stderr or done.stdout)[-600:].strip()}")
    files.publish_directory(draft, folder)
    return folder


def version_of(program: ZooProgram) -> str:
    """What the version command prints, up to the version itself."""
    done = subprocess.run(
        ["bash", "-c", program.version],
        env=program_environment(_FOLDER, 1),
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )
    return parse_version(done.stdout + done.stderr)


def parse_version(text: str) -> str:
    """The first line, up to the first number with a dot.

    >>> parse_version("*** Zstandard CLI (64-bit) v1.5.4, by its author ***\\n"), parse_version("29 Sep 2021\\nUsage")
    ('Zstandard CLI (64-bit) v1.5.4', '29 Sep 2021')
    """
    line = next((line for line in text.splitlines() if line.strip()), "unknown")
    numbered = re.match(r".*?\d+\.\d[\w.+~-]*", line)
    return " ".join((numbered[0] if numbered else line).strip("*# ").split())[:120]
