"""Every row of the table of programs can be started, and finds what it refers to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import clustertwin.telemetry.campaign.zoo as zoo
from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.zoo.program_inputs import prepare_inputs
from clustertwin.telemetry.campaign.zoo.program_table import PROGRAMS, find_program
from clustertwin.telemetry.campaign.zoo.zoo_queue import check_host, plan_runs

FOLDER = Path(zoo.__file__).parent
INSTALLER = Path(__file__).parents[4] / "deploy" / "install-zoo"


def test_the_zoo_has_serial_threaded_and_mpi_programs():
    assert len(PROGRAMS) >= 20
    assert {program.kind for program in PROGRAMS.values()} == {"serial", "threads", "MPI"}


@pytest.mark.medium
@pytest.mark.parametrize("name", PROGRAMS)
def test_commands_are_valid_shell_and_their_files_exist(name):
    program = PROGRAMS[name]
    for command in (program.command, program.inputs, program.version):
        assert subprocess.run(["bash", "-n", "-c", command], capture_output=True).returncode == 0, command
        for variable, folder in (("DECKS", "decks"), ("PROGRAMS", "programs")):
            for file in re.findall(rf"\${variable}/([\w.-]+)", command):
                assert (FOLDER / folder / file).is_file()


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_script_installs_every_executable(name):
    of_the_system = {"sort", "gzip"}
    of_another_package = {
        "makeblastdb": "blastn",
        "blastp": "blastn",
        "bowtie2-build": "bowtie2",
        "hmmbuild": "hmmsearch",
    }
    for executable in set(PROGRAMS[name].needs) - of_the_system:
        assert f"[{of_another_package.get(executable, executable)}]=" in INSTALLER.read_text()


def test_an_unknown_program_is_refused_with_the_names():
    with pytest.raises(SettingsError, match="unknown program 'nonsense'; available programs: gromacs"):
        find_program("nonsense")


def test_inputs_are_made_once_and_whole(tmp_path):
    folder = prepare_inputs("mrbayes", tmp_path)
    made = (folder / "data.nex").stat().st_mtime_ns
    assert (folder / "data.nex").read_text().startswith("#NEXUS")
    assert prepare_inputs("mrbayes", tmp_path) == folder
    assert (folder / "data.nex").stat().st_mtime_ns == made


def test_inputs_that_cannot_be_made_leave_no_folder(tmp_path, monkeypatch):
    broken = PROGRAMS["notebook"].__class__("", "serial", "true", "true", "echo no such file >&2; false")
    monkeypatch.setitem(PROGRAMS, "broken", broken)
    with pytest.raises(SettingsError, match="broken: the inputs could not be made: no such file"):
        prepare_inputs("broken", tmp_path)
    assert not (tmp_path / "broken").exists()


def test_a_program_that_is_not_installed_is_left_out(monkeypatch):
    missing = PROGRAMS["notebook"].__class__("", "serial", "true", "true", needs=("no-such-executable",))
    monkeypatch.setitem(PROGRAMS, "missing", missing)
    assert "missing" not in {run.program for run in plan_runs(1)}
    with pytest.raises(SettingsError, match="deploy/install-zoo"):
        list(plan_runs(1, ["missing"]))


def test_the_zoo_asks_for_root(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SettingsError, match="as root"):
        check_host()
