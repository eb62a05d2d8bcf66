"""Synthetic job logs: a log -> a fitted generator -> jobs. A visible table; plug-ins join by entry point."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import load as load_object
from clustertwin.workload.generators.contract import Fitted, Generator, State
from clustertwin.workload.generators.storage import read_state, save
from clustertwin.workload.generators.whatif import WhatIf

__all__ = ["DEFAULT", "GENERATORS", "Entry", "Fitted", "Generator", "State", "WhatIf", "load", "make", "names", "save"]

#: Other packages add theirs here: name -> import string of a class without required arguments.
ENTRY_POINTS = "clustertwin.generators"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a generator's settings and its fitted form live, and what it is."""

    settings: str  # import string of the Generator
    fitted: str  # import string of its Fitted
    line: str


_HERE = "clustertwin.workload.generators"

GENERATORS: dict[str, Entry] = {
    "crossover": Entry(f"{_HERE}.crossover:Crossover", f"{_HERE}.crossover:Recombined",
                       "users' sessions recombined; keeps the order of arrivals (the default)"),
    "bootstrap": Entry(f"{_HERE}.bootstrap:Bootstrap", f"{_HERE}.bootstrap:Drawn",
                       "real jobs drawn one by one; the honest baseline"),
    "lublin": Entry(f"{_HERE}.lublin:Lublin", f"{_HERE}.lublin:FittedLublin",
                    "Lublin and Feitelson's model of 1999, fitted; no users, no limits"),
    "gaussian-copula": Entry(f"{_HERE}.gaussian_copula:GaussianCopula", f"{_HERE}.gaussian_copula:FittedCopula",
                             "real marginals, Gaussian dependence"),
    "findiff": Entry(f"{_HERE}.findiff:FinDiff", f"{_HERE}.findiff:FittedFinDiff",
                     "a diffusion model of mixed-type rows, in torch (extra models)"),
    "ctgan": Entry(f"{_HERE}.sdv:Ctgan", f"{_HERE}.sdv:FittedSdv", "a GAN of rows, through SDV (extra sdv)"),
    "tvae": Entry(f"{_HERE}.sdv:Tvae", f"{_HERE}.sdv:FittedSdv", "an autoencoder of rows, through SDV (extra sdv)"),
    "copulagan": Entry(f"{_HERE}.sdv:CopulaGan", f"{_HERE}.sdv:FittedSdv", "a GAN on ranks, through SDV (extra sdv)"),
    "realtabformer": Entry(f"{_HERE}.realtabformer:RealTabFormer", f"{_HERE}.realtabformer:FittedRealTabFormer",
                           "a small GPT-2 of rows (extra realtabformer)"),
}  # fmt: skip

DEFAULT = "crossover"


def names() -> tuple[str, ...]:
    """Every generator there is, ours first."""
    return (*GENERATORS, *sorted(point.name for point in entry_points(group=ENTRY_POINTS)))


def make(name: str = DEFAULT) -> Generator:
    """A generator with its default settings; a missing extra shows when it is fitted."""
    if name in GENERATORS:
        return cast(Generator, load_object(GENERATORS[name].settings)())
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return cast(Generator, point.load()())
    raise SettingsError(f"no generator {name!r}; there are {', '.join(names())}")


def load(directory: Path) -> Fitted:
    """What `save` wrote."""
    name, state = read_state(directory)
    if name not in GENERATORS:
        raise SettingsError(f"{directory}: no generator {name!r} that can be loaded")
    return cast(Fitted, load_object(GENERATORS[name].fitted).from_state(state))
