"""Slurm through slurmrestd: the same answers as the commands give, clear refusals, and a token that is never shown."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.http_answers import Handler, answering

from clustertwin.core.errors import SettingsError, SourceError, TwinError
from clustertwin.service.act.counterfactual import idle_cpus
from clustertwin.service.act.savings import CHECK_DELAYS_S, measure_action, read_overruns
from clustertwin.service.act.slurm_commands import commands_of, partitions, read_facts, unix_s
from clustertwin.service.act.slurm_rest import RestSettings, SlurmRest, account_line, job_line
from clustertwin.workload.simulator.forecast.squeue import COMMAND, parse_squeue

TOKEN = "eyJhbGciOiJIUzI1NiJ9.c2VjcmV0.c2lnbmF0dXJl"
JOB = {
    "job_id": 42, "user_id": 1000, "user_name": "ada", "account": "physics", "job_state": "RUNNING", "priority": 100,
    "restart_cnt": 0, "time_limit": 60, "start_time": 1_700_000_000, "partition": "batch", "nodes": "n[1-2]",
    "cpus": 8, "node_count": 2, "state_reason": "None", "array_job_id": 0, "array_task_id": None,
}  # fmt: skip
TASK = {**JOB, "job_id": 45, "job_state": "PENDING", "priority": 300, "array_job_id": 44, "array_task_id": 1}
ENDED = {
    "state": {"current": "TIMEOUT"}, "allocation_nodes": 2,
    "time": {"start": 1_700_000_000, "end": 1_700_003_622, "elapsed": 3622, "limit": 60},
}  # fmt: skip


@dataclass
class Rest:
    """A slurmrestd with fixed answers, which notes what it was asked."""

    url: str = ""
    answers: dict[str, object] = field(default_factory=dict)
    status: int = 200
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)


@pytest.fixture
def rest() -> Iterator[Rest]:
    state = Rest()
    state.answers = {
        "/slurm/v0.0.38/job/42": {"jobs": [JOB], "errors": []},
        "/slurm/v0.0.38/jobs/": {"jobs": [JOB, TASK, {**JOB, "job_id": 7, "job_state": "COMPLETED"}]},
        "/slurm/v0.0.38/partitions/": {"partitions": [{"name": "batch"}, {"name": "debug"}]},
        "/slurm/v0.0.38/nodes/": {
            "nodes": [
                {"name": "n1", "cpus": 8, "alloc_cpus": 8, "idle_cpus": 0},
                {"name": "n2", "cpus": 8, "idle_cpus": 6},
            ]
        },
        "/slurmdb/v0.0.38/job/42": {"jobs": [ENDED]},
        "/slurmdb/v0.0.38/jobs/": {"jobs": [ENDED]},
    }

    class Slurmrestd(Handler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            state.asked.append(f"{self.command} {self.path} {body}".strip())
            state.tokens.append(self.headers.get("X-SLURM-USER-TOKEN"))
            found = state.answers.get(self.path.partition("?")[0], {"errors": []})
            data = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send(data, state.status)

        do_GET = do_POST = do_DELETE = answer

    with answering(Slurmrestd) as address:
        state.url = f"http://{address}"
        yield state


def with_token(rest: Rest, tmp_path: Path, mode: int = 0o600) -> SlurmRest:
    path = tmp_path / "token"
    path.write_text(f"SLURM_JWT={TOKEN}\n")
    path.chmod(mode)
    return SlurmRest(RestSettings(rest.url, "twin", str(path)))


def test_the_facts_of_a_job_are_those_of_the_command(rest):
    facts = read_facts("42", SlurmRest(RestSettings(rest.url)))
    assert (facts.user, facts.uid, facts.account, facts.partition) == ("ada", 1000, "physics", "batch")
    assert (facts.state, facts.nodes, facts.limit_s, facts.start_s) == ("RUNNING", ("n1", "n2"), 3600.0, 1_700_000_000)


def test_a_task_and_a_part_have_the_ids_that_the_command_prints(rest):
    run = SlurmRest(RestSettings(rest.url))
    rest.answers["/slurm/v0.0.38/job/45"] = {"jobs": [TASK]}
    rest.answers["/slurm/v0.0.38/job/201"] = {"jobs": [{**JOB, "job_id": 201, "het_job_id": 200, "het_job_offset": 1}]}
    assert (read_facts("45", run).name, read_facts("45", run).id_on_nodes) == ("44_1", "45")
    assert read_facts("201", run).het_job == "200"


def test_the_queue_has_running_and_waiting_jobs_with_the_names_of_array_tasks(rest):
    queue = parse_squeue(SlurmRest(RestSettings(rest.url))(COMMAND))
    assert (queue.names, queue.running) == (("42", "44_1"), 1)
    assert SlurmRest(RestSettings(rest.url))(["sinfo", "--noheader", "--format=%C"]) == "8/6/2/16\n"
    assert partitions(SlurmRest(RestSettings(rest.url))) == {"batch", "debug"}


def test_the_cpus_of_each_node_are_printed_as_the_command_prints_them(rest):
    """The sum of all nodes was printed instead, so that no look had outcomes while a node was unfit."""
    text = SlurmRest(RestSettings(rest.url))(["sinfo", "--noheader", "--Node", "--format=%N|%C"])
    assert text == "n1|8/0/0/8\nn2|0/6/2/8\n"
    assert idle_cpus(text, frozenset({"n2"})) == 6


def test_the_accounting_has_overruns_and_the_end_of_a_job(rest):
    from tests.service.act.test_action_message import ACTION

    run = SlurmRest(RestSettings(rest.url))
    assert read_overruns(run) == (22.0,)
    assert measure_action(ACTION, 0.0, run) == pytest.approx(2 * 1_700_003_622 / 3600)


def test_a_start_in_the_hour_that_a_clock_change_repeats_is_exact(monkeypatch):
    """As a local time, 2:30 in winter time was read as 2:30 in summer time, an hour earlier."""
    monkeypatch.setenv("TZ", "Europe/Rome")
    time.tzset()
    try:
        for start_s in (1_729_989_000, 1_729_992_600):
            job = {**ENDED, "time": {**ENDED["time"], "start": start_s}}
            assert unix_s(account_line(job, ["Start"])) == start_s
            assert f"|x|{start_s}|x|" in job_line({**JOB, "start_time": start_s}, "|x|")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_accounting_without_jobs_is_empty_and_no_error(rest):
    nothing = {"errors": [{"error": "Nothing found with query", "description": "Nothing found"}], "jobs": []}
    rest.status, rest.answers["/slurmdb/v0.0.38/jobs/"] = 500, nothing  # as slurmrestd 22.05 answers
    assert read_overruns(SlurmRest(RestSettings(rest.url))) == CHECK_DELAYS_S


@pytest.mark.parametrize(
    ("verb", "requests"),
    [
        ("cancel", ["DELETE /slurm/v0.0.38/job/42?signal=TERM", "DELETE /slurm/v0.0.38/job/42"]),
        ("hold", ['POST /slurm/v0.0.38/job/42 {"hold":true}']),
    ],
)
def test_an_action_is_the_request_that_a_dry_run_shows(rest, verb, requests):
    run = SlurmRest(RestSettings(rest.url))
    commands = [c for c in commands_of(verb, read_facts("42", run), "a1", "TERM", 3.0) if c[0] != "sleep"]
    rest.asked.clear()
    shown = [run.describe(command).replace("{'hold': True}", '{"hold":true}') for command in commands]
    for command in commands:
        run(command)
    assert [asked.replace(": ", ":") for asked in rest.asked] == shown == requests


@pytest.mark.parametrize(
    ("verb", "name"),
    [("requeue", "requeue"), ("suspend", "suspend"), ("drain", "update"), ("reserve", "create reservation")],
)
def test_what_the_interface_does_not_have_is_one_sentence_and_no_request(rest, verb, name):
    run = SlurmRest(RestSettings(rest.url))
    facts = read_facts("42", run)
    rest.asked.clear()
    with pytest.raises(SourceError, match=f"Slurm's REST interface has no {name}"):
        run(commands_of(verb, facts, "a1", "TERM", 3.0, 60.0)[0])
    assert rest.asked == []


@pytest.mark.medium
@pytest.mark.parametrize(
    ("status", "answer", "sentence"),
    [
        (401, b"Authentication failure", "slurmrestd refused the token: it is wrong or has expired"),
        (200, b"<html>", "slurmrestd answered 200 with something that is not a document"),
        (200, b"[1]", "slurmrestd answered 200 with something that is not a document"),
        (200, {"jobs": []}, "Slurm's answer about job 42 cannot be read"),
        (200, {"jobs": [{"job_id": 42}]}, "Slurm's answer about job 42 cannot be read"),
        (200, {"jobs": [{"job_id": {}, "user_id": []}]}, "Slurm's answer about job 42 cannot be read"),
        (
            500,
            {"errors": [{"error": "Invalid job id specified", "error_code": 2017, "description": "get_job"}]},
            "slurmrestd failed: Invalid job id specified: get_job",
        ),
    ],
)
def test_a_bad_answer_is_one_sentence_without_the_token(rest, tmp_path, status, answer, sentence):
    rest.status, rest.answers["/slurm/v0.0.38/job/42"] = status, answer
    with pytest.raises(TwinError) as error:
        read_facts("42", with_token(rest, tmp_path))
    assert str(error.value) == sentence
    assert TOKEN not in repr(error.value)


def test_a_server_that_is_not_there_is_one_sentence_without_the_token(rest, tmp_path, caplog):
    rest.url = "http://127.0.0.1:9"
    with caplog.at_level("DEBUG"), pytest.raises(SourceError, match="Slurm does not answer: slurmrestd, ConnectError"):
        read_facts("42", with_token(rest, tmp_path))
    assert TOKEN not in caplog.text


def test_the_token_is_sent_and_never_logged(rest, tmp_path, caplog):
    with caplog.at_level("DEBUG"):
        read_facts("42", with_token(rest, tmp_path))
    assert rest.tokens == [TOKEN]
    assert TOKEN not in caplog.text


def test_a_token_that_others_can_read_is_refused(rest, tmp_path):
    with pytest.raises(SettingsError, match="other users can read the token"):
        read_facts("42", with_token(rest, tmp_path, 0o644))
    assert rest.asked == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (RestSettings("ftp://x"), "must begin with https://"),
        (RestSettings("http://[::1"), "is not an address"),
        (RestSettings("https://ctl:99999"), "is not an address"),
        (RestSettings("http://ctl:6820", token_file="t"), "would cross the network unencrypted to ctl"),
        (RestSettings("http://127.0.0.1.example.org", token_file="t"), "would cross the network unencrypted"),
        (RestSettings("http://localhost", version="../v1"), "is not a version such as v0.0.38"),
    ],
)
def test_settings_that_are_wrong_are_refused_at_the_start(settings, sentence):
    with pytest.raises(SettingsError, match=sentence):
        SlurmRest(settings)
