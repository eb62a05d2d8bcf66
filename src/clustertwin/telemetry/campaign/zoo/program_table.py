"""The table of real programs: name -> kind, shell command, the command that makes its inputs, and its version.

A command is repeated until the run ends. It runs in an empty folder, and finds `$INPUTS` (made once by `inputs`),
`$DECKS` (input texts of this package), `$PROGRAMS` (programs of this package), `$PYTHON`, `$THREADS` and `$RANKS`.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Literal

from clustertwin.core.errors import SettingsError

Kind = Literal["serial", "threads", "MPI"]


@dataclass(frozen=True, slots=True)
class Program:
    """A row of the table."""

    about: str
    kind: Kind
    command: str
    version: str  # its first line of output
    inputs: str = ""
    needs: tuple[str, ...] = ()  # executables

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in self.needs if shutil.which(name) is None)


_SEQUENCES = '"$PYTHON" "$PROGRAMS/random_sequences.py"'

PROGRAMS: dict[str, Program] = {
    "lammps": Program(
        "molecular dynamics of a Lennard-Jones melt, 4,000 atoms",
        "MPI",
        'mpirun -n $RANKS lmp -in "$DECKS/melt.lammps" -log none',
        "lmp -h | grep -m1 -i 'Large-scale'",
        needs=("lmp", "mpirun"),
    ),
}


def find_program(name: str) -> Program:
    if name not in PROGRAMS:
        raise SettingsError(f"unknown program {name!r}; available programs: {', '.join(PROGRAMS)}")
    return PROGRAMS[name]
