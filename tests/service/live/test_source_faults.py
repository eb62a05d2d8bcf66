"""The loop with a real Prometheus and a real exporter that die, hang, answer NaN or restart."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.http_answers import Handler, answering
from tests.servers import binary, exporter, free_address, running, scrape_config
from tests.service.conftest import ready

from clustertwin.service.live.feeds.exporter_feed import ExporterFeed
from clustertwin.service.live.feeds.prometheus_feed import PrometheusFeed
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.service.live.snapshot import Snapshot
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
from clustertwin.telemetry.learning.champions.handover import Handover

pytestmark = [pytest.mark.real, pytest.mark.slow]
PATIENCE_S = 180.0


@pytest.fixture
def watch(state, detector):
    """Run a loop until a condition is true, and check that no event opens meanwhile."""

    def build(feed) -> Callable[[str, Callable[[Snapshot], bool]], Snapshot]:
        loop = Loop(state, feed, ready(Handover(state.home, detector)), LoopSettings(stride_s=1, stale_s=4))

        def until(what: str, holds: Callable[[Snapshot], bool]) -> Snapshot:
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                snapshot = loop.turn()
                assert snapshot.events == ()
                if holds(snapshot):
                    return snapshot
                time.sleep(0.5)
            pytest.fail(f"not {what} within {PATIENCE_S:.0f} s: {snapshot.phase}, {snapshot.problems}")

        return until

    return build


def fresh(snapshot: Snapshot) -> bool:
    """There are no problems, and the last five seconds of every thread are known."""
    moment = snapshot.moment
    return not snapshot.problems and moment is not None and bool(moment.valid[:, -5:].all()) and snapshot.lag_s < 8


def prometheus_command(directory: Path, address: str) -> list[str]:
    return [
        binary("prometheus"),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
    ]


def test_prometheus_stopped_killed_and_started_again(tmp_path, watch):
    address = free_address()
    with exporter(tmp_path / "exporter") as node:
        (tmp_path / "prometheus.yml").write_text(scrape_config({"twin": [node.address]}))
        command = prometheus_command(tmp_path, address)
        server = Prometheus(Endpoint(f"http://{address}", deadline_s=3.0, tries=1))
        until = watch(PrometheusFeed("prometheus", server))
        with running(tmp_path, address, command, "/-/ready") as prometheus:
            until("fed", fresh)
            prometheus.process.send_signal(signal.SIGSTOP)
            stopped = until("stale", lambda snapshot: snapshot.phase == "stale" and bool(snapshot.problems))
            assert stopped.nodes[0].phase in ("stale", "warming-up")
            prometheus.process.send_signal(signal.SIGCONT)
            until("fed again", fresh)
            prometheus.process.kill()
            until("told", lambda snapshot: any(address in problem for problem in snapshot.problems))
        with running(tmp_path, address, command, "/-/ready"):
            until("fed once more", fresh)


def test_a_restarted_exporter_is_read_again_and_the_seconds_its_ring_lost_are_unknown(tmp_path, watch):
    address = free_address()
    command = [sys.executable, "-m", "clustertwin.telemetry.exporter", f"--web.listen-address={address}"]
    until = watch(ExporterFeed([Endpoint(f"http://{address}", deadline_s=2.0)]))
    with running(tmp_path / "one", address, command, "/"):
        until("fed", fresh)
    until("told", lambda snapshot: bool(snapshot.problems))
    with running(tmp_path / "two", address, command, "/"):
        again = until("fed again", fresh)
    assert not again.moment.valid[:, -60:].all()


class UnknownCounters(Handler):
    """A Prometheus whose counters are NaN."""

    def do_GET(self) -> None:
        now = time.time()
        series = [
            {
                "metric": {"instance": "n:1", "cpu": "0", "mode": mode},
                "values": [[now - 10 + i, "NaN"] for i in range(10)],
            }
            for mode in ("user", "idle")
        ]
        body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}).encode()
        self.send(body)


def test_seconds_are_unknown_if_prometheus_answers_nan(watch):
    with answering(UnknownCounters) as address:
        until = watch(PrometheusFeed("prometheus", Prometheus(Endpoint(f"http://{address}"))))
        snapshot = until("asked", lambda snapshot: snapshot.moment is not None and snapshot.faults.missing > 0)
        assert not snapshot.moment.valid.any()
        assert snapshot.scored_total == 0


def test_a_server_that_is_not_prometheus_is_one_error_message(tmp_path):
    config = tmp_path / "twin.toml"
    with exporter(tmp_path / "exporter") as node:
        config.write_text(
            f"[service]\nport = 0\nhome = '{tmp_path / 'home'}'\n[source]\nkind = 'prometheus'\nurl = '{node.url}'\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "clustertwin", "serve", "--config", config], capture_output=True, text=True
        )
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert node.url in done.stderr
