"""Joined clusters: what a service tells, what is refused, what the page, API and metrics show, and a killed service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from math import isnan, nan
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError
from tests.servers import document, free_address
from tests.service import sample_state

from clustertwin.core.errors import SourceError
from clustertwin.service.live.members import member_board, member_watch
from clustertwin.service.live.members.member_board import SILENT_S, MemberBoard, MemberState
from clustertwin.service.live.members.member_settings import MemberSettings
from clustertwin.service.live.members.member_summary import MOST_EVENTS, MOST_VALUES, MemberSummary, parse_summary
from clustertwin.service.live.members.member_watch import MOST_BYTES, MOST_BYTES_TOGETHER, MemberWatch, most_bytes
from clustertwin.service.store.tokens import Tokens
from clustertwin.service.web.api.summary import summary_of

NODE = {"node": "n1", "phase": "watching", "threads": 4, "score": 2.0, "alarming": 1, "unknown": 1}
EVENT = {"id": "e1", "title": "Job <b>7 hangs", "nodes": ["n1"], "threads": 2, "job": "7", "score": 5.0, "onset_s": 90}
SUMMARY: dict[str, Any] = {
    "now_s": 100.0, "phase": "watching", "lag_s": 0.5, "stride_s": 5, "scoring_s": 0.1, "scored_s": 97,
    "threshold": 4.0, "model": "ae-1", "jobs": 3, "open_events": 1, "problems": [], "events": [EVENT], "nodes": [NODE],
}  # fmt: skip


def summary(**changes: Any) -> MemberSummary:
    return parse_summary(json.dumps({**SUMMARY, **changes}).encode(), "http://alpha")


def member(name: str, heard_s: float = 0.0, **changes: Any) -> MemberState:
    return MemberState(MemberSettings(name, f"http://{name}:8790"), summary(**changes), heard_s)


@pytest.fixture
def client(app, tmp_path, stage):
    vars(stage).update(vars(sample_state.state(tmp_path)))
    yield TestClient(app, base_url="http://127.0.0.1")
    stage.store.close()


def test_what_a_service_tells_is_what_another_reads(client, stage):
    read = parse_summary(client.get("/api/v1/summary").content, "here")
    told = summary_of(stage)
    assert read.model_dump(exclude={"nodes"}) == told.model_dump(exclude={"nodes"})
    assert [(node.node, node.threads, node.alarming) for node in read.nodes] == [("n1", 2, 2), ("n2", 2, 0)]
    assert isnan(read.nodes[1].score)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes": [{**NODE, "node": "n" * 300}]}, r"nodes\.0\.node: String should have at most"),
        ({"nodes": [{**NODE, "threads": -1}]}, r"nodes\.0\.threads: "),
        ({"events": [EVENT] * (MOST_EVENTS + 1)}, "events: Tuple should have at most 200 items"),
        ({"events": [{**EVENT, "onset_s": None}]}, r"events\.0\.onset_s: "),
        ({"lag_s": "soon"}, "lag_s: "),
        ({"nodes": [{**NODE, "threads": 0}]}, r"nodes\.0: .*more threads are anomalous or unknown than there are"),
        ({"nodes": [{**NODE, "alarming": 3, "unknown": 2}]}, r"nodes\.0: .*more threads are anomalous or unknown"),
    ],
)
def test_a_summary_over_a_limit_is_refused_with_its_place(change, reason):
    with pytest.raises(SourceError, match=rf"^http://alpha: not the summary of a clustertwin service: {reason}"):
        summary(**change)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"[" * 100_000, b'{"now_s": NaN}', b'{"phase": "\\ud800"}'])
def test_a_document_that_is_no_summary_is_refused(body):
    with pytest.raises(SourceError, match="not the summary of a clustertwin service"):
        parse_summary(body, "http://alpha")


@pytest.mark.parametrize("field", ["more", "nodes"])
def test_a_summary_of_empty_lists_is_refused_before_they_are_made(field):
    """Its 16 MB took 8 GB, and no other thread ran for 80 seconds."""
    body = b'{"%b": [%b]}' % (field.encode(), b",".join([b"[]"] * (MOST_VALUES // 2 + 1)))
    with pytest.raises(SourceError, match=f"more than {MOST_VALUES} values, which is the limit"):
        parse_summary(body, "http://alpha")


def test_a_summary_with_bad_nodes_is_refused_at_the_first():
    body = json.dumps({**SUMMARY, "nodes": [{}] * 1000}).encode()
    with pytest.raises(ValidationError) as raised:
        MemberSummary.model_validate_json(body)
    assert {error["loc"][:2] for error in raised.value.errors()} == {("nodes", 0)}


def test_totals_leave_out_a_silent_cluster_and_count_its_threads_as_not_watched():
    board = MemberBoard((member("alpha", 100.0), member("beta", 100.0 - SILENT_S - 1)))
    totals = board.totals(100.5)
    assert (totals.clusters, totals.watched, totals.threads, totals.unwatched_threads) == (2, 1, 4, 4)
    assert (totals.alarming, totals.open_events, totals.oldest_s) == (1, 1, 3.5)
    assert [silent.name for silent in board.silent(100.5)] == ["beta"]
    assert board.members[1].problem(100.5).startswith("no answer for 12 s")


def test_nodes_are_ordered_by_the_threshold_of_their_own_cluster_and_unknown_ones_are_last():
    unknown = {**NODE, "node": "n2", "score": None}
    board = MemberBoard((member("alpha", nodes=[NODE, unknown]), member("beta", threshold=1.0)))
    assert [(each.name, node.node) for each, node in board.nodes(1.0)] == [
        ("beta", "n1"),
        ("alpha", "n1"),
        ("alpha", "n2"),
    ]
    assert [(each.name, node.node) for each, node in board.nodes(1.0, "ALPHA 2")] == [("alpha", "n2")]


def test_infinite_numbers_of_one_cluster_do_not_disturb_the_order_of_the_others():
    """Infinity over infinity is not a number, and a list with one in it stays unsorted."""
    liar = member("liar", threshold=float("inf"), nodes=[{**NODE, "score": float("inf")}])
    calm, alarmed = (
        member(name, threshold=1.0, nodes=[{**NODE, "score": score}]) for name, score in (("c", 1), ("d", 2))
    )
    names = [state.name for state, _ in MemberBoard((calm, liar, alarmed)).nodes(0.0)]
    assert names == ["d", "c", "liar"]


def test_a_stale_cluster_that_answers_is_not_watched():
    stale = member("alpha", phase="stale")
    assert not stale.is_watched(1.0)
    assert stale.problem(1.0) == "its newest data is old"


def test_the_page_the_api_and_the_metrics_show_a_cluster_only_to_its_readers(client, stage, monkeypatch):
    monkeypatch.setattr(member_board, "SILENT_S", 600.0)  # on a busy host the requests take longer than usual
    now_s = time.monotonic()
    shown, hidden = member("alpha", now_s), member("beta", now_s)
    hidden = MemberState(MemberSettings("beta", "http://beta", readers=("grace",)), hidden.summary, now_s)
    stage.members = MemberBoard((shown, hidden))
    tokens = Tokens(stage.store.database)
    heads = {name: {"Authorization": f"Bearer {tokens.add(name, 'read', now_s=0.0)}"} for name in ("ada", "grace")}
    for path in ("/clusters", "/api/v1/clusters", "/api/v1/clusters/nodes", "/api/v1/clusters/events", "/metrics"):
        answers = {name: client.get(path, headers=head).text for name, head in heads.items()}
        assert all("alpha" in text for text in answers.values()), path
        assert ["beta" in answers[name] for name in heads] == [False, True], path
    page = client.get("/clusters", headers=heads["ada"]).text
    assert "Job &lt;b&gt;7 hangs" in page
    assert 'href="http://alpha:8790/events/e1"' in page
    assert (
        'twin_cluster_threads{cluster="alpha",state="normal"} 2\n' in client.get("/metrics", headers=heads["ada"]).text
    )


def test_a_cluster_that_is_not_watched_has_no_numbers_in_the_metrics(client, stage):
    stage.members = MemberBoard(
        (member("alpha", time.monotonic() - 60), MemberState(MemberSettings("beta", "http://b")))
    )
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith("twin_cluster_")]
    assert 'twin_cluster_up{cluster="alpha"} 0' in lines
    assert [line for line in lines if "threads" in line] == [
        'twin_cluster_threads{cluster="alpha",state="unwatched"} 4'
    ]
    assert not [line for line in lines if "node_score" in line]
    assert "2 of 2 joined clusters are not watched" in client.get("/").text


def test_without_joined_clusters_the_page_says_what_to_configure(client):
    assert "[clusters.NAME]" in client.get("/clusters").text
    assert client.get("/api/v1/clusters").status_code == 404
    assert 'href="/clusters"' not in client.get("/").text


def test_many_clusters_share_the_bytes_of_their_answers():
    few, many = ([MemberSettings(f"c{i}", f"http://c{i}") for i in range(n)] for n in (4, 1000))
    assert most_bytes(few) == MOST_BYTES
    assert 1000 * most_bytes(many) <= MOST_BYTES_TOGETHER
    assert most_bytes(many) >= 256 << 10


def test_a_cluster_with_more_nodes_than_all_may_have_is_refused_and_the_others_stay(monkeypatch):
    monkeypatch.setattr(member_watch, "MOST_NODES_TOGETHER", 5)
    boards: list[MemberBoard] = []
    names = ("alpha", "liar", "beta")
    watch = MemberWatch([MemberSettings(name, f"http://{name}") for name in names], boards.append, clock=lambda: 0.0)
    honest = json.dumps(SUMMARY).encode()
    lie = json.dumps({**SUMMARY, "nodes": [{**NODE, "node": f"n{i}"} for i in range(5)]}).encode()
    watch._sweep = Sweep([honest, lie, honest])
    watch.turn()
    alpha, liar, beta = boards[-1].members
    assert (alpha.is_watched(0.0), liar.is_watched(0.0), beta.is_watched(0.0)) == (True, False, True)
    assert "more than 5 nodes in all joined clusters" in liar.problem(0.0)
    watch.turn()
    assert [member.is_watched(0.0) for member in boards[-1].members] == [True, False, True]


def test_a_cluster_whose_answer_took_long_to_read_is_asked_less_often(monkeypatch):
    clock = [0.0]
    watch = MemberWatch(
        [MemberSettings("a", "http://a"), MemberSettings("b", "http://b")], lambda board: None, lambda: clock[0]
    )
    watch._sweep = Sweep([json.dumps(SUMMARY).encode()] * 2)
    spent = iter([0.0, 1.5, 1.5, 1.5])
    monkeypatch.setattr(member_watch, "thread_time", lambda: next(spent, 1.5))
    watch.turn()
    asked = []
    for clock[0] in (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0):
        watch._sweep.asked.clear()
        watch.turn()
        asked.append([number in watch._sweep.asked for number in (0, 1)])
    assert [a for a, _ in asked] == [False] * 7 + [True]
    assert all(b for _, b in asked)


class Sweep:
    """Answers every request at once."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.bodies, self.asked, self.pending = bodies, [], frozenset()

    def request(self, number: int, *_: object) -> None:
        self.asked.append(number)

    def responses(self, within_s: float):
        return [(number, self.bodies[number]) for number in self.asked]

    def close(self) -> None:
        pass


