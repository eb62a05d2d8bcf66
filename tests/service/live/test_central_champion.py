"""A node takes the champion of a central service: the same detector, or the old one and a reason."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from tests.servers import document, free_address

from clustertwin.core.errors import SettingsError, SourceError, TwinError
from clustertwin.service.config import parse_config
from clustertwin.service.live.members import central_champion
from clustertwin.service.live.members.central_champion import CARD, MOST_CARD_BYTES, CentralChampion
from clustertwin.service.live.members.fetched_versions import MOST_A_DAY, FetchedVersions
from clustertwin.service.live.members.member_settings import MemberSettings
from clustertwin.service.live.members.member_watch import MemberWatch
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.tokens import Tokens
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.detector_store import with_sha256
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.learning.champions import champion_store, version_store
from clustertwin.telemetry.learning.champions.fencing_lock import next_fence


def other(detector: Detector) -> Detector:
    """A detector of another version."""
    rate = detector.settings.false_alarm_rate * 2
    return with_sha256(replace(detector, settings=replace(detector.settings, false_alarm_rate=rate)))


def promote(home: Path, detector: Detector) -> str:
    version = version_store.add_version(home, detector, {"why": "test"})
    champion_store.promote(home, version, next_fence(home), "test", 5.0)
    return version


class Answers:
    """Stands for the connection: paths -> bodies."""

    def __init__(self, get: Any) -> None:
        self._get, self.asked = get, []

    def get(self, path: str, params: dict[str, str] | None = None, accept: str = "") -> bytes:
        self.asked.append(path)
        body = self._get(path, params or {})
        if isinstance(body, Exception):
            raise body
        return body


@pytest.fixture
def centre(app, state) -> Answers:
    client = TestClient(app, base_url="http://127.0.0.1")

    def get(path: str, params: dict[str, str]) -> bytes | SourceError:
        answer = client.get(path, params=params)
        return answer.content if answer.status_code == 200 else SourceError(answer.text)

    return Answers(get)


@pytest.fixture
def edge(tmp_path, centre) -> CentralChampion:
    edge = CentralChampion(Endpoint("http://centre:8790"), tmp_path / "edge", clock=lambda: 7.0)
    edge._http = centre
    return edge


def test_the_champion_of_the_centre_is_taken_once(edge, centre, state, detector):
    version = promote(state.home, other(detector))
    assert edge.turn()
    here, there = champion_store.read_champion(edge.home), champion_store.read_champion(state.home)
    assert here is not None
    assert (here.version, here.sha256, here.why) == (version, there.sha256, "champion of http://centre:8790")
    assert champion_store.load_champion(edge.home).version == version
    asked = len(centre.asked)
    assert not edge.turn()
    assert centre.asked[asked:] == [CARD]


@pytest.mark.medium
def test_a_rollback_of_the_centre_is_followed_without_a_download(edge, centre, state, detector):
    first, second = promote(state.home, detector), promote(state.home, other(detector))
    assert edge.turn()
    champion_store.rollback(state.home, next_fence(state.home), 9.0)
    assert edge.turn()
    assert champion_store.read_champion(edge.home).version == first != second
    asked = len(centre.asked)
    champion_store.promote(state.home, second, next_fence(state.home), "again", 10.0)
    assert edge.turn()
    assert centre.asked[asked:] == [CARD]


def test_a_centre_with_the_bundled_detector_changes_nothing(edge):
    assert not edge.turn()
    assert champion_store.read_champion(edge.home) is None


def test_a_champion_that_is_too_slow_for_this_machine_is_refused(edge, centre, state, detector, monkeypatch):
    """It would have stopped the loop of the node for as long as a scoring takes."""
    slow, used_s = promote(state.home, other(detector)), [0.0]

    def score(self, moment):
        used_s[0] += 2.5

    monkeypatch.setattr(Detector, "score", score)
    monkeypatch.setattr(time, "thread_time", lambda: used_s[0])
    with pytest.raises(SourceError, match=f"{slow} is too slow for this machine: 2.5 s for 256 threads"):
        edge.turn()
    assert champion_store.read_champion(edge.home) is None
    asked = len(centre.asked)
    with pytest.raises(SourceError, match="too slow"):
        edge.turn()
    assert centre.asked[asked:] == [CARD]  # it is not fetched again


def test_a_champion_that_cannot_score_is_refused(edge, state, detector, monkeypatch):
    promote(state.home, other(detector))
    monkeypatch.setattr(Detector, "score", lambda self, moment: 1 / 0)
    with pytest.raises(SourceError, match="cannot score: ZeroDivisionError"):
        edge.turn()
    assert champion_store.read_champion(edge.home) is None


def test_a_champion_whose_files_cannot_be_read_is_one_sentence(app, state, detector):
    (state.home / version_store.DIRECTORY / promote(state.home, detector) / "more").mkdir()
    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    for path in (CARD, f"{CARD}/more"):
        answer = client.get(path)
        assert (answer.status_code, "cannot be read: not a regular file" in answer.text) == (503, True)


def lying(answers: Answers, change: Any) -> None:
    """Change the card or the files on the way."""
    told = answers._get

    def get(path: str, params: dict[str, str]) -> bytes:
        return change(path, told(path, params))

    answers._get = get


def card(change: Any) -> Any:
    def changed(path: str, body: bytes) -> bytes:
        if path != CARD:
            return body
        document = json.loads(body)
        change(document)
        return json.dumps(document).encode()

    return changed


def tampered(path: str, body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1]) if path.endswith("detector.safetensors") else body


def escaping(document: dict[str, Any]) -> None:
    document["files"] = {"../../x": document["files"]["model.json"]}


def unreadable(document: dict[str, Any]) -> None:
    """A right hash of a file that is no model."""
    del document["files"]["detector.json"]
    names = sorted(document["files"])
    lines = "".join(f"{name} {document['files'][name]['sha256']}\n" for name in names)
    document["sha256"] = hashlib.sha256(lines.encode()).hexdigest()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (tampered, "detector.safetensors of .* differs from its SHA-256"),
        (card(lambda d: d.update(sha256="0" * 64)), "the files of .* differ from its SHA-256"),
        (card(lambda d: d.update(version="../x")), "not the card of a champion"),
        (card(lambda d: d.update(version=".hidden")), "not the card of a champion"),
        (card(escaping), "not the files of a champion"),
        (card(lambda d: d["files"]["model.json"].update(bytes=10**12)), "not the card of a champion"),
        (card(unreadable), "was never calibrated"),
        (lambda path, body: b"[" * 100_000, "not the card of a champion: 100000 bytes; the limit is"),
        (lambda path, body: b"<html>", "not the card of a champion"),
    ],
)
def test_a_champion_that_cannot_be_trusted_is_refused_and_the_old_one_stays(edge, centre, state, detector, lie, reason):
    assert MOST_CARD_BYTES < 100_000
    first = promote(edge.home, detector)
    promote(state.home, other(detector))
    lying(centre, lie)
    with pytest.raises(TwinError, match=reason):
        edge.turn()
    assert champion_store.load_champion(edge.home).version == first
    assert not (edge.home.parent / "x").exists()
    assert not list((edge.home / "models").glob(".*"))


def versions_of(detector: Detector, count: int) -> list[Detector]:
    rates = [detector.settings.false_alarm_rate * (2 + i) for i in range(count)]
    return [with_sha256(replace(detector, settings=replace(detector.settings, false_alarm_rate=r))) for r in rates]


@pytest.mark.medium
def test_a_centre_with_a_new_champion_every_minute_does_not_fill_the_disk(edge, centre, state, detector):
    """Each version was kept: at 256 MB a minute, a hostile centre had 369 GB a day."""
    own = version_store.add_version(edge.home, detector, {"why": "stored by a person"})
    *taken, last = versions_of(detector, MOST_A_DAY + 1)
    for each in taken:
        promote(state.home, each)
        assert edge.turn()
    promote(state.home, last)
    with pytest.raises(SourceError, match="the centre changes its champion too often"):
        edge.turn()
    here = champion_store.read_champion(edge.home)
    stored = {path.name for path in (edge.home / "models").iterdir()}
    assert stored == {here.version, *here.before[-2:], own}
    edge._clock = lambda: 7.0 + 86_400
    assert edge.turn()


@pytest.mark.parametrize("name", ["..", ".", "", "../nights"])
def test_a_name_that_is_no_version_deletes_nothing(tmp_path, name):
    """The file may come from a backup of somebody else. `..` was the whole home."""
    for folder in ("models/own", "nights"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "champion-fetches.json").write_text(json.dumps({name: 7.0}))
    FetchedVersions(tmp_path).delete_old(champion_store.Champion("v2", "", 1), 8.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["champion-fetches.json", "models", "nights"]
    assert (tmp_path / "models" / "own").is_dir()


def test_a_version_that_cannot_be_loaded_is_not_stored_and_not_fetched_again_at_once(edge, centre, state, detector):
    promote(state.home, other(detector))
    lying(centre, card(unreadable))
    for expected in (4, 0):  # files
        asked = len(centre.asked)
        with pytest.raises(TwinError, match="was never calibrated"):
            edge.turn()
        assert len(centre.asked) - asked == 1 + expected
    assert list((edge.home / "models").iterdir()) == []


def test_a_champion_is_not_fetched_onto_a_full_disk(edge, centre, state, detector, monkeypatch):
    promote(state.home, other(detector))
    monkeypatch.setattr(central_champion, "LEAST_FREE_BYTES", 1 << 60)
    with pytest.raises(SourceError, match="is not fetched: less than"):
        edge.turn()
    assert centre.asked == [CARD]


def test_a_token_is_not_sent_over_plain_http_to_another_machine(tmp_path):
    for url in ("https://centre:8790", "http://127.0.0.1:8790", "http://localhost:8790", "http://[::1]:8790"):
        CentralChampion(Endpoint(url, bearer_token="secret"), tmp_path)
    secret = tmp_path / "token"
    secret.write_text("secret")
    with pytest.raises(SettingsError, match="would cross the network unencrypted"):
        CentralChampion(Endpoint("http://centre:8790", bearer_token="secret"), tmp_path)
    with pytest.raises(SettingsError, match="would cross the network unencrypted"):
        MemberWatch([MemberSettings("a", "HTTP://a:8790", token_file=str(secret))], lambda board: None)


def test_learning_here_and_a_central_champion_exclude_each_other():
    text = '[learning]\nnightly = "02:30"\nchampion_url = "http://centre:8790"\n'
    with pytest.raises(SettingsError, match="exclude each other"):
        parse_config(text, "twin.toml", {})


@pytest.mark.real
@pytest.mark.slow
def test_a_node_scores_with_the_central_champion_and_the_centre_shows_its_scores(tmp_path, detector):
    """A central service, a real node that scores itself, one shared token."""
    centre, edge = free_address(), free_address()
    version = promote(tmp_path / "centre", other(detector))
    token = ""
    for name in ("centre", "edge"):
        store = Store(tmp_path / name / "state.sqlite")
        token = Tokens(store.database).add("shared", "read", time.time(), token=token)
        store.close()
    secret = tmp_path / "token"
    secret.write_text(token)
    configs = {
        "centre": f'[clusters.n1]\nurl = "http://{edge}"\ntoken_file = "{secret}"\n',
        "edge": f'[learning]\nchampion_url = "http://{centre}"\nchampion_token_file = "{secret}"\n',
    }
    with ExitStack() as stack:
        for name, address in (("centre", centre), ("edge", edge)):
            file = tmp_path / f"{name}.toml"
            port = address.rpartition(":")[2]
            service = f'[service]\nport = {port}\nhome = "{tmp_path}/{name}"\n[recording]\non = false\n'
            file.write_text(service + configs[name])
            command = [sys.executable, "-m", "clustertwin", "serve", "--config", str(file), "--json"]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            document(process.stdout)
        head, give_up_s, found = {"Authorization": f"Bearer {token}"}, time.monotonic() + 400, {}
        while time.monotonic() < give_up_s:
            found = httpx.get(f"http://{centre}/api/v1/clusters", headers=head, timeout=60).json()["clusters"][0]
            if found["model"] == version and found["threads"] and found["unknown"] < found["threads"]:
                break
            time.sleep(1)
        assert (found["model"], found["watched"], found["problem"]) == (version, True, "")
        assert found["unknown"] < found["threads"]
