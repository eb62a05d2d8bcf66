"""Every command that reads a file: what it says about one that is missing, a directory, or not text."""

import io
import sys

import pytest
import typer

import clustertwin as ct
from clustertwin import cli
from clustertwin.core.extras import load

#: The words of a command; {} is the input.
COMMANDS = [
    "act check {} --no-slurm",
    "restore {} new-home",
    "recording info {}",
    "recording windows {}",
    "recording export {} --out day.csv",
    "up --replay {} --no-browser --port 0",
    "serve --config {} --check",
    "job 7 --recording {}",
    "trace convert {} new.swf",
    "trace clean {} new.swf",
    "trace anonymise {} new.swf",
    "trace describe {}",
    "trace compare {} {}",
    "trace forecast {}",
    "sched simulate {}",
    "sched evaluate {} --window 0:10",
    "sched whatif --squeue {} --procs 8",
    "sched start --squeue {} --procs 8",
    "sched start --replay {}",
    "sched try --site {}",
    "sched simulate-site {} --site {}",
    "sched validate {} --site {}",
]


@pytest.fixture(autouse=True)
def no_service(tmp_path, monkeypatch):
    """Some commands look into the home of a service, and that of this user may hold one."""
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(params=["missing", "directory", "binary"])
def unusable(request, tmp_path, monkeypatch):
    """The name of an input that no command can read, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    if request.param == "directory":
        (tmp_path / "directory").mkdir()
    if request.param == "binary":
        (tmp_path / "binary").write_bytes(bytes(range(256)) * 4)
    return request.param


@pytest.mark.medium
@pytest.mark.parametrize("command", COMMANDS)
def test_an_unusable_input_is_named_in_one_sentence(twin_here, unusable, command):
    result = twin_here(*command.replace("{}", unusable).split())
    assert result.returncode in (1, 2)
    assert result.stdout == ""
    said = result.stderr.strip().splitlines()[-1]
    assert unusable in said
    assert not said.startswith(" ")


@pytest.mark.parametrize(
    "words",
    [
        "campaign simulate --out new --hours nan",
        "campaign simulate --out new --hours inf",
        "sched simulate tiny.swf --bound-s nan",
        "sched simulate tiny.swf --bound-s -5",
        "sched simulate tiny.swf --procs 100000000000000000000",
        "sched train tiny.swf --out new --ppo-rounds -1",
        "sched start --squeue queue.txt --procs 8 --like 4cpus,99999999999999999999h",
        "trace generate tiny.swf --out new.swf --nodes 1000000000000000000000",
        "learn run --home new --day 0001-01-01",
        "learn run --home new --day 9999-12-31",
    ],
)
def test_an_odd_number_is_refused_in_one_sentence(twin_here, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    ct.write_log(ct.example_log(), tmp_path / "tiny.swf")
    (tmp_path / "queue.txt").write_text("2|ada|PENDING|4|1|1:00:00|0:00|Resources\n")
    result = twin_here(*words.split())
    assert result.returncode == 2
    assert result.stdout == ""
    assert not list(tmp_path.glob("new*"))


@pytest.mark.medium
@pytest.mark.parametrize("seed", [-1, 2**32])
def test_no_command_takes_a_seed_that_a_generator_refuses(twin_here, seed):
    with_seed = [
        (name, *filter(None, [command]))
        for name, (path, _) in cli.COMMANDS.items()
        for command, options in _options(load(path)).items()
        if "seed" in options
    ]
    assert len(with_seed) > 15
    for words in with_seed:
        assert "Invalid value for '--seed'" in twin_here(*words, "--seed", seed).stderr, words


def _options(app):
    """Command -> the names of its options; "" is the app itself."""
    command = typer.main.get_command(app)
    commands = getattr(command, "commands", {"": command})
    return {name: [option.name for option in each.params] for name, each in commands.items()}


def test_a_missing_recording_is_not_called_a_damaged_one(twin_here, tmp_path):
    assert "no such directory" in twin_here("recording", "info", tmp_path / "nowhere").stderr
    assert "no such directory" in twin_here("job", "7", "--recording", tmp_path / "nowhere").stderr


def test_a_log_can_come_from_standard_input(twin_here, tmp_path, monkeypatch):
    ct.write_log(ct.example_log(), tmp_path / "tiny.swf")
    from_file = twin_here("sched", "simulate", tmp_path / "tiny.swf", "--procs", 8).stdout
    stream = io.TextIOWrapper(io.BytesIO((tmp_path / "tiny.swf").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    from_pipe = twin_here("sched", "simulate", "-", "--procs", 8).stdout
    assert from_pipe.replace("standard-input", "tiny.swf").split() == from_file.split()


@pytest.mark.parametrize("command", ["learn freeze", "learn resume", "model list", "events list", "maintenance add n1"])
def test_a_home_that_does_not_exist_is_not_created(twin_here, tmp_path, command):
    result = twin_here(*command.split(), "--home", tmp_path / "typo")
    assert result.returncode == 2
    assert "no service has run here" in result.stderr
    assert not (tmp_path / "typo").exists()
