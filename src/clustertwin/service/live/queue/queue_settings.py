"""Settings of the forecasts of starts: the site, the log of the past, how often they are made, and their budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class QueueSettings:
    site: str = ""  # a directory with slurm.conf, or a .toml file
    past: str = ""  # a job log; with a site a sacct log
    every_s: float = 120.0  # between two forecasts
    budget_s: float = 60.0  # a forecast that takes longer is given up
    futures: int = 20
    hours: float = 24.0  # for which new jobs are drawn from the past

    @property
    def on(self) -> bool:
        """Without a site and without a past, Slurm is not asked."""
        return bool(self.site or self.past)

    def command(self, verb: Literal["start", "try"] = "start") -> list[str]:
        """The arguments of `twin` that make a forecast, or that try a change."""
        words = ["sched", verb, "--json", "--futures", str(self.futures), "--hours", f"{self.hours:g}"]
        for option, value in (("--site", self.site), ("--past", self.past)):
            words += [option, value] if value else []
        return words
