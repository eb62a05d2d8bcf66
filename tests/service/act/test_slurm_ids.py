"""Which job Slurm's answer is about: tasks of arrays, parts of heterogeneous jobs, and names that look like fields."""

from __future__ import annotations

import re

import pytest

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.service.act.slurm_commands import check_job, commands_of, parse_facts, read_facts

REST = "Priority=1 Account=a JobState=RUNNING Restarts=0 TimeLimit=01:00:00 StartTime=2026-01-01T00:00:00 Partition=p"
USER = "UserId=ada(1000)"
#: The id of an array is also the id of the task that started last.
ARRAY = f"JobId=123 ArrayJobId=123 ArrayTaskId=9 JobName=x {USER} {REST} NodeList=n9\n" + (
    f"JobId=124 ArrayJobId=123 ArrayTaskId=4 JobName=x {USER} {REST} NodeList=n4\n"
)
HET = f"JobId=200 HetJobId=200 HetJobOffset=0 HetJobIdSet=200-201 JobName=x {USER} {REST} NodeList=n1\n" + (
    f"JobId=201 HetJobId=200 HetJobOffset=1 HetJobIdSet=200-201 JobName=x {USER} {REST} NodeList=n2\n"
)


def slurm(text: str):
    """Answers about all parts of a job, or about the one that is asked for."""

    def run(arguments):
        if "hostnames" in arguments:
            return arguments[-1]
        _, sign, part = re.split(r"([_+])", arguments[-1]) if not arguments[-1].isdecimal() else ("", "", "")
        wanted = {"_": f"ArrayTaskId={part} ", "+": f"HetJobOffset={part} ", "": ""}[sign]
        return "\n".join(line for line in text.split("\n") if wanted in line)

    return run


@pytest.mark.parametrize(
    ("job", "name", "on_nodes", "node"),
    [("123", "123_9", "123", "n9"), ("124", "123_4", "124", "n4"), ("123_4", "123_4", "124", "n4")],
)
def test_an_action_on_a_task_never_means_the_whole_array(job, name, on_nodes, node):
    facts = read_facts(job, slurm(ARRAY))
    assert (facts.name, facts.id_on_nodes, facts.nodes) == (name, on_nodes, (node,))
    for verb in ("cancel", "requeue", "suspend", "hold"):
        for command in commands_of(verb, facts, "a1", "TERM", 5.0):
            assert command[0] == "sleep" or command[-1] == name


@pytest.mark.parametrize(("job", "node"), [("200", "n1"), ("201", "n2"), ("200+1", "n2")])
def test_a_part_of_a_heterogeneous_job_is_seen_and_not_acted_on(job, node):
    facts = read_facts(job, slurm(HET))
    assert (facts.nodes, facts.het_job) == ((node,), "200")
    for verb in ("cancel", "requeue", "suspend", "hold"):
        with pytest.raises(SettingsError, match="is a part of the heterogeneous job 200"):
            commands_of(verb, facts, "a1", "TERM", 5.0)
    assert commands_of("drain", facts, "a1", "TERM", 5.0)[0][2] == f"nodename={node}"


@pytest.mark.parametrize(
    "text",
    [
        f"JobId=42 JobName=x NodeList=n1,n7 {USER} {REST} NodeList=n1",
        f"JobId=42 JobName=x {USER} {REST} NodeList=n1 Comment=x UserId=bob(7)",
        f"JobId=42 JobName=x {USER} {REST} NodeList=n1 WorkDir=/x JobState=COMPLETED",
    ],
)
def test_a_name_or_comment_that_looks_like_a_field_is_not_believed(text):
    with pytest.raises(SourceError, match="has two values of"):
        read_facts("42", slurm(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No jobs in the system",
        "JobId=42",
        "\x00\xff garbage = = =",
        f"JobId=41 {USER} {REST} NodeList=n1",
        f"JobId=42 JobName=x\nJobId=7 {USER} {REST} NodeList=n1",  # a name with a line break
        f"JobId=42 {USER} {REST} NodeList=n1\nJobId=42 {USER} {REST} NodeList=n2",
    ],
)
def test_an_answer_about_another_job_or_none_is_one_sentence(text):
    with pytest.raises(SourceError, match="Slurm's answer about job 42 cannot be read"):
        read_facts("42", slurm(text))


def test_ids_of_other_jobs_in_the_name_of_a_job_are_not_its_own():
    """An action would have meant the job of another user."""
    name = "x ArrayJobId=9 ArrayTaskId=3 HetJobId=8 HetJobOffset=1"
    facts = read_facts("42", slurm(f"JobId=42 JobName={name} {USER} {REST} NodeList=n1"))
    assert (facts.target, facts.het_job) == ("42", "")


@pytest.mark.parametrize("end", ["\n", "\x0b", "\x85", "\u2028"])
def test_a_name_that_ends_its_line_does_not_speak_for_the_job(end):
    name = f"x UserId=root(0) {REST} NodeList=n7{end}JobId=43"
    with pytest.raises(SourceError, match="Slurm's answer about job 42"):
        read_facts("42", slurm(f"JobId=42 JobName={name} {USER} {REST} NodeList=n1"))


def test_a_name_of_a_task_with_the_line_of_another_task_does_not_speak_for_it():
    name = f"x UserId=root(0) {REST} NodeList=n7\nJobId=124 ArrayJobId=123 ArrayTaskId=4 JobName=y"
    text = f"JobId=123 ArrayJobId=123 ArrayTaskId=9 JobName={name} {USER} {REST} NodeList=n9"
    with pytest.raises(SourceError, match="Slurm's answer about job 123 cannot be read"):
        read_facts("123", lambda arguments: arguments[-1] if "hostnames" in arguments else text)


def test_a_user_id_that_is_too_large_is_one_sentence():
    with pytest.raises(SourceError, match="cannot be read"):
        parse_facts("42", f"JobId=42 UserId=ada({'9' * 5000}) {REST}", ())


@pytest.mark.parametrize("job", ["42", "42_7", "42+1"])
def test_the_ids_that_slurm_writes_are_ids(job):
    assert check_job(job) == job
