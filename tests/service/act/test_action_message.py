"""The message about an action, for a reader who has never seen the twin."""

from __future__ import annotations

from tests.service.act.paper_slurm import PaperSlurm

from clustertwin.service.act.action_journal import ActionPlan, ActionRecord
from clustertwin.service.act.action_message import compose_message
from clustertwin.service.act.slurm_commands import read_facts
from clustertwin.service.outgoing.action_notices import queue_notices
from clustertwin.service.outgoing.notifications import NotifySettings, Outbox

SENTENCE = "Rank 3 of 8 is in read() on /scratch/x since 14:02:11, and the others wait in MPI_Allreduce."
PLAN = ActionPlan(read_facts("42", PaperSlurm()), "blocked-io", SENTENCE, 0.97, "ask", "TERM", 30.0, 1.5, 1.0, 2.0)
ACTION = ActionRecord("a1", "e1", "42", "cancel", "hung", "proposed", 0.0, 0.0, "", "", PLAN)


def test_a_message_says_what_is_known_what_happens_and_what_to_do():
    title, body = compose_message(ACTION, "https://twin.example.org/")
    assert title == "Job 42 hangs: blocked-io"
    assert body.splitlines() == [
        f"What is known: {SENTENCE}",
        "Job 42 of ada on n1, partition batch. The twin is 97% sure.",
        "The twin proposes to cancel the job. An administrator decides; nothing was done yet.",
        "This cannot be undone: the work since the start, or since the last checkpoint, is lost.",
        "If the job is ended now, this saves 1.50 node-hours (80 % interval 1.00 to 2.00).",
        "What you can do: look at the rank that is named, end the job yourself, or dismiss the event.",
        "https://twin.example.org/events/e1",
    ]


def test_an_action_has_one_message_also_after_a_crash(tmp_path):
    settings = NotifySettings(urls=("json://localhost",))
    for _ in range(2):
        queue_notices(tmp_path, settings)(ACTION)
    (waiting,) = Outbox(tmp_path, settings.urls).waiting("json://localhost")
    assert waiting[1].title == "Job 42 hangs: blocked-io"