def test_an_address_where_nobody_listens_is_named(tmp_path):
    boards: list[MemberBoard] = []
    watch = MemberWatch([MemberSettings("alpha", f"http://{free_address()}")], boards.append, clock=lambda: nan)
    try:
        give_up_s = time.monotonic() + 20
        while not boards[-1].members[0].failure and time.monotonic() < give_up_s:
            watch.turn(0.2)
    finally:
        watch.close()
    assert "Connection refused" in boards[-1].members[0].problem(0.0)


@pytest.mark.real
@pytest.mark.slow
def test_a_killed_service_is_named_and_comes_back_while_the_others_go_on(tmp_path: Path):
    """Two services as processes. One joins both; the other is killed and started again."""
    alpha, joining = free_address(), free_address()
    clusters = f'[clusters]\nalpha = "http://{alpha}"\nbeta = "http://{joining}"\n'
    with ExitStack() as stack:

        def start(name: str, address: str, more: str = "") -> subprocess.Popen[str]:
            config = tmp_path / f"{name}.toml"
            port = address.rpartition(":")[2]
            config.write_text(f'[service]\nport = {port}\nhome = "{tmp_path}/{name}"\n[recording]\non = false\n{more}')
            command = [sys.executable, "-m", "clustertwin", "serve", "--config", str(config), "--json"]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            document(process.stdout)
            return process

        killed = start("alpha", alpha)
        start("joining", joining, clusters)
        both = until(
            joining, lambda alpha, beta: alpha["watched"] and beta["watched"] and alpha["threads"] and beta["threads"]
        )
        assert both["totals"]["threads"] == 2 * both["clusters"][0]["threads"]
        os.kill(killed.pid, signal.SIGKILL)
        one = until(joining, lambda alpha, beta: beta["watched"] and "Connection refused" in alpha["problem"])
        dead, alive = one["clusters"]
        assert not dead["watched"]
        assert one["totals"]["threads"] == alive["threads"]
        assert one["totals"]["unwatched_threads"] == dead["threads"]
        page = httpx.get(f"http://{joining}/clusters", timeout=30).text
        assert "not watched" in page
        assert "Connection refused" in page
        start("alpha", alpha)
        until(joining, lambda alpha, beta: alpha["watched"] and beta["watched"])


def until(address: str, fine: Any) -> dict[str, Any]:
    give_up_s = time.monotonic() + 300.0
    while time.monotonic() < give_up_s:
        answer: dict[str, Any] = httpx.get(f"http://{address}/api/v1/clusters", timeout=30).json()
        if fine(*answer["clusters"]):
            return answer
        time.sleep(0.3)
    raise AssertionError(f"not within five minutes: {answer}")
