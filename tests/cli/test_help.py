"""The command line as a whole: light to start, documented, and honest in its exit codes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clustertwin.cli import COMMANDS, SECTIONS
from clustertwin.cli.output import print_table

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


def test_importing_the_package_imports_nothing_else():
    code = (
        "import sys; before = set(sys.modules); import clustertwin\n"
        "print(*(name for name in set(sys.modules) - before if not name.startswith('clustertwin')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"__future__"}


@pytest.mark.medium
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(twin_here, name):
    result = twin_here(name, "--help")
    assert result.returncode == 0, result.stderr
    assert "--help" in result.stdout
    assert "..." not in result.stdout.partition("Commands:")[2], "a sentence is cut"
    for line in re.findall(r"^  ([a-z][a-z-]+)  ", result.stdout.partition("Commands:")[2], re.MULTILINE):
        assert "--json" in twin_here(name, line, "--help").stdout, f"twin {name} {line}"


def test_every_command_is_documented():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    assert [name for name in COMMANDS if not re.search(rf"\btwin {name}\b(?!-)", text)] == []


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


@pytest.mark.medium
@pytest.mark.parametrize("words", [["campaign", "types"], ["trace", "generators", "--json"]])
def test_a_closed_pipe_is_not_an_error(words):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "clustertwin", *words], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_while_a_command_is_imported_gives_no_traceback(twin_here, monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("clustertwin.cli._main", interrupted)
    result = twin_here("events", "list")
    assert (result.returncode, result.stderr) == (130, "")


def test_a_terminal_that_is_too_narrow_for_a_table_gets_its_rows(twin_here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    shown = twin_here("campaign", "types").stdout
    assert "type: np" in shown
    assert "…" not in shown
    monkeypatch.setenv("COLUMNS", "120")
    assert "type: np" not in twin_here("campaign", "types").stdout


@pytest.mark.parametrize("columns", [40, 44, 48])
def test_no_number_is_cut_on_a_narrow_terminal(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table("", ["policy", "wait s", "slowdown", "used", "fair"], [["fcfs", 12901, 27.03, 0.7692, 0.6609]])
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert all(number in shown for number in ("12901", "27.03", "0.7692", "0.6609"))


def test_a_name_in_a_table_is_neither_markup_nor_a_control_sequence(capsys):
    print_table("[/title]", ["job"], [["[/x] :bomb: [red]\x1b[2J"]])
    shown = capsys.readouterr().out
    assert "[/title]" in shown
    assert "[/x] :bomb: [red]\\x1b[2J" in shown


def test_each_command_is_in_one_part_of_the_help():
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(COMMANDS)


@pytest.mark.parametrize("words", [["trace", "generate"], ["campaign", "run"], ["sched", "simulate"]])
def test_the_help_names_types_and_bounds_in_the_words_of_a_shell(twin_here, words):
    shown = twin_here(*words, "--help").stdout
    assert all(python not in shown for python in ("range>", "list[", "<=", ">=", "4294967295", "2147483648"))
    assert "<text>" in shown
    assert "at least 1" in shown or "0.001" in shown


def test_a_command_explains_itself_with_a_single_letter(twin_here):
    shown = twin_here("sched", "simulate", "-h")
    assert (shown.returncode, shown.stdout) == (0, twin_here("sched", "simulate", "--help").stdout)


def test_a_title_that_is_longer_than_its_table_stays_on_one_line(capsys):
    title = "log.swf: 1 window, backfilling: none"
    print_table(title, ["policy"], [["sjf"]])
    assert title in capsys.readouterr().out.splitlines()
