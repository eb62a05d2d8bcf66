"""In a base install every command works, or prints one line that names the extra it needs. There is no traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from packaging.requirements import Requirement

from clustertwin.cli import COMMANDS
from clustertwin.core.extras import PACKAGES_BY_EXTRA, explain, load, packages_of
from clustertwin.workload.formats import write
from clustertwin.workload.jobs import Jobs, Machine

ROOT = Path(__file__).parents[2]

#: A command line of every command -> the extra that a base install names; empty if it works there. @ is a directory.
LINES = {
    "demo --no-browser --stop": "service",
    "doctor": "cli",
    "up --home @/home --no-browser --port 0": "service",
    "serve --config @/service.toml": "service",
    "events list --home @/home": "service",
    "events show e1 --home @/home": "service",
    "events confirm e1 --home @/home": "service",
    "events dismiss e1 --home @/home": "service",
    "events new-normal e1 --home @/home": "service",
    "events undo e1 --home @/home": "service",
    "maintenance add n1 --for 1h --home @/home": "service",
    "maintenance list --home @/home": "service",
    "maintenance end 1 --home @/home": "service",
    "silence add --node n1 --for 1h --home @/home": "service",
    "silence list --home @/home": "service",
    "silence end 1 --home @/home": "service",
    "audit --home @/home": "service",
    "token add ada --home @/home": "service",
    "token list --home @/home": "service",
    "token remove ada --home @/home": "service",
    "token reopen --home @/home": "service",
    "backup @/backup.tar --home @/home": "service",
    "restore @/backup.tar @/restored": "service",
    "top --seconds 1": "telemetry",
    "record --out @/record --seconds 1": "telemetry",
    "campaign types": "telemetry",
    "campaign simulate --out @/simulated --nodes 2 --threads 4 --hours 1 --rounds 1": "telemetry",
    "campaign run --out @/campaign": "campaign",
    "campaign fit @/simulated": "telemetry",
    "campaign compare @/simulated @/simulated --out @/compared": "models",
    "recording info @/simulated/round-000": "telemetry",
    "recording windows @/simulated/round-000": "telemetry",
    "recording export @/simulated/round-000 --out @/windows.npz": "telemetry",
    "act list --home @/home": "service",
    "act show a1 --home @/home": "service",
    "act approve a1 --home @/home": "service",
    "act dismiss a1 --home @/home": "service",
    "act resume rule --home @/home": "service",
    "act check @/policy.toml": "service",
    "act recover --home @/home": "service",
    "savings --home @/home": "service",
    "evidence show e1 --home @/home": "service",
    "job 1 --recording @/simulated/round-000 --home @/home": "service",
    "study --out @/study": "study",
    "train @/simulated --out @/model": "models",
    "model list --home @/home": "learn",
    "model show 1 --home @/home": "learn",
    "model promote 1 --home @/home": "learn",
    "model rollback --home @/home": "learn",
    "model sync --home @/home --mlflow @/mlflow": "learn",
    "learn run --home @/home": "learn",
    "learn freeze --home @/home": "learn",
    "learn resume --home @/home": "learn",
    "learn simulate --days 1 --out @/month": "learn",
    "learn timing --hours 1": "learn",
    "digest --home @/home": "service",
    "trace convert @/log.swf @/log.csv": "workload",
    "trace clean @/log.swf @/clean.swf": "workload",
    "trace anonymise @/log.swf @/secret.swf": "workload",
    "trace describe @/log.swf": "workload",
    "trace describe @/log.swf --out @/log.html": "workload",
    "trace generate @/log.swf --out @/made.swf": "workload",
    "trace compare @/log.swf @/made.swf": "generate",
    "trace generators": "workload",
    "trace share @/log.swf --out @/shared": "privacy",
    "trace forecast @/log.swf --weeks 1 --draws 2": "workload",
    "trace study @/log.swf --out @/traces": "generate",
    "sched simulate @/log.swf": "workload",
    "sched simulate @/log.swf --gantt @/chart.png": "workload",
    "sched simulate @/log.swf --gantt @/chart.html": "workload",
    "sched evaluate @/log.swf --window 0:100": "workload",
    "sched choose @/log.swf": "workload",
    "sched train @/log.swf --out @/policy.safetensors": "rl",
    "sched study @/log.swf --out @/policies": "rl",
    "sched whatif --squeue @/queue.txt --procs 4": "workload",
    "sched start --squeue @/queue.txt --procs 4": "workload",
    "sched simulate-site @/jobs.sacct --site @/site.toml": "workload",
    "sched validate @/jobs.sacct --site @/site.toml": "workload",
    "sched try --site @/site.toml --squeue @/no-queue.txt --sprio @/no-queue.txt": "workload",
    "sched search @/many.sacct --site @/site.toml --candidates 2": "workload",
    "sched compare-config @/jobs.sacct --site @/site.toml --site @/site.toml": "workload",
}

#: The extras without torch -> the lines that work with them alone.
LIGHT = {
    extra: [line for line, needs in LINES.items() if needs == extra and not line.endswith(("log.html", "chart.png"))]
    for extra in ("cli", "telemetry", "workload")
}


#: They serve until they are stopped, or look at jobs; they use the standard library only (import-linter checks it).
ON_NODES = {"exporter", "evidence take", "evidence serve"}


def leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield path


def test_every_command_has_a_line_in_this_test():
    commands = {name: typer.main.get_command(load(target)) for name, (target, _) in COMMANDS.items()}
    names = {" ".join(path) for name, command in commands.items() for path in leaves(command, (name,))}
    assert {name for name in names if not any(line.startswith(name) for line in LINES)} == ON_NODES


def run_lines(place: Path, lines: Sequence[str], extras: Sequence[str] = ()) -> dict[str, tuple[int, str, str]]:
    """Exit code, output and errors of every line, run in one process that cannot import other packages."""
    from tests.cli import test_sched_site as site
    from tests.service.web.test_api import EVENT, WHY

    from clustertwin.service.store.event_store import Store

    rng = np.random.default_rng(0)
    n = 2000
    run_s = rng.integers(1, 500, n)
    jobs = Jobs.build(
        np.cumsum(rng.integers(0, 60, n)), run_s, request_s=run_s * 2, cpus=rng.integers(1, 9, n),
        user=rng.integers(1, 5, n), machine=Machine(nodes=16, cpus_per_node=1),
    )  # fmt: skip
    write(jobs, place / "log.swf")
    (place / "queue.txt").write_text("1|a|RUNNING|4|1|10:00|0:00|None\n2|b|PENDING|4|1|10:00|0:00|Resources\n")
    (place / "no-queue.txt").write_text("")
    (place / "site.toml").write_text(site.SITE)
    (place / "jobs.sacct").write_text(site.HEADER + site.ROWS)
    (place / "many.sacct").write_text(site.HEADER + site.rows(30))
    (place / "service.toml").write_text(f'[service]\nhome = "{place}/served"\nport = 0\n')
    (place / "home").mkdir()
    store = Store(place / "home" / "state.sqlite")
    store.write([(EVENT, WHY)])
    store.close()
    words = [[word.replace("@", str(place)) for word in line.split()] for line in lines]
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run_base_install.py"), *extras],
        input=json.dumps(words), capture_output=True, text=True, cwd=place, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(lines, map(tuple, json.loads(done.stdout)), strict=True))


def fault(extra: str, code: int, errors: str) -> str:
    """What is wrong with the outcome of a line; empty if nothing is."""
    if "Traceback" in errors:
        return f"a traceback: {errors.strip().splitlines()[-1]}"
    wanted = rf"^twin: [\w.]+ is not installed; pip install 'clustertwin\[{extra}\]'$"
    if extra and not (code == 1 and re.search(wanted, errors, re.MULTILINE)):
        return f"exit code {code}, not the error that names {extra}: {errors}"
    return f"exit code {code}: {errors}" if code and not extra else ""


@pytest.mark.slow
def test_every_command_works_or_names_its_extra(tmp_path: Path):
    outcomes = run_lines(tmp_path, list(LINES))
    faults = {line: fault(LINES[line], code, errors) for line, (code, _, errors) in outcomes.items()}
    assert {line: text for line, text in faults.items() if text} == {}


@pytest.mark.slow
@pytest.mark.parametrize("extra", LIGHT)
def test_every_light_command_works_without_torch(tmp_path: Path, extra: str):
    """One process runs all lines, because most of the time is the import of numba."""
    outcomes = run_lines(tmp_path, LIGHT[extra], [extra])
    faults = {line: fault("", code, errors) for line, (code, _, errors) in outcomes.items()}
    assert {line: text for line, text in faults.items() if text} == {}


@pytest.mark.slow
def test_help_in_a_base_install_lists_every_command(tmp_path: Path):
    code, out, _ = run_lines(tmp_path, ["--help"])["--help"]
    assert code == 0
    assert all(re.search(rf"^  {name} ", out, re.MULTILINE) for name in COMMANDS)


@pytest.mark.medium
def test_the_base_install_has_only_what_the_exporter_needs():
    from tests.cli.run_base_install import distributions

    assert distributions() == {"bcrypt", "pyyaml"}
    assert "sdv" not in distributions(["all"])
    assert "mlflow" not in distributions(["service", "plots"])


def test_the_table_of_extras_is_that_of_the_package():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    imported_as = {
        "scikit-learn": "sklearn", "python-multipart": "python_multipart", "umap-learn": "umap",
        "sb3-contrib": "sb3_contrib",
    }  # fmt: skip
    expected: dict[str, set[str]] = {}
    for extra in set(declared) - {"all", "dev", "docs"}:
        requirements = [Requirement(text) for text in declared[extra]]
        own = {imported_as.get(each.name, each.name) for each in requirements if each.name != "clustertwin"}
        included = {name for each in requirements if each.name == "clustertwin" for name in each.extras}
        expected[extra] = (own - {"mpich", "py-spy"}) | included  # they are programs, not modules
    assert {extra: set(names) for extra, names in PACKAGES_BY_EXTRA.items()} == expected
    assert packages_of("ray") == {"ray"}
    assert "torch" in packages_of("sb3")


def test_only_a_missing_package_of_an_extra_is_explained():
    assert explain(ModuleNotFoundError("no", name="sympy")) is None  # a dependency of torch: its install is broken
    assert explain(ModuleNotFoundError("no", name="torch.nonsense")) is None  # torch is installed here
    assert explain(ModuleNotFoundError("no", name="clustertwin.nonsense"), "rl") is None
