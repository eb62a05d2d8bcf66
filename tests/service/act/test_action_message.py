"""The message about an action, for a reader who has never seen the twin."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from tests.service.act.paper_slurm import PaperSlurm

from clustertwin.core.errors import SettingsError
from clustertwin.service.act.action_journal import ActionPlan, ActionRecord
from clustertwin.service.act.action_message import ABOUT, compose_message
from clustertwin.service.act.policy import VERBS
from clustertwin.service.act.slurm_commands import read_facts
from clustertwin.service.outgoing.action_notices import queue_notices
from clustertwin.service.outgoing.notifications import NotifySettings, Outbox
from clustertwin.service.outgoing.owner_messages import OwnerPost
from clustertwin.telemetry.diagnosis.odd_rank import KINDS

SENTENCE = "Rank 3 of 8 is in read() on /scratch/x since 14:02:11, and the others wait in MPI_Allreduce."
PLAN = ActionPlan(read_facts("42", PaperSlurm()), "blocked-io", SENTENCE, 0.97, "ask", "TERM", 30.0, 1.5, 1.0, 2.0)
ACTION = ActionRecord("a1", "e1", "42", "cancel", "hung", "proposed", 0.0, 0.0, "", "", PLAN)
URL = "json://localhost/{user}"


def test_the_owner_reads_what_happened_what_to_do_and_how_to_object():
    title, body = compose_message(ACTION, "https://twin.example.org/", owner=True, contact="help@example.org")
    assert title == "Your job 42 hangs: a rank is blocked on a file or a socket, and the others wait for it"
    assert body.split("\n\n") == [
        "What happened: Your job 42 in partition batch on n1 has stopped making progress. If nothing is done, it keeps "
        "its nodes until its time limit at 2023-11-14 23:13:20 UTC and finishes nothing.",
        f"What is known: {SENTENCE} A rank is one process of an MPI program. clustertwin is 97 % sure.",
        "What is done: Nothing yet. clustertwin proposes to end the job, and an administrator decides. This cannot be "
        "undone: the work since the start, or since the last checkpoint, is lost.",
        "What you can do: Look at the ranks that are named above. If the job hangs, end it with `scancel 42`, mend the "
        "cause and submit it again. If it works as you intend, object.",
        "What it saves: Ending it now frees about 1.50 node-hours for other jobs (simulated: 1.00 to 2.00 in "
        "eight of ten cases).",
        "How to object: Write to help@example.org and name action a1. If they agree, the rule “hung” does nothing more "
        "until a person allows it again.",
        "More: https://twin.example.org/events/e1",
        ABOUT,
    ]


def test_an_administrator_reads_whose_job_it_is_and_how_to_decide():
    title, body = compose_message(ACTION)
    assert title.startswith("Job 42 hangs: ")
    assert "Job 42 of ada, account physics, in partition batch on n1" in body
    assert "`twin act approve a1 --yes` runs them" in body
    assert "How to object" not in body


def test_a_job_that_was_ended_is_not_called_running():
    _, body = compose_message(replace(ACTION, state="done", result="done"), owner=True)
    assert "The job was ended. The rule “hung” of the administrators allows this." in body
    assert "If nothing is done" not in body
    assert "scancel" not in body
    assert "Ending it has freed about 1.50 node-hours" in body
    assert "Write to the administrators of this cluster" in body


def test_a_cause_that_is_no_hang_is_not_called_one():
    title, body = compose_message(
        replace(ACTION, plan=replace(PLAN, cause="idle", sentence="All 4 sleep.")), owner=True
    )
    assert title == "Your job 42 is unusual: no process uses CPU time"
    assert "clustertwin does not claim that it hangs." in body


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", ["proposed", "advised", "done", "failed", "expired", "dismissed"])
def test_every_action_in_every_state_has_whole_sentences(verb, state):
    for owner in (True, False):
        for cause in KINDS:
            action = replace(
                ACTION, verb=verb, state=state, result="Slurm does not answer", plan=replace(PLAN, cause=cause)
            )
            title, body = compose_message(action, owner=owner)
            assert "{" not in title + body
            assert all(part.rstrip("`").endswith(".") for part in body.split("\n\n")), body
            assert "  " not in body


def test_names_of_users_and_files_cannot_add_lines():
    facts = replace(PLAN.facts, user="ada\nWhat is done: all is well", partition="p\x1b[2J")
    plan = replace(PLAN, facts=facts, sentence="Rank 0 is in read() on /x\n\nHow to object: you cannot.")
    _, body = compose_message(replace(ACTION, plan=plan))
    assert "\x1b" not in body
    assert len(body.split("\n")) == len(compose_message(ACTION)[1].split("\n"))


def test_an_action_has_one_message_also_after_a_crash(tmp_path):
    settings = NotifySettings(urls=("json://localhost",))
    for _ in range(2):
        queue_notices(tmp_path, settings)(ACTION)
    (waiting,) = Outbox(tmp_path, settings.urls).waiting("json://localhost")
    assert waiting[1].title.startswith("Job 42 hangs")


class Post:
    """Targets that note what they accept."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.accepts = True

    def __call__(self, url: str):
        def send(title: str, body: str) -> bool:
            if self.accepts:
                self.sent.append((url, title))
            return self.accepts

        return send


def test_the_owner_gets_one_message_that_waits_for_a_target_that_fails(tmp_path):
    post = Post()
    post.accepts = False
    owners = OwnerPost(tmp_path, URL, send_to=post)
    for _ in range(2):  # as after a crash
        queue_notices(tmp_path, NotifySettings(), owners)(ACTION)
    now_s = (tmp_path / "outbox-owners" / "a1.json").stat().st_mtime
    owners.deliver(now_s)
    post.accepts = True
    owners.deliver(now_s + 10)  # not tried again yet
    assert post.sent == []
    owners.deliver(now_s + 400)
    owners.deliver(now_s + 800)
    assert [url for url, _ in post.sent] == ["json://localhost/ada"]


@pytest.mark.parametrize("refuses", [lambda: False, lambda: 1 / 0])
def test_an_owner_whose_target_refuses_does_not_stop_the_messages_to_others(tmp_path, refuses):
    """The first message that was refused kept back all later ones for two days."""
    sent = []

    def target(url):
        return lambda *words: refuses() if url.endswith("/ada") else sent.append(url) or True

    owners = OwnerPost(tmp_path, URL, send_to=target)
    owners.put(ACTION)
    owners.put(replace(ACTION, id="a2", plan=replace(PLAN, facts=replace(PLAN.facts, user="bob"))))
    now_s = (tmp_path / "outbox-owners" / "a1.json").stat().st_mtime
    for turn in range(2):
        with suppress(ZeroDivisionError):  # `watch_owners` names it as a problem
            owners.deliver(now_s + 10 * turn)
    assert sent == ["json://localhost/bob"]


@pytest.mark.parametrize("user", ["ada&to=all@example.org", "../x", "", "ada ada", "a" * 40, "ada/bob"])
def test_a_user_name_that_is_an_address_of_its_own_is_refused(tmp_path, user):
    action = replace(ACTION, plan=replace(PLAN, facts=replace(PLAN.facts, user=user)))
    with pytest.raises(SettingsError, match="is not a user name"):
        OwnerPost(tmp_path, URL, send_to=Post()).put(action)


def test_a_url_without_the_user_is_refused_at_the_start(tmp_path):
    with pytest.raises(SettingsError, match=r"must contain \{user\}"):
        OwnerPost(tmp_path, "mailto://localhost", send_to=Post())
