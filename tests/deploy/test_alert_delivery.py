"""From a job with bad I/O to an alert and its resolution, with every part real but the kernel.

Real: two exporters, Prometheus with the shipped rules, `twin serve` with the bundled detector, Alertmanager with the
shipped routes, and webhooks. Simulated: the kernel files that the exporters read, changed by a simulated job. Waiting
times of rules and routes are shortened to seconds, and Alertmanager is down when the alert begins. The service also
notifies a second webhook itself, as it does without an Alertmanager.
"""

from __future__ import annotations

import json
import pwd
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.deploy.paper_node import UID, PaperNode, living
from tests.servers import Server, binary, exporter, free_address, prometheus, running, webhook

from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

DEPLOY = Path(__file__).parents[2] / "deploy"
THREADS = 4


def job_of(kind: str, anomalous: bool = False) -> NDArray[np.float32]:
    """(cpu, second, channel) of a simulated job of four threads, from its start."""
    options = (
        {"job_types": ("np",), "anomalies": (kind,), "anomaly_ratio": 1.0} if anomalous else {"job_types": (kind,)}
    )
    settings = ClusterSettings(nodes=1, threads=8, hours=0.5, idle_ratio=0.0, job_s=(900.0, 1200.0), **options)
    for seed in range(20):
        for trace in simulate(settings, read_signatures(), seed):
            for span in trace.spans:
                if span.job_type == kind and len(span.cpus) == THREADS and span.end_s - span.start_s > 400:
                    first = int(span.start_s) + 1 - trace.start_s
                    return trace.values[list(span.cpus), first : first + 400]
    raise AssertionError(f"no job {kind} of {THREADS} threads")


@contextmanager
def alertmanager(directory: Path, address: str, url: str) -> Iterator[Server]:
    directory.mkdir(parents=True)
    text = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text()
    for before, after in (
        ("http://127.0.0.1:9099/alerts", f"http://{url}"),
        ("group_wait: 10s", "group_wait: 1s"),
        ("group_interval: 1m", "group_interval: 1s"),
    ):
        assert before in text
        text = text.replace(before, after)
    (directory / "alertmanager.yml").write_text(text)
    command = (
        binary("prometheus-alertmanager"),
        f"--config.file={directory / 'alertmanager.yml'}",
        f"--storage.path={directory / 'data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    )
    with running(directory, address, command, "/-/ready") as server:
        yield server


@contextmanager
def watched(directory: Path, nodes: list[Server], service: str, alerts: str) -> Iterator[Server]:
    """A Prometheus that scrapes the nodes and the service, and knows the shipped rules."""
    rules = directory / "rules"
    rules.mkdir(parents=True)
    for path in (DEPLOY / "prometheus").glob("twin-*.yml"):
        text = path.read_text().replace("for: 30s", "for: 0s").replace("keep_firing_for: 1m", "keep_firing_for: 0s")
        (rules / path.name).write_text(text.replace("interval: 15s", "interval: 1s"))
    targets = {"clustertwin": [node.address for node in nodes], "clustertwin-service": [service]}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules / "*.yml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alerts]}]}]},
        "scrape_configs": [{"job_name": k, "static_configs": [{"targets": v}]} for k, v in targets.items()],
    }
    options = ("--rules.alert.resend-delay=2s",)
    with prometheus(directory, {}, *options, config=json.dumps(config)) as server:
        yield server


@contextmanager
def twin_serve(directory: Path, address: str, source: Server, webhook_url: str) -> Iterator[Server]:
    directory.mkdir(parents=True)
    host, port = address.split(":")
    (directory / "twin.toml").write_text(
        f'[service]\nhost = "{host}"\nport = {port}\nhome = "{directory / "home"}"\n'
        f'[source]\nkind = "prometheus"\nurl = "{source.url}"\n'
        "[scoring]\nstride_s = 2\n[events]\nneeded_s = 4\nof_s = 20\n"
        f'[notify]\nurls = ["json://{webhook_url}"]\nevery_s = 0\n[learning]\nshadow = false\n'
    )
    command = (sys.executable, "-m", "clustertwin", "serve", "--config", str(directory / "twin.toml"))
    with running(directory, address, command, "/healthz") as server:
        yield server


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def wait_for(what: str, ready: Callable[[], Any], within_s: float) -> Any:
    give_up_s = time.monotonic() + within_s
    while time.monotonic() < give_up_s:
        if result := ready():
            return result
        time.sleep(0.5)
    pytest.fail(f"{what} did not happen within {within_s:.0f} s")


