"""The `twin` command: a visible table of command groups, each imported only when it is called."""

from __future__ import annotations

import io
import os
import sys
import threading

#: name -> (import string of a typer app or command, its line in `twin --help`)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("clustertwin.cli.demo:app", "See a job hang on a simulated cluster, and the event that explains it."),
    "doctor": ("clustertwin.cli.doctor:app", "Check what is installed, reachable and missing on this machine."),
    "up": ("clustertwin.cli.up:app", "Watch this machine, or replay a recording, in the browser."),
    "serve": ("clustertwin.cli.serve:app", "Watch a cluster through Prometheus or its exporters."),
    "events": ("clustertwin.cli.events:app", "Events: list, show, confirm, dismiss, new-normal, undo."),
    "maintenance": ("clustertwin.cli.maintenance:app", "Maintenance windows: list, add, end."),
    "silence": ("clustertwin.cli.silence:app", "Silences: list, add, end."),
    "audit": ("clustertwin.cli.audit:app", "The audit log: verdicts, promotions, maintenance, tokens."),
    "act": ("clustertwin.cli.act:app", "Actions on jobs: list, show, approve, dismiss, resume, check, recover."),
    "savings": ("clustertwin.cli.savings:app", "What actions promised, and what they saved."),
    "job": ("clustertwin.cli.job:app", "The report of one job, with advice."),
    "token": ("clustertwin.cli.token:app", "Access tokens: add, list, remove, reopen."),
    "backup": ("clustertwin.cli.backup:backup_app", "Back up a home, also while its service runs."),
    "restore": ("clustertwin.cli.backup:restore_app", "Create a home from a backup."),
    "evidence": ("clustertwin.cli.evidence:app", "What a job's processes wait for: take, serve, show."),
    "exporter": ("clustertwin.cli.exporter:app", "Serve this node's kernel metrics to Prometheus."),
    "top": ("clustertwin.cli.top:app", "Threads live in the terminal, of this host or of a service."),
    "record": ("clustertwin.cli.record:app", "Record this host, an exporter or a Prometheus range."),
    "recording": ("clustertwin.cli.recording:app", "Recordings: info, windows, export."),
    "campaign": ("clustertwin.cli.campaign:app", "Labelled jobs: run and record them, or simulate them."),
    "study": ("clustertwin.cli.study:app", "The reference study: sampling, reconstruction, detection, separability."),
    "train": ("clustertwin.cli.train:app", "Train an autoencoder on recordings."),
    "model": ("clustertwin.cli.model:app", "Models: list, show, promote, rollback, sync."),
    "learn": ("clustertwin.cli.learn:app", "Learning: run, simulate, timing, freeze, resume."),
    "digest": ("clustertwin.cli.digest:app", "A summary of the week: events, verdicts, false alarms."),
    "trace": (
        "clustertwin.cli.trace:app",
        "Job logs: convert, describe, clean, anonymise, generate, compare, study, share, forecast.",
    ),
    "sched": (
        "clustertwin.cli.sched:app",
        "Schedule jobs: policies, training, what-if, starts of waiting jobs, a Slurm site.",
    ),
}

#: the parts of `twin --help` -> their commands
SECTIONS = {
    "Begin": ("demo", "up", "doctor"),
    "Watch": ("serve", "exporter", "top", "record", "recording"),
    "Judge and act": ("events", "digest", "job", "evidence", "act", "savings", "silence", "maintenance"),
    "Learn": ("learn", "model", "train", "campaign", "study"),
    "Job logs and scheduling": ("trace", "sched"),
    "Administer": ("token", "audit", "backup", "restore"),
}

#: command, or command and its first word -> the extra to name if a package of it is missing
NEEDED = {
    "doctor": "cli",
    "demo": "service",
    "up": "service",
    "serve": "service",
    "events": "service",
    "maintenance": "service",
    "silence": "service",
    "audit": "service",
    "act": "service",
    "savings": "service",
    "evidence": "service",
    "job": "service",
    "token": "service",
    "backup": "service",
    "restore": "service",
    "digest": "service",
    "top": "telemetry",
    "record": "telemetry",
    "recording": "telemetry",
    "campaign": "telemetry",
    "campaign run": "campaign",
    "campaign compare": "models",
    "study": "study",
    "train": "models",
    "model": "learn",
    "learn": "learn",
    "trace": "workload",
    "trace compare": "generate",
    "trace study": "generate",
    "trace share": "privacy",
    "sched": "workload",
    "sched train": "rl",
    "sched study": "rl",
}


#: Commands whose threads may wait for a server that never answers, when everything is stored and the process ends.
SERVING = ("serve", "up", "demo")
#: Such a thread keeps the process for this long at most.
LINGER_S = 10.0


def process() -> None:
    """The process `twin`. It ends soon after its command, whatever the threads of that do."""
    _make_streams_usable()
    try:
        main()
    except SystemExit as leaving:
        if sys.argv[1:2] and sys.argv[1] in SERVING:
            _end_within(LINGER_S, leaving.code)
        raise


def _make_streams_usable() -> None:
    """Open closed standard streams, and let no character end a command.

    Otherwise the next file that is opened takes the number of a closed stream, and receives what is printed. A
    terminal may not have a character, and a file name may have bytes that are not UTF-8.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """Run `twin`. Ctrl-C ends it without a traceback, also while it imports."""
    try:
        _main()
    except KeyboardInterrupt:
        sys.exit(130)


def _end_within(limit_s: float, code: object) -> None:
    """End the process even if a thread of a pool hangs: Python waits for those when it ends."""
    status = code if isinstance(code, int) else int(code is not None)
    timer = threading.Timer(limit_s, os._exit, (status,))
    timer.daemon = True
    timer.start()


def _main() -> None:
    """Errors of our own tree become one line and their exit code."""
    if sys.argv[1:2] == ["exporter"]:
        # The exporter runs on every node within 25 MB, so it loads no command-line library.
        from clustertwin.telemetry.exporter.__main__ import main as exporter

        sys.exit(exporter(sys.argv[2:]))
    if sys.argv[1:2] == ["evidence"] and sys.argv[2:3] in (["take"], ["serve"]):
        # The helper runs on every node too.
        from clustertwin.telemetry.diagnosis.__main__ import main as evidence

        sys.exit(evidence(sys.argv[2:]))
    try:
        from clustertwin.cli.app import run
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("clustertwin"):
            raise
        sys.exit(_without_library(sys.argv[1:], missing))
    sys.exit(run(COMMANDS, NEEDED, SECTIONS))


def _without_library(words: list[str], missing: ModuleNotFoundError) -> int:
    """`twin` in a base install, which has the exporter only: list the commands, or name the extra of this one."""
    from clustertwin.core.extras import explain

    if not words or words[0].startswith("-"):
        print(
            "Usage: twin exporter [OPTIONS]\n\nThis install has the exporter only. The other commands need an extra:\n"
        )
        for name, (_, line) in COMMANDS.items():
            extra = f"pip install 'clustertwin[{NEEDED[name]}]'" if name in NEEDED else ""
            print(f"  {name:<12} {line} {extra}".rstrip())
        return 0
    named = NEEDED.get(" ".join(words[:2]), NEEDED.get(words[0], "cli"))
    print(f"twin: {explain(missing, named) or missing}", file=sys.stderr)
    return 1
