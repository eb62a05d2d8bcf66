"""Synthetic job logs: a log -> a fitted generator -> jobs. The generators are a table; plug-ins add entry points."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.extras import load as load_object
from clustertwin.workload.generators.contract import Fitted, Generator, GeneratorState
from clustertwin.workload.generators.saved_generator import read_state, save
from clustertwin.workload.generators.workload_change import ModelledLog, WorkloadChange

__all__ = ["DEFAULT", "GENERATORS", "Fitted", "Generator", "GeneratorEntry", "GeneratorState", "ModelledLog",
           "WorkloadChange", "load", "make", "names", "save"]  # fmt: skip

#: Entry point group for plug-ins: name -> import string of a class without required arguments.
ENTRY_POINTS = "clustertwin.generators"


@dataclass(frozen=True, slots=True)
class GeneratorEntry:
    """A row of the table."""

    settings: str  # import string of the Generator
    fitted: str  # import string of its Fitted
    summary: str


_HERE = "clustertwin.workload.generators"

GENERATORS: dict[str, GeneratorEntry] = {
    "crossover": GeneratorEntry(f"{_HERE}.crossover:Crossover", f"{_HERE}.crossover:FittedCrossover",
                                "replay with variation: recombines users' sessions, keeps arrivals (default)"),
    "private": GeneratorEntry(f"{_HERE}.private:Private", f"{_HERE}.private:FittedPrivate",
                              "noisy counts of users' habits, with user-level differential privacy (extra privacy)"),
    "site-model": GeneratorEntry(f"{_HERE}.site_model:SiteModel", f"{_HERE}.site_model:FittedSiteModel",
                                 "learns users, sessions and weeks; holds no job, and forecasts"),
    "bootstrap": GeneratorEntry(f"{_HERE}.bootstrap:Bootstrap", f"{_HERE}.bootstrap:FittedBootstrap",
                                "draws real jobs independently; a baseline"),
    "lublin": GeneratorEntry(f"{_HERE}.lublin:Lublin", f"{_HERE}.lublin:FittedLublin",
                             "the model of Lublin and Feitelson (1999), fitted; no users, no limits"),
    "gaussian-copula": GeneratorEntry(f"{_HERE}.gaussian_copula:GaussianCopula",
                                      f"{_HERE}.gaussian_copula:FittedCopula",
                                      "real marginals with Gaussian dependence"),
    "findiff": GeneratorEntry(f"{_HERE}.findiff:FinDiff", f"{_HERE}.findiff:FittedFinDiff",
                              "a diffusion model of mixed-type rows, 45 minutes of its training (extra models)"),
    "ctgan": GeneratorEntry(f"{_HERE}.sdv:Ctgan", f"{_HERE}.sdv:FittedSdv", "a GAN of rows, from SDV (extra sdv)"),
    "tvae": GeneratorEntry(f"{_HERE}.sdv:Tvae", f"{_HERE}.sdv:FittedSdv",
                           "a variational autoencoder of rows, from SDV (extra sdv)"),
    "copulagan": GeneratorEntry(f"{_HERE}.sdv:CopulaGan", f"{_HERE}.sdv:FittedSdv",
                                "a GAN of ranks, from SDV (extra sdv)"),
    "realtabformer": GeneratorEntry(f"{_HERE}.realtabformer:RealTabFormer",
                                    f"{_HERE}.realtabformer:FittedRealTabFormer",
                                    "a GPT-2 that writes rows, 45 minutes of its training (extra realtabformer)"),
}  # fmt: skip

DEFAULT = "crossover"


def names() -> tuple[str, ...]:
    """All generators: the table first, then plug-ins."""
    return (*GENERATORS, *sorted(point.name for point in entry_points(group=ENTRY_POINTS)))


def make(name: str = DEFAULT) -> Generator:
    """A generator with its default settings. A missing extra is reported when the generator is fitted."""
    if name in GENERATORS:
        return cast(Generator, load_object(GENERATORS[name].settings)())
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return cast(Generator, point.load()())
    raise SettingsError(f"unknown generator {name!r}; use one of {', '.join(names())}")


def load(directory: Path) -> Fitted:
    """The generator that `save` wrote to a directory."""
    name, state = read_state(directory)
    if name not in GENERATORS:
        raise SettingsError(f"{directory}: the generator {name!r} cannot be loaded; it is not in the table")
    try:
        return cast(Fitted, load_object(GENERATORS[name].fitted).from_state(state))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(directory, f"its data is not that of the generator {name!r}: {error!r:.200}") from error
