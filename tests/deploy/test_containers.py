"""The image, the stack and the workflows name only files and commands that exist."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from clustertwin.cli import COMMANDS
from clustertwin.service.config import read_config

ROOT = Path(__file__).parents[2]
STACK = ROOT / "deploy" / "containers" / "compose.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load(STACK.read_text())["services"])


def test_the_stack_has_every_part(services):
    assert set(services) == {"exporter", "prometheus", "alertmanager", "grafana", "mlflow", "twin", "learn"}


def test_images_are_pinned(services):
    for name, service in services.items():
        image = service["image"]
        assert image.startswith("localhost/") or re.search(r":v?\d+\.\d+\.\d+$", image), name


def test_every_mounted_file_exists(services):
    for service in services.values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (STACK.parent / source).exists(), mount


def test_our_containers_and_units_run_commands_that_exist(services):
    units = [unit.read_text() for unit in (ROOT / "deploy" / "systemd").glob("*.service")]
    started = [re.search(r"^ExecStart=/opt/clustertwin/bin/twin (\S+)", unit, re.M)[1] for unit in units]
    started += [service["command"][0] for service in services.values() if service["image"].startswith("localhost/")]
    assert len(started) == 8
    assert set(started) - set(COMMANDS) == set()


def test_the_configuration_of_the_stack_is_valid():
    config = read_config(STACK.with_name("twin.toml"), {})
    assert config.source.kind == "prometheus"
    assert config.service.host == "127.0.0.1"


def test_the_image_copies_only_files_that_exist_and_are_not_ignored():
    text = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    copied = [
        shlex.split(line)[1:-1] for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line
    ]
    names = [name for line in copied for name in line]
    kept = [line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")]
    assert "src" in names
    for name in names:
        assert (ROOT / name).exists(), name
        assert any(fnmatchcase(name, pattern) for pattern in kept), name


def test_the_image_is_built_on_merge_and_every_night():
    workflows = {path.stem: yaml.safe_load(path.read_text()) for path in WORKFLOWS}
    when = workflows["image"][True]  # YAML reads `on` as a truth
    assert when["push"]["branches"] == ["main"]
    assert re.fullmatch(r"\d+ \d+ \* \* \*", when["schedule"][0]["cron"])
    assert "make test" in workflows["tests"]["jobs"]["test"]["steps"][-1]["run"]


def test_actions_are_pinned_by_commit_and_a_job_may_only_what_it_needs():
    for path in WORKFLOWS:
        text = path.read_text()
        used = re.findall(r"uses: (\S+)", text)
        assert used
        assert [name for name in used if not re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}", name)] == []
        assert yaml.safe_load(text)["permissions"]["contents"] == "read"
