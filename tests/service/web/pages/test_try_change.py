"""The page that tries a change: what it asks for, what it shows, who may see it, and one comparison at a time."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from clustertwin.core.errors import SourceError
from clustertwin.service.live.queue.change_desk import ChangeDesk, ChangeForm, DeskBusy
from clustertwin.service.live.queue.queue_settings import QueueSettings
from clustertwin.service.store.tokens import Tokens

GROUP = {"kind": "all", "name": "<b>all", "jobs": 3, "old_wait_s": 600.0, "new_wait_s": 60.0, "ratio_low": 0.05,
         "ratio_high": None}  # fmt: skip
RESULT = {
    "groups": [GROUP],
    "jobs": [{"job": "4711", "user": "ada", "partition": "batch", "old_s": 7200.0, "new_s": 0.0}],
    "futures": 20,
    "notes": ["2 jobs: a reason"],
}


class PaperTwin:
    """Answers like `twin sched try`, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.answer: str | SourceError = json.dumps(RESULT)

    def __call__(self, arguments: Sequence[str], budget_s: float) -> str:
        self.calls.append(list(arguments))
        if isinstance(self.answer, SourceError):
            raise self.answer
        return self.answer


@pytest.fixture
def twin(published: Any) -> PaperTwin:
    twin = PaperTwin()
    published.changes = ChangeDesk(QueueSettings(site="/etc/slurm", futures=5, budget_s=30.0), twin)
    return twin


def test_without_a_site_the_page_says_what_to_configure(client):
    assert "Set queue.site" in client.get("/try").text
    assert client.post("/try", data={}).status_code == 404


def test_the_form_becomes_arguments_and_empty_fields_none(client, twin):
    page = client.post("/try", data={"age": "500", "qos": "", "add_nodes": "4", "drain": "n[1-2],n9"}).text
    command = ["sched", "try", "--json", "--futures", "5", "--hours", "24", "--site", "/etc/slurm"]
    assert twin.calls == [[*command, "--weight=age=500", "--add-nodes=4", "--drain=n[1-2],n9"]]
    assert "10 min" in page
    assert "4711" in page
    assert "&lt;b&gt;all" in page
    assert "2 jobs: a reason" in page
    assert 'value="n[1-2],n9"' in page  # the form keeps what was entered


@pytest.mark.parametrize("data", [{"age": "-1"}, {"age": "1e9"}, {"add_nodes": "999999"}, {"drain": "n1; rm"}])
def test_values_that_are_no_numbers_and_no_node_names_are_refused(client, twin, data):
    assert client.post("/try", data=data).status_code == 422
    assert twin.calls == []


def test_a_comparison_that_fails_says_why(client, twin):
    twin.answer = SourceError("it took longer than its budget of 30 s")
    answer = client.post("/try", data={})
    assert answer.status_code == 422
    assert "There is no answer: it took longer than its budget of 30 s" in answer.text
    twin.answer = "{}"
    assert "cannot be read" in client.post("/try", data={}).text


def test_only_one_comparison_runs_at_a_time():
    inside, go_on = threading.Event(), threading.Event()

    def slow(arguments: Sequence[str], budget_s: float) -> str:
        inside.set()
        go_on.wait(30)
        return json.dumps(RESULT)

    desk = ChangeDesk(QueueSettings(site="s"), slow)
    thread = threading.Thread(target=desk.compare, args=(ChangeForm(),))
    thread.start()
    assert inside.wait(30)
    with pytest.raises(DeskBusy, match="another comparison runs"):
        desk.compare(ChangeForm())
    go_on.set()
    thread.join()
    assert desk.compare(ChangeForm())["futures"] == 20


def test_the_page_needs_the_role_vet(client, twin, published):
    tokens = Tokens(published.store.database)
    for role, code in (("read", 403), ("vet", 200)):
        token = tokens.add(role, role, 0.0)
        headers = {"Authorization": f"Bearer {token}"}
        assert client.get("/try", headers=headers).status_code == code
        assert client.post("/try", data={}, headers=headers).status_code == code
