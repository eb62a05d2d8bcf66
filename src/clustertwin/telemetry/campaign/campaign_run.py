"""Run a campaign, directly or through Slurm: settings and a directory -> its rounds and their summary."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.telemetry.campaign.campaign_report import JobTypeSummary, summarise
from clustertwin.telemetry.campaign.catalogue import find_type
from clustertwin.telemetry.campaign.launcher import Launcher
from clustertwin.telemetry.campaign.local_launcher import DirectLauncher
from clustertwin.telemetry.campaign.plan import AvailableCpus, CampaignSettings, PlannedJob
from clustertwin.telemetry.campaign.recorded_rounds import CampaignHost, RoundOutcome, RoundProgress, run_rounds
from clustertwin.telemetry.campaign.slurm_launcher import SlurmLauncher


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """The rounds of a complete campaign and the summary of their windows."""

    rounds: list[RoundOutcome]
    table: list[JobTypeSummary]

    @property
    def failures(self) -> dict[str, str]:
        return {
            f"round {outcome.round} {name}": reason
            for outcome in self.rounds
            for name, reason in outcome.failures.items()
        }


def run_campaign(
    out: Path,
    settings: CampaignSettings,
    *,
    via: str = "direct",
    nodes: Mapping[str, tuple[int, ...]] | None = None,
    scratch: Path | None = None,
    window_s: int = 100,
    report: Callable[[RoundProgress], None] = lambda _: None,
) -> CampaignResult:
    """Run the missing rounds and summarise all of them; `nodes` defaults to this host with its usable CPUs."""
    hostname = socket.gethostname().partition(".")[0]
    node_cpus = dict(nodes or {hostname: tuple(sorted(os.sched_getaffinity(0)))})
    counts = [len(cpus) for cpus in node_cpus.values()]
    if via not in ("direct", "slurm"):
        raise SettingsError(f"--via must be direct or slurm, not {via!r}")
    if via == "direct" and len(node_cpus) > 1:
        raise SettingsError("several nodes on one host are possible only with --via slurm")
    if len(set(counts)) > 1:
        raise SettingsError("all nodes of a campaign must have the same number of CPUs")
    require("scipy", "campaign")  # a missing package should be reported before a round begins
    if any(find_type(name).mpi for name in settings.types) or settings.anomalies:
        require("mpi4py", "campaign")
    available = AvailableCpus.cluster(len(counts), counts[0]) if via == "slurm" else AvailableCpus.host(counts[0])

    def make_launcher(jobs: Sequence[PlannedJob], directory: Path, prefix: str) -> Launcher:
        if via == "slurm":
            return SlurmLauncher(jobs, node_cpus, directory, prefix)
        ((node, cpus),) = node_cpus.items()
        return DirectLauncher(jobs, node, cpus, directory, settings.settle_s, prefix)

    host = CampaignHost(node_cpus, available, make_launcher, via, scratch)
    return CampaignResult(run_rounds(out, settings, host, report=report), summarise(out, window_s))
