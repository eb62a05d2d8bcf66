"""A confirmed anomaly halts learning: no new champion that night, and the page, the metric and the alert say why.

Real: `twin serve`, `twin learn run`, Prometheus with the shipped rules, Alertmanager with the shipped routes, webhook.
Simulated: the day, which is recorded, and the event at noon, which is in the service's store.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.test_alert_delivery import alertmanager, wait_for, watched, webhook
from tests.servers import binary, free_address, running

from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.learning.champions.champion_store import read_champion
from clustertwin.telemetry.learning.night.calendar_day import day_of
from clustertwin.telemetry.recording import Recorder
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

ALERT = "TwinLearningHalted"
DAY = day_of("2026-01-02", UTC)
NOON_S = DAY.start_s + 43_200
#: Two hours around noon: little data, so that training is fast.
CLUSTER = ClusterSettings(nodes=2, threads=16, hours=2.0, job_types=("np", "good-io"), start_s=NOON_S - 3600)


def ask(url: str, body: dict[str, Any] | None = None) -> str:
    headers = {"Content-Type": "application/json"} if body is not None else {}
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        return str(answer.read().decode())


def ringing(prometheus: str) -> bool:
    alerts = json.loads(ask(f"{prometheus}/api/v1/alerts"))["data"]["alerts"]
    return any(alert["labels"]["alertname"] == ALERT for alert in alerts)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    traces = simulate(CLUSTER, read_signatures(), 0)
    with Recorder.create(home / "recording" / "noon", {trace.node: trace.cpus for trace in traces}) as recorder:
        for trace in traces:
            recorder.append(trace)
            for span in trace.spans:
                recorder.label(span)
    store = Store(home / "state.sqlite")
    event = Event("noon", (("n01", (0, 1)),), (), "", NOON_S, NOON_S + 600, NOON_S + 600, 9.0, "density", "")
    store.write([(event, None), (replace(event, id="calm", places=(("n02", (3,)),)), None)])
    store.close()
    return home


@pytest.mark.real
@pytest.mark.slow
def test_a_confirmed_anomaly_halts_learning_and_the_alert_says_why(tmp_path, home, twin):
    binary("prometheus-alertmanager")
    service, alerts = free_address(), free_address()
    host, port = service.split(":")
    toml = tmp_path / "twin.toml"
    toml.write_text(f'[service]\nhost = "{host}"\nport = {port}\nhome = "{home}"\n[recording]\non = false\n')
    command = (sys.executable, "-m", "clustertwin", "serve", "--config", str(toml))

    def night() -> dict[str, Any]:
        words = ("learn", "run", "--home", home, "--day", DAY.name, "--models", "linear", "--mlflow", "none", "--json")
        done = twin(*words, "--workers", "1", env={**os.environ, "TZ": "UTC"})
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    with ExitStack() as stack:
        enter = stack.enter_context
        url, posted = enter(webhook())
        enter(alertmanager(tmp_path / "alertmanager", alerts, url))
        prometheus = enter(watched(tmp_path / "prometheus", [], service, alerts))
        twin_service = enter(running(tmp_path / "twin", service, command, "/healthz"))

        def calls() -> list[dict[str, Any]]:
            alerts = [alert for call in posted for alert in call["alerts"]]
            return [alert for alert in alerts if alert["labels"]["alertname"] == ALERT]

        api = f"{twin_service.url}/api/v1"
        ask(f"{api}/events/calm/verdict", {"verdict": "dismissed"})
        ask(f"{api}/events/noon/verdict", {"verdict": "confirmed", "comment": "the disk"})
        halted = night()
        assert halted["outcome"] == "halted"
        assert "confirmed on 2026-01-02: n01" in halted["because"]
        champion = read_champion(home)
        assert champion is not None
        assert champion.version == halted["champion"]  # the bundled model; no challenger was promoted

        assert 'twin_learning_stopped_info{state="halted",reason="an anomaly was' in ask(f"{twin_service.url}/metrics")
        assert "confirmed on 2026-01-02: n01" in ask(f"{twin_service.url}/models")
        (alert, *_) = wait_for("the alarm", calls, within_s=180)
        assert "confirmed on 2026-01-02: n01" in alert["annotations"]["description"]
        assert alert["annotations"]["url"] == f"http://{service}/models"

        state = json.loads(ask(f"{api}/learning", {"action": "resume", "reason": "the disk was replaced"}))
        assert state["halted"] is None
        again = night()
        assert again["outcome"] in ("promoted", "kept")
        assert 'twin_learning_state{state="learning"} 1' in ask(f"{twin_service.url}/metrics")
        wait_for("the end of the alarm", lambda: not ringing(prometheus.url), within_s=120)
        census = json.loads((home / "nights" / DAY.name / "gather.json").read_text())["result"]
        assert census["left_out_s"]["confirmed"] > 0
