"""`twin evidence take` and `serve` on a node: arguments -> the evidence of a job, or a server of it."""

from __future__ import annotations

import argparse
import sys

from clustertwin.core.errors import SettingsError, TwinError
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, ProcessEvidence, to_json
from clustertwin.telemetry.diagnosis.evidence_subprocess import NO_PROCESS
from clustertwin.telemetry.diagnosis.job_processes import find_group, find_processes, find_tree
from clustertwin.telemetry.diagnosis.odd_rank import find
from clustertwin.telemetry.diagnosis.rank_state import caller
from clustertwin.telemetry.diagnosis.take_evidence import Budget, node_name, take


def main(argv: list[str]) -> int:
    """Run with these arguments; the exit code."""
    options = _parser().parse_args(argv)
    try:
        if options.command == "serve":
            from clustertwin.telemetry.diagnosis.helper_server import serve

            return serve(options.address, options.config, options.node, options.per_minute, options.json)
        return _take(options)
    except TwinError as error:
        sys.stderr.write(f"twin: {error}\n")
        return error.exit_code


def _take(options: argparse.Namespace) -> int:
    if (options.job == "") == (options.tree is None):
        raise SettingsError("name either --job or --tree")
    if options.tree is not None:
        processes = find_tree(options.tree, options.owner)
    elif options.cgroup:
        processes = find_group(options.cgroup, options.owner)
    else:
        processes = find_processes(options.job, options.owner)
    if not processes.ranks:
        refused = f"; {processes.refused} belong to another user" if processes.refused else ""
        what = f"job {options.job}" if options.job else f"the tree of process {options.tree}"
        raise SettingsError(f"{what} {NO_PROCESS}{refused}")
    # Everything that this process does counts, also its start.
    budget = Budget(window_s=options.window)
    evidence = take(options.job or str(options.tree), processes, options.node, budget, begin_cpu_s=0.0)
    if options.json:
        sys.stdout.write(to_json(evidence).decode() + "\n")
    else:
        sys.stdout.write(describe(evidence))
    return 0


def describe(evidence: JobEvidence) -> str:
    """The evidence as text."""
    finding = find(evidence)
    lines = [finding.sentence, ""]
    lines += [_line(process) for process in evidence.processes]
    lines.append("")
    lines.append(
        f"{evidence.cpu_s:.2f} s of CPU time; each process was stopped for at most "
        f"{max((process.stopped_ms for process in evidence.processes), default=0.0):.0f} ms in two looks."
    )
    return "\n".join(lines) + "\n"


def _line(process: ProcessEvidence) -> str:
    name = f"rank {process.rank}" if process.rank is not None else f"pid {process.pid}"
    words = [f"{name:<9} {process.does:<13}"]
    if process.mpi_call:
        words.append(process.mpi_call)
    elif process.waiting:
        words.append(f"{process.waiting.call}() {process.waiting.target}".rstrip())
    if place := caller(process.stack):
        words.append(f"at {place}")
    return "  ".join(words)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="twin evidence", description="What the processes of a job on this node wait for.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("take", help="take the evidence of a job now")
    one.add_argument("--job", default="", help="the id of a job of the workload manager")
    one.add_argument("--tree", type=int, metavar="PID", help="instead of --job: a process and its descendants")
    one.add_argument("--cgroup", default="", metavar="DIR", help="with --job: the directory of the job's cgroup")
    one.add_argument("--owner", type=int, metavar="UID", help="refuse processes of any other user")
    one.add_argument("--window", type=_seconds, default=2.0, help="seconds between the two looks (%(default)s)")
    one.add_argument("--node", default=node_name(), help="name of the node (%(default)s)")
    one.add_argument("--json", action="store_true", help="print one JSON document")
    server = commands.add_parser("serve", help="serve the evidence of jobs on this node to the twin")
    server.add_argument("--web.listen-address", dest="address", default="127.0.0.1:9753", metavar="HOST:PORT",
                        help="address to listen on (%(default)s)")  # fmt: skip
    server.add_argument(
        "--web.config.file", dest="config", metavar="FILE", help="TLS and passwords, as for the exporter"
    )
    server.add_argument("--node", default=node_name(), help="name of the node (%(default)s)")
    server.add_argument("--per-minute", type=int, default=6, help="most requests that take evidence (%(default)s)")
    server.add_argument("--json", action="store_true", help="print the address that is served as one JSON document")
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 60:
        raise argparse.ArgumentTypeError("must be between 0.1 and 60 seconds")
    return seconds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
