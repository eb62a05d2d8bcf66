"""`twin campaign`: labelled jobs, run for real on this host or through Slurm, or simulated for whole clusters."""

from __future__ import annotations

from clustertwin.cli import campaign_run, simulation
from clustertwin.cli.app import group

app = group("Labelled jobs: run them for real, or simulate a cluster of them.")
app.command("run")(campaign_run.run)
app.command("types")(campaign_run.types)
app.command("simulate")(simulation.simulate)
app.command("fit")(simulation.fit)
app.command("compare")(simulation.compare)
