"""Run `twin` in this process as a base install would: no package outside the base dependencies can be imported.

Reads a list of command lines from standard input, as JSON, and prints [exit code, stdout, stderr] of each.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tomllib
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def base_distributions() -> set[str]:
    """The distributions that `pip install clustertwin` installs: the dependencies and theirs."""
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    waiting, known = list(pyproject["project"]["dependencies"]), set()
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name in known or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        known.add(name)
        with contextlib.suppress(metadata.PackageNotFoundError):
            waiting += metadata.requires(name) or []
    return known


class BaseInstall:
    """A finder that refuses every module of a distribution outside the base install."""

    def __init__(self) -> None:
        base = base_distributions() | {"clustertwin"}
        self.refused = {
            module
            for module, owners in metadata.packages_distributions().items()
            if not base & {canonicalize_name(owner) for owner in owners}
        }

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name.partition(".")[0] in self.refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def run(words: list[str]) -> tuple[int, str, str]:
    from clustertwin.cli import main

    out, err = io.StringIO(), io.StringIO()
    sys.argv, code = ["twin", *words], 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as done:
            code = done.code if isinstance(done.code, int) else int(bool(done.code))
        except BaseException:
            code = 70
            traceback.print_exc()
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    command_lines = json.load(sys.stdin)
    refusing = BaseInstall()
    for loaded in [name for name in sys.modules if name.partition(".")[0] in refusing.refused]:
        del sys.modules[loaded]
    sys.meta_path.insert(0, refusing)  # type: ignore[arg-type]
    json.dump([run(words) for words in command_lines], sys.stdout)
