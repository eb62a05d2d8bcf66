"""Run a campaign, directly or through Slurm: settings and a directory -> its rounds and the table of what they gave."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.telemetry.campaign.campaign_report import Row, summarise
from clustertwin.telemetry.campaign.catalogue import find_type
from clustertwin.telemetry.campaign.launcher import Launcher
from clustertwin.telemetry.campaign.local_launcher import DirectLauncher
from clustertwin.telemetry.campaign.plan import CampaignSettings, Planned, Room
from clustertwin.telemetry.campaign.recorded_rounds import Outcome, Progress, run_rounds
from clustertwin.telemetry.campaign.slurm_launcher import SlurmLauncher


@dataclass(frozen=True, slots=True)
class Campaign:
    """A complete campaign."""

    rounds: list[Outcome]
    table: list[Row]

    @property
    def failures(self) -> dict[str, str]:
        return {f"round {each.round} {name}": why for each in self.rounds for name, why in each.failures.items()}


def run_campaign(
    out: Path,
    settings: CampaignSettings,
    *,
    via: str = "direct",
    nodes: Mapping[str, tuple[int, ...]] | None = None,
    scratch: Path | None = None,
    window_s: int = 100,
    report: Callable[[Progress], None] = lambda _: None,
) -> Campaign:
    """Run the rounds that are missing, sum up all of them; `nodes` defaults to this host with the CPUs we may use."""
    host = socket.gethostname().partition(".")[0]
    recorded = dict(nodes or {host: tuple(sorted(os.sched_getaffinity(0)))})
    cpus = [len(mine) for mine in recorded.values()]
    if via not in ("direct", "slurm"):
        raise SettingsError(f"jobs run direct or through slurm, not {via!r}")
    if via == "direct" and len(recorded) > 1:
        raise SettingsError("several nodes on one host make sense only --via slurm")
    if len(set(cpus)) > 1:
        raise SettingsError("all nodes of a campaign must have the same number of CPUs")
    require("scipy", "campaign")  # now, and not by a job that dies in the middle of a round
    if any(find_type(name).mpi for name in settings.types) or settings.anomalies:
        require("mpi4py", "campaign")
    room = Room.cluster(len(cpus), cpus[0]) if via == "slurm" else Room.host(cpus[0])

    def launcher(jobs: Sequence[Planned], where: Path, prefix: str) -> Launcher:
        if via == "slurm":
            return SlurmLauncher(jobs, recorded, where, prefix)
        ((node, mine),) = recorded.items()
        return DirectLauncher(jobs, node, mine, where, settings.settle_s, prefix)

    rounds = run_rounds(out, settings, recorded, room, launcher, via=via, scratch=scratch, report=report)
    return Campaign(rounds, summarise(out, window_s))
