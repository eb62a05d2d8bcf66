"""What ARCHITECTURE.md promises about the shape of the tree, read off the source: no cycle, one name for one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = SOURCE / "clustertwin"

#: Folders whose files are the entries of one table, and so may hold more than 15 of them.
TABLES = {"cli", "telemetry/campaign/jobs", "service/web/pages"}
#: One noun has several faces: its command, its part of the API, its page.
FACES = ("cli/", "service/web/api/", "service/web/pages/")
#: A role that several rooms have: the port, its public check, the table of entries.
ROLES = {"contract.py", "check.py", "__init__.py", "__main__.py"}
#: Every architecture has its own configuration, found beside it.
SAME_ROLE = {"Config"}
#: What the tests look at, and where a node has statements below it.
KINDS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@cache
def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }


@cache
def statements(path: Path) -> tuple[ast.stmt, ...]:
    """The imports, classes and functions of a file, at any depth of its code."""
    return tuple(_below(ast.parse(path.read_text()).body))


def _below(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """All of these are statements. So expressions, nine nodes of ten, are not visited."""
    for node in body:
        if isinstance(node, KINDS):
            yield node
        for part in BLOCKS:
            yield from _below(getattr(node, part, ()))


def folder_of(path: Path) -> str:
    """A file's folder; the few files beside the folders stand for themselves."""
    return str((path if path.parent == PACKAGE else path.parent).relative_to(PACKAGE))


def imported(path: Path) -> set[str]:
    """Modules of ours that a file imports, at any depth of its code."""
    names: set[str] = set()
    for node in statements(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in modules() else node.module for name in full}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & modules().keys()


def definitions(kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> list[tuple[str, ast.AST]]:
    return [
        (str(path.relative_to(PACKAGE)), node)
        for path in sorted(modules().values())
        for node in statements(path)
        if isinstance(node, kind)
    ]


@pytest.mark.medium
def test_no_two_folders_import_each_other():
    folders: dict[str, set[str]] = defaultdict(set)
    for path in modules().values():
        folders[folder_of(path)] |= {folder_of(modules()[name]) for name in imported(path)} - {folder_of(path)}
    try:
        TopologicalSorter(folders).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle of folders: {' -> '.join(error.args[1])}")


def test_no_class_name_means_two_things():
    places: dict[str, list[str]] = defaultdict(list)
    for place, node in definitions(ast.ClassDef):
        if not node.name.startswith("_"):
            places[node.name].append(place)
    twice = {name: where for name, where in places.items() if len(where) > 1 and name not in SAME_ROLE}
    assert not twice


def test_no_file_name_means_two_things():
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules().values():
        place = str(path.relative_to(PACKAGE))
        if path.name not in ROLES and not place.startswith(FACES):
            places[path.name].append(place)
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_no_folder_is_a_long_flat_list():
    counts: dict[str, int] = defaultdict(int)
    for path in modules().values():
        counts[str(path.parent.relative_to(PACKAGE))] += path.name != "__init__.py"
    assert not {folder: count for folder, count in counts.items() if count > 15 and folder not in TABLES}


def test_the_median_module_is_short():
    assert median(len(path.read_text().splitlines()) for path in modules().values()) <= 150


def test_no_function_takes_more_than_eight_parameters():
    long = []
    for place, node in definitions((ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = sum(argument.arg not in ("self", "cls") for argument in arguments)
        if count > 8:
            long.append(f"{place}: {node.name} takes {count}")
    assert not long


def test_one_module_renames_files_into_place():
    renames = re.compile(r"os\.(replace|rename)\(|\.rename\(|shutil\.move|(?:draft|part|fresh|beside)\w*\.replace\(")
    places = {str(path.relative_to(PACKAGE)) for path in modules().values() if renames.search(path.read_text())}
    assert places == {"core/files.py"}


def test_one_module_sets_up_numbas_cache():
    places = {str(path.relative_to(PACKAGE)) for path in modules().values() if "cache=True" in path.read_text()}
    assert places == {"core/compiled.py"}
