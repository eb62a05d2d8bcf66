"""Run `twin` in this process as a small install would: no package outside its dependencies can be imported.

The arguments are the extras of the install; none is the base install. Reads a list of command lines from standard
input, as JSON, and prints [exit code, stdout, stderr] of each.
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


def distributions(extras: Sequence[str] = ()) -> set[str]:
    """The distributions that `pip install 'clustertwin[extras]'` installs: the dependencies and theirs."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    waiting, known = list(project["dependencies"]), set()
    waiting += [f"clustertwin[{extra}]" for extra in extras]
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name == "clustertwin":
            waiting += [text for extra in requirement.extras for text in project["optional-dependencies"][extra]]
            continue
        if name in known or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        known.add(name)
        with contextlib.suppress(metadata.PackageNotFoundError):
            waiting += metadata.requires(name) or []
    return known


class SmallInstall:
    """A finder that refuses every module of a distribution outside the install."""

    def __init__(self, extras: Sequence[str]) -> None:
        base = distributions(extras) | {"clustertwin"}
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
    refusing = SmallInstall(sys.argv[1:])
    for loaded in [name for name in sys.modules if name.partition(".")[0] in refusing.refused]:
        del sys.modules[loaded]
    sys.meta_path.insert(0, refusing)  # type: ignore[arg-type]
    json.dump([run(words) for words in command_lines], sys.stdout)
