"""Real servers for tests marked `real`: a name and a directory -> a running process on a free loopback port.

Each is a context manager that waits until the server answers, and stops it however the test ends:

    with exporter(tmp_path / "exporter") as node, prometheus(tmp_path / "prom", {"twin": [node.address]}) as server:
        httpx.get(server.url + "/api/v1/query", params={"query": "up"})

A server that is not installed skips the test with a reason.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.http_answers import Handler, answering

READY_S = 120.0  # a busy machine is no failure


@dataclass(frozen=True)
class Server:
    """A running server: where it listens, its process and the file that holds what it said."""

    address: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://{self.address}"


#: Below the ports that the system hands out: between two starts of a server, no connection of another process takes its
#: port. Each process begins at a place of its own, because another may look for ports at the same moment.
_PORTS = itertools.cycle(range(10_000, 20_000))
_PLACES = itertools.islice(_PORTS, os.getpid() * 37 % 10_000, None)


def free_port() -> int:
    """A port that nobody listens on, and that no other call in this process has returned before."""
    for port in _PLACES:
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the cycle has no end")


def free_address() -> str:
    """A loopback address that nobody listens on."""
    return f"127.0.0.1:{free_port()}"


def binary(name: str) -> str:
    """The path of an installed program, or a skip that says which one is missing."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def document(lines: Iterable[str]) -> dict[str, Any]:
    """The first JSON document that a command prints, as soon as it is whole; none if the command ends before."""
    text = ""
    for line in lines:
        text += line
        if line == "}\n":
            return json.loads(text)
    pytest.fail(f"no whole document: {text!r}")


@contextmanager
def running(directory: Path, address: str, command: Sequence[str], ready: str) -> Iterator[Server]:
    """Run `command` until the block ends; it is ready when `GET ready` answers below 500."""
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=directory)
    try:
        _wait(process, f"http://{address}{ready}", log)
        yield Server(address, process, log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except urllib.error.HTTPError as answer:
            if answer.code < 500:  # it asks for a password, but it is there
                return
        except OSError:
            pass
        time.sleep(0.05)
    pytest.fail(f"{url} not ready; its log ends:\n{log.read_text(errors='replace')[-2000:]}")


@contextmanager
def exporter(directory: Path, *options: str) -> Iterator[Server]:
    """Our exporter; options as on the command line, e.g. `--path.rootfs=…`."""
    address = free_address()
    command = [sys.executable, "-m", "clustertwin.telemetry.exporter", f"--web.listen-address={address}", *options]
    with running(directory, address, command, "/") as server:
        yield server


@contextmanager
def node_exporter(directory: Path, *options: str) -> Iterator[Server]:
    """Prometheus's own exporter of a node; options as on its command line."""
    address = free_address()
    command = [binary("prometheus-node-exporter"), f"--web.listen-address={address}", *options]
    with running(directory, address, command, "/") as server:
        yield server


def scrape_config(targets: Mapping[str, Sequence[str]], interval_s: float = 1.0) -> str:
    """A configuration that scrapes each named job's addresses; YAML reads JSON."""
    every = f"{round(interval_s * 1000)}ms"
    jobs = [{"job_name": name, "static_configs": [{"targets": list(hosts)}]} for name, hosts in targets.items()]
    return json.dumps({"global": {"scrape_interval": every, "scrape_timeout": every}, "scrape_configs": jobs})


@contextmanager
def prometheus(
    directory: Path, targets: Mapping[str, Sequence[str]], *options: str, interval_s: float = 1.0, config: str = ""
) -> Iterator[Server]:
    """Prometheus, scraping `targets` (job name -> addresses) every `interval_s`, or as a whole `config` says."""
    address = free_address()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "prometheus.yml").write_text(config or scrape_config(targets, interval_s))
    command = [
        binary("prometheus"),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
        "--web.enable-lifecycle",
        "--web.enable-remote-write-receiver",
        *options,
    ]
    with running(directory, address, command, "/-/ready") as server:
        yield server


@contextmanager
def victoria_metrics(
    directory: Path, targets: Mapping[str, Sequence[str]], *options: str, interval_s: float = 1.0
) -> Iterator[Server]:
    """VictoriaMetrics as a single node that scrapes for itself."""
    address = free_address()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "scrape.yml").write_text(scrape_config(targets, interval_s))
    command = [
        binary("victoria-metrics"),
        f"-promscrape.config={directory / 'scrape.yml'}",
        f"-storageDataPath={directory / 'data'}",
        f"-httpListenAddr={address}",
        *options,
    ]
    with running(directory, address, command, "/health") as server:
        yield server


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that stores what is posted to it: its address without the scheme, and the documents."""
    posted: list[dict[str, Any]] = []

    class Receiver(Handler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send(b"")

    with answering(Receiver) as address:
        yield f"{address}/twin", posted