@pytest.mark.real
@pytest.mark.slow
def test_jobs_that_wait_for_io_are_one_notification_and_other_events_one_each(tmp_path: Path) -> None:
    """Too few nodes of a large cluster for TwinManyNodesStrange."""
    alerts = [
        {"labels": {"alertname": "TwinAnomaly", "instance": "twin", "event": f"e{i}", "jobid": str(i), "cause": cause}}
        for i, cause in enumerate(["stalled-io"] * 8 + ["idle"] * 2)
    ]
    with webhook() as (url, calls), alertmanager(tmp_path / "alertmanager", free_address(), url) as server:
        request = urllib.request.Request(
            f"{server.url}/api/v2/alerts", json.dumps(alerts).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=30).close()
        wait_for("all alerts", lambda: sum(len(call["alerts"]) for call in calls) >= 10, within_s=30)
    assert sorted(len(call["alerts"]) for call in calls) == [1, 1, 8]


@pytest.mark.real
@pytest.mark.slow
def test_bad_io_raises_an_alert_that_is_resolved_at_its_end(tmp_path: Path) -> None:
    binary("prometheus-alertmanager")
    pytest.importorskip("apprise")
    bad = PaperNode(tmp_path / "bad", "666", job_of("bad-io", anomalous=True))
    good = PaperNode(tmp_path / "good", "17", job_of("np"))
    service, alerts = free_address(), free_address()
    with ExitStack() as stack:
        enter = stack.enter_context
        nodes = []
        for name, node in (("n1", bad), ("n2", good)):
            enter(living(node))
            nodes.append(enter(exporter(tmp_path / f"exporter-{name}", f"--path.rootfs={node.root}", f"--node={name}")))
        server = enter(watched(tmp_path / "prometheus", nodes, service, alerts))
        url, calls = enter(webhook())
        message_url, messages = enter(webhook())
        twin = enter(twin_serve(tmp_path / "twin", service, server, message_url))

        def alerts_in(state: str) -> list[dict[str, Any]]:
            alerts = [alert for call in calls for alert in call["alerts"] if alert["status"] == state]
            return [alert for alert in alerts if alert["labels"]["alertname"] == "TwinAnomaly"]

        def is_firing() -> bool:
            firing = get(f"{server.url}/api/v1/alerts")["data"]["alerts"]
            return any(alert["labels"]["alertname"] == "TwinAnomaly" and alert["state"] == "firing" for alert in firing)

        wait_for("the alert in Prometheus", is_firing, within_s=200)
        assert calls == []  # Alertmanager is not running yet
        enter(alertmanager(tmp_path / "alertmanager", alerts, url))
        (alert,) = wait_for("the call", lambda: alerts_in("firing"), within_s=120)[:1]
        assert (alert["labels"]["node"], alert["labels"]["jobid"]) == ("n1", "666")
        assert alert["labels"]["cause"] == "stalled-io"
        assert alert["annotations"]["summary"].startswith("Job 666 waits for I/O: iowait ")
        assert "iowait was" in alert["annotations"]["description"]
        assert "Next step: " in alert["annotations"]["description"]
        event = alert["labels"]["event"]
        assert alert["annotations"]["url"] == f"http://{service}/events/{event}"
        assert urllib.request.urlopen(f"{twin.url}/events/{event}", timeout=60).status == 200

        owner = pwd.getpwuid(UID).pw_name
        assert f"Owner: {owner}." in alert["annotations"]["description"]
        assert get(f"{twin.url}/api/v1/jobs/666")["owner"] == owner
        bad.end_job()
        (resolved,) = wait_for("the resolved alert", lambda: alerts_in("resolved"), within_s=120)[:1]
        assert resolved["labels"]["event"] == event
        # One event is one alert: its labels do not change while it is open, however far its score rises.
        own = [alert["labels"] for alert in alerts_in("firing") if alert["labels"]["event"] == event]
        assert len({tuple(sorted(labels.items())) for labels in own}) == 1
        assert alert["annotations"]["level"] in ("warning", "critical")
        assert {alert["labels"]["node"] for alert in alerts_in("firing")} == {"n1"}
        wait_for("the service's own message", lambda: len(messages) == 2, within_s=120)
        assert [message["title"].partition(": iowait")[0] for message in messages] == [
            "Anomaly: Job 666 waits for I/O",
            "Resolved: Job 666 waits for I/O",
        ]
        # The job has ended. The page, the API and the command know it from Prometheus.
        wait_for("the end of the job", lambda: "666" not in str(get(f"{twin.url}/api/v1/jobs")), within_s=120)
        report = get(f"{twin.url}/api/v1/jobs/666")
        assert (report["running"], report["cause"]) == (False, "stalled-io")
        assert urllib.request.urlopen(f"{twin.url}/jobs/666", timeout=30).status == 200
        command = (sys.executable, "-m", "clustertwin", "job", "666", "--home", str(tmp_path / "twin" / "home"))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert "The job waits for the disk" in done.stdout, done.stderr
        assert "retention" not in (tmp_path / "alertmanager" / "log").read_text()
