"""`twin serve --engine ray` as a process: it queries exporters over HTTP, and Ray actors score their threads."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from benchmarks.simulated_exporters import NODE, page, ring
from tests.http_answers import Handler, answering
from tests.servers import document
from tests.service.conftest import campaign

pytestmark = [pytest.mark.real, pytest.mark.slow]
PATIENCE_S = 120.0
PAST_S = 130


@contextmanager
def exporters(rings: dict[str, list[bytes]], begun_s: int) -> Iterator[list[str]]:
    """Serve a /metrics page and a ring for each node.

    The first answer is an old second, as after an outage of the service. So the next answer has all the seconds since
    then, and the test need not wait for a full window.
    """
    cpus = rings[next(iter(rings))][0].count(b"cpu")
    greeted: set[str] = set()

    class Exporter(Handler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            _, name, what = asked.path.split("/")
            body = page(name, cpus) if what == "metrics" else self.since(name, float(parse_qs(asked.query)["since"][0]))
            self.send(body)

        def since(self, name: str, since_s: float) -> bytes:
            known = range(int(time.time()) - begun_s + 1) if name in greeted else range(1)
            if since_s <= begun_s:
                greeted.add(name)
            blocks = ((begun_s + k, rings[name][k]) for k in known if begun_s + k >= since_s)
            return b"".join(b"t %.3f\n%b" % (at_s, text.replace(NODE, name.encode())) for at_s, text in blocks)

    with answering(Exporter) as address:
        yield [f"http://{address}/{name}" for name in rings]


def metrics(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        return {name: float(value) for name, value in re.findall(r"^(twin_\S+) (\S+)$", answer.read().decode(), re.M)}


@pytest.fixture
def ray_directory() -> Iterator[str]:
    """A directory of Ray's, with the address of a cluster that another user started here and that has ended since.

    Its path is short, because Ray's sockets are in it.
    """
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory:
        known = Path(directory, "ray", "ray_current_cluster")
        known.parent.mkdir()
        known.write_text("127.0.0.1:9")
        yield directory


def test_exporters_are_scored_by_actors_of_a_ray_that_the_service_starts(tmp_path: Path, ray_directory: str) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'clustertwin[ray]'")
    traces = campaign(3, 0.2, idle_ratio=0.0)
    begun_s = int(time.time()) - PAST_S
    rings = {trace.node: ring(trace, 0) for trace in traces}
    with exporters(rings, begun_s) as urls:
        config = tmp_path / "twin.toml"
        config.write_text(
            f'[service]\nport = 0\nhome = "{tmp_path}/home"\n'
            f'[source]\nkind = "exporters"\nurls = {json.dumps(urls)}\n[scoring]\nstride_s = 1\n'
        )
        environment = {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
        environment.pop("RAY_ADDRESS", None)
        environment["RAY_TMPDIR"] = ray_directory
        command = [sys.executable, "-m", "clustertwin", "serve", "--config", str(config), "--engine", "ray", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as service:
            try:
                url = document(service.stdout)["url"]
                values = until(url, {})
                scored = values["twin_loop_scored_threads_total"]
                # From now on the actors score everything, and the service itself nothing.
                later = until(url, {"twin_loop_scored_threads_total": scored + 16})
                assert later["twin_engine_fell_back_total"] == values["twin_engine_fell_back_total"]
                assert later["twin_engine_lost_total"] == 0
                assert {f'twin_node_threads{{node="{node}",state="normal"}}' for node in rings} <= set(later)
            finally:
                service.send_signal(signal.SIGTERM)
            assert service.wait(PATIENCE_S) == 0


def until(url: str, least: dict[str, float]) -> dict[str, float]:
    """Wait until both actors score, there are no problems, and these metrics have at least these values."""
    give_up_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_s:
        values = metrics(url)
        fine = values.get('twin_engine_actors{state="ready"}') == 2 and values["twin_loop_problems"] == 0
        if fine and all(values[name] >= value for name, value in least.items()):
            return values
        time.sleep(0.5)
    raise AssertionError(f"not within {PATIENCE_S:.0f} s: {values}")
