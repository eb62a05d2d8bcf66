"""Who may see evidence and who may act: through the whole app, with tokens of each role."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from tests.service import sample_state
from tests.service.act.paper_slurm import PaperSlurm

from clustertwin.service.act.action_journal import ActionPlan, Journal
from clustertwin.service.act.counterfactual import outcomes_of
from clustertwin.service.act.evidence_store import EvidenceStore
from clustertwin.service.act.slurm_commands import read_facts
from clustertwin.service.store.tokens import Tokens
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, ProcessEvidence, Waiting
from clustertwin.telemetry.diagnosis.odd_rank import find
from clustertwin.workload.simulator.forecast.action_outcomes import ActionSettings

READ = ("/api/v1/evidence/e1", "/api/v1/actions", "/api/v1/savings", "/actions")


@pytest.fixture
def client(app, tmp_path, stage):
    vars(stage).update(vars(sample_state.state(tmp_path)))
    yield TestClient(app, base_url="http://127.0.0.1")
    stage.store.close()


@pytest.fixture
def tokens(stage, client):
    return {role: Tokens(stage.store.database).add(role, role, 0.0) for role in ("read", "vet", "admin")}


@pytest.fixture
def action(stage, client):
    """Evidence of the sample event, and a proposal that waits for a decision."""
    waits = [ProcessEvidence("n1", 9 + r, r, "waits-in-mpi", "R", mpi_call="MPI_Allreduce") for r in range(3)]
    odd = ProcessEvidence("n1", 20, 3, "blocked", "S", waiting=Waiting("read", "/scratch/<b>x"), since_s=9_000.0)
    evidence = JobEvidence("42", ("n1",), 9_900.0, 2.0, (*waits, odd), size=4, messages_pass=False)
    outcomes = outcomes_of("42", find(evidence), run=PaperSlurm(), settings=ActionSettings(futures=10))
    EvidenceStore(stage.store.database).add("e1", evidence, outcomes)
    plan = ActionPlan(read_facts("42", PaperSlurm()), "blocked-io", find(evidence).sentence, 0.97, "ask", "TERM", 30.0)
    action = Journal(stage.store.database).propose("e1", "cancel", "hung", plan, time.time())
    assert action is not None
    return action


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", READ)
def test_a_read_token_sees_neither_evidence_nor_actions(client, tokens, action, path):
    assert client.get(path, headers=bearer(tokens["read"])).status_code == 403
    assert client.get(path, headers=bearer(tokens["vet"])).status_code == 200


def test_the_event_page_shows_evidence_to_those_who_may_see_it(client, tokens, action):
    secret = "Rank 3 of 4 is in read() on /scratch/"
    shown = client.get("/events/e1", headers=bearer(tokens["vet"])).text
    assert secret in shown
    assert "/scratch/&lt;b&gt;x" in shown  # names of users are escaped
    assert "cancel it" in shown
    assert shown.index("The job hangs.") < shown.index("What raised this event")
    assert shown.count("Next step.") == 1
    assert "you need the role admin" in shown
    assert secret not in client.get("/events/e1", headers=bearer(tokens["read"])).text


@pytest.mark.parametrize("role", ["read", "vet"])
@pytest.mark.parametrize("verb", ["approve", "dismiss"])
def test_only_an_admin_decides(client, stage, tokens, action, role, verb):
    code = Journal(stage.store.database).code(action)
    answer = client.post(f"/api/v1/actions/{action.id}/{verb}", json={"code": code}, headers=bearer(tokens[role]))
    assert answer.status_code == 403
    answer = client.post(f"/actions/{action.id}/{verb}", data={"code": code}, headers=bearer(tokens[role]))
    assert answer.status_code == 403
    assert Journal(stage.store.database).action(action.id).state == "proposed"


def test_an_admin_approves_with_the_code_of_the_page_and_only_once(client, stage, tokens, action):
    page = client.get("/events/e1", headers=bearer(tokens["admin"])).text
    code = Journal(stage.store.database).code(action)
    assert code in page
    path, headers = f"/api/v1/actions/{action.id}/approve", bearer(tokens["admin"])
    assert client.post(path, json={"code": "0" * 64}, headers=headers).status_code == 409
    assert client.post(path, json={"code": code}, headers=headers).status_code == 200
    again = client.post(path, json={"code": code}, headers=headers)
    assert (again.status_code, "cannot be approved again" in again.text) == (409, True)


def test_a_form_of_the_page_approves_and_leads_back_to_the_event(client, stage, tokens, action):
    code = Journal(stage.store.database).code(action)
    answer = client.post(
        f"/actions/{action.id}/approve", data={"code": code}, headers=bearer(tokens["admin"]), follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/events/e1#hand")
    assert Journal(stage.store.database).action(action.id).state == "approved"


def test_an_action_that_does_not_exist_is_not_found(client, tokens):
    headers = bearer(tokens["admin"])
    assert client.post("/api/v1/actions/nonsense/approve", json={"code": "x"}, headers=headers).status_code == 404
    assert client.post("/actions/nonsense/dismiss", headers=headers).status_code == 404


def test_a_replay_does_not_act(client, stage, tokens, action):
    stage.replayed = True
    code = Journal(stage.store.database).code(action)
    answer = client.post(f"/api/v1/actions/{action.id}/approve", json={"code": code}, headers=bearer(tokens["admin"]))
    assert (answer.status_code, "a replay does not act" in answer.text) == (409, True)


def test_the_book_is_a_metric(client, stage, action):
    journal = Journal(stage.store.database)
    plan = replace(action.plan, promised_node_hours=2.0, promised_high=3.0)
    other = journal.propose("e2", "drain", "hung", plan, time.time())
    assert other is not None
    journal.measure(other.id, 1.5)
    text = client.get("/metrics").text
    assert 'twin_actions{state="proposed"} 2' in text
    assert 'twin_savings_node_hours{kind="promised"} 2' in text
    assert 'twin_savings_node_hours{kind="measured"} 1.5' in text
