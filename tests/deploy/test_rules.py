"""Rules and configurations, checked by the programs that read them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.servers import binary
from tests.service.sample_state import state as sample_state

from clustertwin.service.outgoing.service_metrics import render

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = sorted((DEPLOY / "prometheus").glob("twin-*.yml"))


def checked(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.real
def test_promtool_accepts_the_rules_and_the_configuration(tmp_path):
    assert len(RULES) == 2
    (tmp_path / "rules").mkdir()
    for path in RULES:
        shutil.copy(path, tmp_path / "rules")
    shutil.copy(DEPLOY / "prometheus" / "prometheus.yml", tmp_path)
    output = checked(binary("promtool"), "check", "config", tmp_path / "prometheus.yml")
    assert output.count("rules found") == len(RULES)


@pytest.mark.real
def test_the_rules_do_what_their_unit_tests_say():
    checked(binary("promtool"), "test", "rules", DEPLOY / "prometheus" / "tests.yml")


@pytest.mark.real
def test_amtool_accepts_the_routes():
    checked(binary("amtool"), "check-config", DEPLOY / "alertmanager" / "alertmanager.yml")


def test_alertmanager_remembers_a_notification_until_it_is_repeated():
    """Its retention is 120 h by default. Beyond it, Alertmanager forgets that it has notified."""
    hours = {"h": 1, "d": 24}
    text = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text()
    intervals = re.findall(r"repeat_interval: (\d+)([hd])", text)
    assert intervals
    assert max(int(number) * hours[unit] for number, unit in intervals) < 120


def test_every_alert_is_tested_and_documented():
    tests = (DEPLOY / "prometheus" / "tests.yml").read_text()
    page = (DEPLOY.parent / "docs" / "alerts.md").read_text()
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    assert len(alerts) > 10
    assert [name for name in sorted(alerts) if name not in tests or f"`{name}`" not in page] == []


def test_rules_use_only_metrics_that_the_service_exports(tmp_path):
    state = sample_state(tmp_path)
    (tmp_path / "learning.json").write_text('{"ended_s": 5.0}')
    exported = set(re.findall(r"^# TYPE (\w+)", render(state), re.M))
    state.store.close()
    queried = set()
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                queried |= set(re.findall(r"\btwin_\w+", rule["expr"]))
    assert queried - exported == set()
    page = (DEPLOY.parent / "docs" / "alerts.md").read_text()
    undocumented = {name for name in exported if f"`{name}" not in page and f"`…_{name.split('_', 2)[2]}" not in page}
    assert undocumented - {"twin_build_info", "twin_model_since_timestamp_seconds"} == set()
