"""Which job Slurm's answer is about: tasks of arrays, parts of heterogeneous jobs, and texts that look like fields."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pytest
from tests.service.act.paper_slurm import ALONE, record

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.service.act.slurm_commands import (
    FACTS,
    check_job,
    commands_of,
    facts_command,
    mark_of,
    read_facts,
    run_command,
)

JOB = {
    **ALONE, "JobID": 42, "ArrayJobID": 42, "UserID": 1000, "UserName": "ada", "Account": "a", "Partition": "p",
    "State": "RUNNING", "StartTime": "2026-01-01T00:00:00", "NodeList": "n1", "TimeLimit": "1:00:00",
    "PriorityLong": 1, "RestartCnt": 0,
}  # fmt: skip
#: The id of an array is also the id of the task that started last, or of all tasks that wait.
ARRAY = (
    {**JOB, "JobID": 123, "ArrayJobID": 123, "ArrayTaskID": 9, "NodeList": "n9"},
    {**JOB, "JobID": 124, "ArrayJobID": 123, "ArrayTaskID": 4, "NodeList": "n4"},
)
HET = (
    {**JOB, "JobID": 200, "ArrayJobID": 200, "HetJobID": 200, "HetJobOffset": 0, "NodeList": "n1"},
    {**JOB, "JobID": 201, "ArrayJobID": 201, "HetJobID": 200, "HetJobOffset": 1, "NodeList": "n2"},
)


def slurm(*jobs: dict[str, object]) -> Callable[[Sequence[str]], str]:
    """Answers with these jobs, whatever job is asked for."""
    return answers(lambda mark: "".join(record(job, mark) for job in jobs))


def answers(text: Callable[[str], str]) -> Callable[[Sequence[str]], str]:
    return lambda arguments: arguments[-1] if "hostnames" in arguments else text(mark_of(arguments))


@pytest.mark.parametrize(
    ("job", "name", "on_nodes", "node"),
    [("123", "123_9", "123", "n9"), ("124", "123_4", "124", "n4"), ("123_4", "123_4", "124", "n4")],
)
def test_an_action_on_a_task_never_means_the_whole_array(job, name, on_nodes, node):
    facts = read_facts(job, slurm(*ARRAY))
    assert (facts.name, facts.id_on_nodes, facts.nodes) == (name, on_nodes, (node,))
    for verb in ("cancel", "requeue", "suspend", "hold"):
        for command in commands_of(verb, facts, "a1", "TERM", 5.0):
            assert command[0] == "sleep" or command[-1] == name


@pytest.mark.parametrize(("job", "node"), [("200", "n1"), ("201", "n2"), ("200+1", "n2")])
def test_a_part_of_a_heterogeneous_job_is_seen_and_not_acted_on(job, node):
    facts = read_facts(job, slurm(*HET))
    assert (facts.nodes, facts.het_job) == ((node,), "200")
    for verb in ("cancel", "requeue", "suspend", "hold"):
        with pytest.raises(SettingsError, match="is a part of the heterogeneous job 200"):
            commands_of(verb, facts, "a1", "TERM", 5.0)
    assert commands_of("drain", facts, "a1", "TERM", 5.0)[0][2] == f"nodename={node}"


def test_no_text_of_a_user_is_asked_for():
    """A job was left alone for ever if its name, comment or directory looked like a field of Slurm's answer."""
    assert not {name.lower() for name in FACTS} & {"name", "comment", "workdir", "command", "wckey", "features"}
    command = " ".join(facts_command("42", "|x|"))
    assert command.startswith("squeue ")
    assert command.endswith(" --jobs=42")


@pytest.mark.parametrize(
    "account",
    [
        "x|RUNNING|0|root",
        "x\n42|42|N/A|N/A|N/A|0|root|a|p|RUNNING",
        "x NodeList=n7",
        "x\nJobId=43 UserId=root(0)",
        "x\x85\u2028",
    ],
)
def test_a_text_that_looks_like_other_fields_or_another_job_is_only_a_text(account):
    """Where Slurm does not check accounts, a user chooses even this one."""
    facts = read_facts("42", slurm({**JOB, "Account": account}))
    assert (facts.uid, facts.user, facts.nodes, facts.state, facts.target) == (1000, "ada", ("n1",), "RUNNING", "42")
    assert facts.account.isprintable()


def test_the_mark_is_another_one_for_each_question():
    marks = []

    def run(arguments):
        if "hostnames" in arguments:
            return arguments[-1]
        marks.append(mark_of(arguments))
        return record(JOB, marks[-1])

    for _ in range(2):
        read_facts("42", run)
    assert len(set(marks)) == 2
    with pytest.raises(SourceError, match="Slurm's answer about job 42 cannot be read"):
        read_facts("42", answers(lambda mark: record(JOB, marks[0])))


@pytest.mark.parametrize(
    "text",
    [
        lambda mark: "",
        lambda mark: "No jobs in the system",
        lambda mark: f"42{mark}",
        lambda mark: "\x00\ufffd garbage = = =",
        lambda mark: record({**JOB, "JobID": 41}, mark),
        lambda mark: record(JOB, mark) + record(JOB, mark),
        lambda mark: record(JOB, mark) + "42",
        lambda mark: record(JOB, mark).removesuffix(f"{mark}\n"),
        lambda mark: record({**JOB, "UserID": "9" * 5000}, mark),
        lambda mark: record({**JOB, "UserID": "ada"}, mark),
        lambda mark: record({**JOB, "State": ""}, mark),
    ],
)
def test_an_answer_about_another_job_or_none_is_one_sentence(text):
    with pytest.raises(SourceError, match="Slurm's answer about job 42 cannot be read"):
        read_facts("42", answers(text))


def test_a_job_that_waits_has_no_nodes_and_no_start():
    waiting = {**JOB, "State": "PENDING", "NodeList": "", "StartTime": "N/A", "Account": "(null)"}
    facts = read_facts("42", slurm(waiting))
    assert (facts.nodes, facts.start_s, facts.account, facts.limit_s) == ((), 0.0, "", 3600.0)


@pytest.mark.parametrize("job", ["42", "42_7", "42+1"])
def test_the_ids_that_slurm_writes_are_ids(job):
    assert check_job(job) == job


def test_times_are_asked_for_in_seconds_whatever_format_the_site_set(tmp_path, monkeypatch):
    """With SLURM_TIME_FORMAT=relative, every job had started in 1970."""
    command = tmp_path / "squeue"
    command.write_text('#!/bin/sh\nprintf %s "$SLURM_TIME_FORMAT"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    assert run_command(["squeue"]) == "%s"
    assert read_facts("42", slurm({**JOB, "StartTime": 1_729_992_600})).start_s == 1_729_992_600
