"""What every room's tests share: where the real data is, if there is any."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from tests import hostile_inputs

from clustertwin.cli import main

# Tests run side by side: one thread each for the numeric libraries, here and in every process a test starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Imports and thousands of tests allocate millions of objects that stay: look for garbage less often than by default.
gc.set_threshold(20_000, 10, 10)
# A shell starts what it puts into the background with SIGINT ignored, and children inherit that; the tests send Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A busy machine is no failure. `--hypothesis-profile quick`, as `make quick` has it, looks at fewer examples.
settings.register_profile("whole", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("whole")


#: A file system in memory, where Linux has one, and the room that the directories of the fast tests may need.
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 2 << 30
#: Files that take a minute or more: they begin first.
LONGEST = (
    "tests/workload/slurm/test_real_slurmctld.py",
    "tests/docs/test_site.py",
    "tests/telemetry/ingest/sources/test_real_servers.py",
    "tests/telemetry/learning/test_nightly_cycle.py",
    "tests/workload/simulator/test_start_times_slurm.py",
    "tests/docs/test_pages.py",
    "tests/service/web/pages/test_accessibility.py",
    "tests/cli/test_base_install.py",
    "tests/deploy/test_alert_delivery.py",
    "tests/service/live/test_remote_write.py",
    "tests/service/live/test_central_champion.py",
    "tests/telemetry/learning/test_crash.py",
    "tests/service/act/test_duel.py",
    "tests/service/test_chaos.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Put the directories of fast tests into memory: they write thousands of databases, and each waits for the disk.

    Not those of others: some wait for a disk on purpose, and evidence about a process depends on where its files are.
    """
    chosen = config.option.markexpr
    if "not real" in chosen and "not slow" in chosen and os.access(MEMORY, os.W_OK):
        facts = os.statvfs(MEMORY)  # in a container it often has 64 MB, or executes no programs
        if facts.f_bavail * facts.f_frsize > MEMORY_BYTES and not facts.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", os.fspath(MEMORY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with real servers or a long one is tried twice: a busy machine is no failure. The summary says so.

    Files with such tests come first, so that no worker is left alone with a long one. Those that wait for servers and
    those that compute take turns: while one waits, another uses its CPU.
    """
    for item in items:
        if any(item.get_closest_marker(name) for name in ("real", "slow", "forks")):
            item.add_marker(pytest.mark.flaky(reruns=1))
    files: dict[str, list[pytest.Item]] = {name: [] for name in LONGEST}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    kinds: dict[str, list[list[pytest.Item]]] = {"real": [], "slow": [], "": []}
    for tests in filter(None, files.values()):
        kinds[next((kind for kind in ("real", "slow") if any(map(_has(kind), tests))), "")].append(tests)
    turns = [tests for pair in zip_longest(kinds["real"], kinds["slow"]) for tests in pair if tests]
    items[:] = [item for tests in (*turns, *kinds[""]) for item in tests]


def _has(marker: str) -> Callable[[pytest.Item], bool]:
    return lambda item: item.get_closest_marker(marker) is not None


def pytest_collection_finish() -> None:
    """Thousands of tests and the modules that they import stay until the end: the garbage collector skips them."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that forks has a pytest to itself: a copy of a process with the threads of other tests may hang."""
    if pyfuncitem.get_closest_marker("forks") is None or "CLUSTERTWIN_FORKS" in os.environ:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-o", "faulthandler_timeout=500", pyfuncitem.nodeid]
    environment = {**os.environ, "CLUSTERTWIN_FORKS": "1"}
    root = pyfuncitem.config.rootpath
    # Without a directory of its own it would close that of all tests to the users of their daemons.
    with TemporaryDirectory() as own:
        command.append(f"--basetemp={own}/tests")
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    return True


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Note how many damaged inputs a test of a parser has tried."""
    if hostile_inputs.tried:
        item.user_properties.append(("cases", (hostile_inputs.tried, hostile_inputs.spent_s)))
        hostile_inputs.tried, hostile_inputs.spent_s = 0, 0.0


def pytest_sessionfinish() -> None:
    for directory in hostile_inputs.directories:
        directory.cleanup()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table of `make fuzz`: the cases of each parser."""
    if "FUZZ_CASES" not in os.environ:
        return
    ended = [report for reports in terminalreporter.stats.values() for report in reports]
    for report in ended:
        cases = dict(getattr(report, "user_properties", ())).get("cases")
        if cases is not None and report.when == "teardown":
            tried, spent_s = cases
            terminalreporter.write_line(f"{tried:>10,} cases  {tried / spent_s:>8,.0f} a CPU second  {report.nodeid}")


@pytest.fixture(scope="session")
def data() -> Path:
    """The directory of real logs and recordings; a test that needs it is skipped, with a reason, where it is absent."""
    root = Path(os.environ.get("CLUSTERTWIN_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip("real data not here: set CLUSTERTWIN_DATA to its directory")
    return root


@pytest.fixture(scope="session")
def twin() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command as a person does, in a process of its own."""

    def run(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "clustertwin", *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True, **options)

    return run


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def twin_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command in this process, which saves the start of another: its exit code and what it printed."""

    def run(*words: object) -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["twin", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(ended.value.code or 0, said.out, said.err)

    return run


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster of two nodes with a CPU each, on loopback."""
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    # Ray lets its workers step back for everything else (niceness 15): on a busy machine they would not even import.
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'clustertwin[ray]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
