"""`twin exporter`: arguments -> a server of this node's counters, until a signal arrives."""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import threading
import time

from clustertwin import __version__
from clustertwin.core.errors import SettingsError, TwinError
from clustertwin.telemetry.exporter.agent import Agent, AgentSettings
from clustertwin.telemetry.exporter.collectors import COLLECTORS, collector_class
from clustertwin.telemetry.exporter.http.loopback import is_loopback
from clustertwin.telemetry.exporter.http.routes import Routes
from clustertwin.telemetry.exporter.http.server import Server
from clustertwin.telemetry.exporter.http.webconfig import WebConfig, read_web_config
from clustertwin.telemetry.exporter.log import log
from clustertwin.telemetry.exporter.text.text_format import to_rows


def main(argv: list[str]) -> int:
    """Run with these arguments; the exit code."""
    options = _parser().parse_args(argv)
    try:
        chosen = tuple(name for name in COLLECTORS if getattr(options, name))
        settings = AgentSettings(options.node, options.rootfs, chosen, options.ring_seconds)
        if options.once:
            return _print_once(settings, options.json)
        return _serve(settings, options)
    except TwinError as error:
        sys.stderr.write(f"twin: {error}\n")
        return error.exit_code


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port`, or `:port` for all addresses."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise SettingsError(f"--web.listen-address={text}: must be HOST:PORT, for example 127.0.0.1:9752 or [::1]:9752")
    return host.strip("[]") or "0.0.0.0", int(port)


def _print_once(settings: AgentSettings, as_json: bool) -> int:
    text = Agent(settings, log).scrape().decode()
    sys.stdout.write(json.dumps({"node": settings.node, "samples": to_rows(text)}) + "\n" if as_json else text)
    return 0


def _serve(settings: AgentSettings, options: argparse.Namespace) -> int:
    host, port = parse_address(options.address)
    config = read_web_config(options.config) if options.config else WebConfig()
    # The files of jobs stay open: raise the limit from the default 1,024 to what the administrator allows.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    agent = Agent(settings, log)
    routes = Routes(settings.node, agent.pieces, agent.ring_since, options.path, config.users)
    server = Server(host, port, config, routes)
    if not is_loopback(host) and not (config.tls and config.users):
        log("warning", f"{host} is reachable from other hosts without TLS and a password: see --web.config.file")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server.start()
    url = f"{'https' if config.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{server.port}{options.path}"
    log("info", f"clustertwin exporter {__version__} for node {settings.node}: {url}")
    if options.json:
        sys.stdout.write(json.dumps({"node": settings.node, "url": url}) + "\n")
        sys.stdout.flush()
    while not stop.wait(min(1.0, agent.tick())):
        server.reap(time.monotonic())
    server.close()
    log("info", "stopped")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="twin exporter",
        description="Serve the CPU threads, memory, pressure, disks and jobs of this node to Prometheus.",
        epilog="Examples: twin exporter --web.listen-address 0.0.0.0:9752; twin exporter --once",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--web.listen-address", dest="address", default="127.0.0.1:9752", metavar="HOST:PORT", help=(
        "address to listen on; 0.0.0.0 is every network of this node (%(default)s)"))  # fmt: skip
    add(
        "--web.config.file",
        dest="config",
        metavar="FILE",
        help="TLS and basic authentication, in the format of exporter-toolkit",
    )
    add(
        "--web.telemetry-path",
        dest="path",
        default="/metrics",
        metavar="PATH",
        help="path of the metrics (%(default)s)",
    )
    add(
        "--path.rootfs",
        dest="rootfs",
        type=_rootfs,
        default="/",
        metavar="DIR",
        help="where /proc and /sys of the node are mounted (%(default)s)",
    )
    add("--node", default=os.uname().nodename, help="name of the node (%(default)s)")
    add(
        "--ring.seconds",
        dest="ring_seconds",
        type=_seconds,
        default=600.0,
        help="how long the ring keeps samples; 0: no ring (600)",
    )
    for name in COLLECTORS:
        flags = argparse.BooleanOptionalAction
        add(f"--collector.{name}", dest=name, action=flags, default=True, help=collector_class(name).reads)
    add("--once", action="store_true", help="print one scrape and exit")
    add(
        "--json",
        action="store_true",
        help="print one JSON document: the scrape with --once, otherwise the URL that is served",
    )
    add("--version", action="version", version=f"clustertwin {__version__}")
    return parser


def _rootfs(text: str) -> str:
    if not os.path.isdir(os.path.join(text, "proc")):
        raise argparse.ArgumentTypeError(f"{os.path.join(text, 'proc')} is not a directory")
    return text


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= 86400:
        raise argparse.ArgumentTypeError("must be between 0 and 86400 seconds")
    return seconds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
