"""The dashboards are up to date, and a real Prometheus has an answer to the query of every panel."""

from __future__ import annotations

import json
import runpy
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.http_answers import Handler, answering
from tests.servers import Server, exporter, prometheus
from tests.service.sample_state import EVENT, NOW_S, state

from clustertwin.service.outgoing.service_metrics import render
from clustertwin.telemetry.ingest.rates import Faults

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))


def panels(path: Path) -> Iterator[dict[str, Any]]:
    for panel in json.loads(path.read_text())["panels"]:
        if panel["type"] != "row":
            yield panel


def queries() -> list[tuple[str, str]]:
    """(dashboard: panel, query) of every panel."""
    return [
        (f"{path.stem}: {panel['title']}", target["expr"])
        for path in DASHBOARDS
        for panel in panels(path)
        for target in panel["targets"]
    ]


def test_the_files_are_up_to_date():
    pytest.importorskip("grafana_foundation_sdk")
    built = runpy.run_path(str(DEPLOY / "grafana" / "build.py"))["texts"]()
    assert built == {path.name: path.read_text() for path in DASHBOARDS}


def test_every_panel_of_both_dashboards_has_a_description():
    assert [path.stem for path in DASHBOARDS] == ["detail", "summary"]
    assert [panel["title"] for path in DASHBOARDS for panel in panels(path) if not panel.get("description")] == []
    assert len(queries()) > 40


@contextmanager
def service(home: Path) -> Iterator[str]:
    """Serve the metrics of a sample state, with counters that grow at every scrape, and a counter of a job."""
    published = state(home)
    # The panels also need a dismissed event, and a growing number of faults.
    published.store.write([(replace(EVENT, id="e2", end_s=NOW_S), None)])
    published.store.vet(["e1"], "confirmed", who="ada", now_s=NOW_S)
    published.store.vet(["e2"], "dismissed", who="ada", now_s=NOW_S)
    scrapes = 0

    class Metrics(Handler):
        def do_GET(self) -> None:
            nonlocal scrapes
            scrapes += 1
            published.publish(replace(published.snapshot, faults=Faults(gap=scrapes), scored_total=4 * scrapes), None)
            text = f'{render(published)}twin_job_cpu_seconds_total{{jobid="17",mode="user"}} {scrapes}\n'
            self.send(text.encode(), Content_Type="text/plain; version=0.0.4")

    with closing(published.store), answering(Metrics) as address:
        yield address


def ask(server: Server, expr: str) -> list[Any]:
    url = f"{server.url}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return list(json.load(answer)["data"]["result"])


@pytest.mark.real
@pytest.mark.slow
def test_a_real_prometheus_has_an_answer_to_every_panel(tmp_path):
    rules = tmp_path / "rules"
    rules.mkdir()
    text = (DEPLOY / "prometheus" / "twin-records.yml").read_text()
    (rules / "twin-records.yml").write_text(text.replace("interval: 15s", "interval: 1s"))
    shutil.copy(DEPLOY / "prometheus" / "twin-alerts.yml", rules)
    with service(tmp_path / "home") as address, exporter(tmp_path / "exporter", "--node=n1") as node:
        scrape = {"clustertwin-service": [address], "clustertwin": [node.address]}
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"},
            "rule_files": [str(rules / "*.yml")],
            "scrape_configs": [{"job_name": k, "static_configs": [{"targets": v}]} for k, v in scrape.items()],
        }
        with prometheus(tmp_path / "prometheus", {}, config=json.dumps(config)) as server:
            names = {"$service": address, "$node": "n1", "$jobid": "17"}
            unanswered = dict(queries())
            give_up_s = time.monotonic() + 120
            while unanswered and time.monotonic() < give_up_s:
                time.sleep(1)
                unanswered = {title: expr for title, expr in queries() if not ask(server, _filled(expr, names))}
            assert unanswered == {}


def _filled(expr: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        expr = expr.replace(name, value)
    return expr
