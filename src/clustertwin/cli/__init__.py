"""The `twin` command: a visible table of command groups, each imported only when it is called."""

from __future__ import annotations

import sys

#: name -> (import string of a typer app or command, its line in `twin --help`)
COMMANDS: dict[str, tuple[str, str]] = {
    "doctor": ("clustertwin.cli.doctor:app", "What is installed, reachable and missing on this machine."),
    "up": ("clustertwin.cli.up:app", "Watch this machine, or replay a recording, in the browser."),
    "serve": ("clustertwin.cli.serve:app", "Watch a cluster through Prometheus or its exporters."),
    "events": ("clustertwin.cli.events:app", "List and show events, and give verdicts."),
    "maintenance": ("clustertwin.cli.maintenance:app", "List, add and end maintenance windows."),
    "silence": ("clustertwin.cli.silence:app", "List, add and end silences."),
    "audit": ("clustertwin.cli.audit:app", "Show who did what: verdicts, promotions, silences, tokens."),
    "job": ("clustertwin.cli.job:app", "Print the report of a job, with the Slurm directive to change."),
    "token": ("clustertwin.cli.token:app", "Add, list and remove tokens."),
    "exporter": ("clustertwin.cli.exporter:app", "Serve this node's kernel metrics to Prometheus."),
    "top": ("clustertwin.cli.top:app", "Watch this host, or a service, in the terminal."),
    "record": ("clustertwin.cli.record:app", "Record this host, an exporter or a Prometheus range."),
    "recording": ("clustertwin.cli.recording:app", "Recordings: info, windows, export."),
    "campaign": ("clustertwin.cli.campaign:app", "Labelled jobs: run for real and recorded, or simulated."),
    "study": ("clustertwin.cli.study:app", "The reference study: sampling, reconstruction, detection, separability."),
    "train": ("clustertwin.cli.train:app", "Train an autoencoder on recordings."),
    "model": ("clustertwin.cli.model:app", "Models: list, show, promote, rollback."),
    "learn": ("clustertwin.cli.learn:app", "Learning: run, simulate, timing, freeze, resume."),
    "digest": ("clustertwin.cli.digest:app", "Summarise the last week: events, verdicts, false alarms."),
    "trace": ("clustertwin.cli.trace:app", "Job logs: convert, describe, clean, anonymise, generate, compare."),
    "sched": ("clustertwin.cli.sched:app", "Schedule job logs: simulate, train, study, what-if."),
}


def main() -> None:
    """Run `twin`; errors of our own tree become one line and their exit code."""
    if sys.argv[1:2] == ["exporter"]:
        # The node's agent pays for no command line it does not use (25 MB on every node of a cluster).
        from clustertwin.telemetry.exporter.__main__ import main as exporter

        sys.exit(exporter(sys.argv[2:]))
    from clustertwin.cli.app import run

    sys.exit(run(COMMANDS))
