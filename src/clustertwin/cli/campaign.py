"""`twin campaign`: run labelled jobs on this host or through Slurm, or simulate a whole cluster of them."""

from __future__ import annotations

from clustertwin.cli import campaign_run, campaign_simulate
from clustertwin.cli.app import group

app = group("Run labelled jobs and record them, or simulate a cluster of them.")
app.command("run")(campaign_run.run)
app.command("types")(campaign_run.types)
app.command("simulate")(campaign_simulate.simulate)
app.command("fit")(campaign_simulate.fit)
app.command("compare")(campaign_simulate.compare)
