"""The command line as a whole: light to start, documented, and honest in its exit codes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clustertwin.cli import COMMANDS

ROOT = Path(__file__).parents[2]


def test_help_lists_every_command_of_the_table(twin):
    shown = twin("--help").stdout
    assert all(name in shown for name in COMMANDS)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['twin', '--help']\n"
        "from clustertwin.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'torch', 'pandas', 'numba', 'scipy', 'pyarrow', 'rich', 'httpx'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_takes_less_than_50_ms_and_no_numpy():
    code = (
        "import sys, time; begin = time.perf_counter(); import clustertwin\n"
        "print(time.perf_counter() - begin, 'numpy' in sys.modules)\n"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(5)]
    words = [run.stdout.split() for run in runs]
    assert min(float(seconds) for seconds, _ in words) < 0.05
    assert {numpy for _, numpy in words} == {"False"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(twin_here, name):
    result = twin_here(name, "--help")
    assert result.returncode == 0, result.stderr
    assert "--help" in result.stdout
    for line in re.findall(r"^  ([a-z][a-z-]+)  ", result.stdout.partition("Commands:")[2], re.MULTILINE):
        assert "--json" in twin_here(name, line, "--help").stdout, f"twin {name} {line}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name):
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(f"twin {name}" in page.read_text() for page in pages)


def test_an_unknown_command_is_a_usage_error(twin_here):
    assert twin_here("nonsense").returncode == 2


@pytest.mark.parametrize(
    ("typed", "meant"), [("event", "twin events"), ("shed", "twin sched"), ("recordings", "twin recording")]
)
def test_a_misspelt_command_gets_a_suggestion(twin_here, typed, meant):
    result = twin_here(typed, "list")
    assert result.returncode == 2
    assert f"No such command '{typed}'. Did you mean `{meant}`" in result.stderr


def test_our_errors_are_one_line_and_an_exit_code(twin_here):
    result = twin_here("trace", "describe", "no-such-file.swf")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "no-such-file.swf" in result.stderr
