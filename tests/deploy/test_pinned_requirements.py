"""deploy/requirements.txt: every package of a service, in the version that the tests ran with, and with its hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = ("service", "learn", "notify", "remote-write")  # as in `make pins`


def pins(path: Path) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", path.read_text(), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


def test_the_versions_are_those_of_the_constraints():
    tested = pins(ROOT / "constraints.txt")
    required = pins(ROOT / "deploy" / "requirements.txt")
    assert {name: version for name, version in required.items() if tested.get(name) != version} == {}


def test_every_package_has_a_hash():
    blocks = re.split(r"\n(?=[A-Za-z])", (ROOT / "deploy" / "requirements.txt").read_text().strip())
    assert [block for block in blocks if "--hash=sha256:" not in block] == []


def test_nothing_that_an_extra_needs_is_missing_but_torch():
    """Run `make pins` after a change of these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def needed(requirements: list[str]) -> set[str]:
        names = set()
        for requirement in requirements:
            name, _, inner = re.match(r"([\w.-]+)(\[([\w,-]+)\])?", requirement).groups()
            if name == "clustertwin":
                names |= set().union(*(needed(extras[extra]) for extra in inner.split(",")))
            else:
                names.add(name.lower().replace("_", "-"))
        return names

    wanted = needed(project["dependencies"]).union(*(needed(extras[extra]) for extra in EXTRAS))
    assert wanted - pins(ROOT / "deploy" / "requirements.txt").keys() == {"torch"}
