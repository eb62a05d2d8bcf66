"""The helper: who may ask, how often, and what it refuses."""

from __future__ import annotations

import base64

import bcrypt
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, parse_evidence
from clustertwin.telemetry.diagnosis.helper_server import EvidenceRoutes, serve
from clustertwin.telemetry.exporter.http.messages import HttpRequest

USERS = {"twin": bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()}


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def take(job: str, owner: int | None) -> JobEvidence | None:
    return JobEvidence(job, ("n1",), 0.0, 2.0, ()) if job == "42" else None


@pytest.fixture
def routes() -> EvidenceRoutes:
    return EvidenceRoutes(take, USERS, 3, Clock())


def ask(query: str, password: str = "secret", **values) -> HttpRequest:
    basic = base64.b64encode(f"twin:{password}".encode()).decode()
    return HttpRequest("GET", "/evidence", query, {"authorization": f"Basic {basic}"}, **values)


def test_evidence_is_given_for_a_password(routes):
    answer = routes.respond(ask("job=42"))
    assert answer.status == 200
    assert parse_evidence(b"".join(answer.body)).job == "42"


def test_without_the_password_there_is_no_evidence(routes):
    assert routes.respond(ask("job=42", "wrong")).status == 401
    assert routes.respond(HttpRequest("GET", "/evidence", "job=42")).status == 401


def test_a_job_that_is_not_here_is_not_found(routes):
    assert routes.respond(ask("job=43")).status == 404


@pytest.mark.parametrize(
    "query",
    [
        "",
        "job=",
        "job=../../etc",
        "job=42&owner=root",
        "job=%00",
        "job=" + "9" * 65,
        "job=42&owner=" + "9" * 5000,
        "job=42&a=1&b=2&c=3&d=4",
    ],
)
def test_a_strange_query_is_refused(routes, query):
    assert routes.respond(ask(query)).status == 400


def test_the_rate_has_a_limit(routes):
    assert [routes.respond(ask("job=42")).status for _ in range(4)] == [200, 200, 200, 429]
    routes._clock.now_s = 61.0
    assert routes.respond(ask("job=42")).status == 200


def test_the_helper_does_not_start_without_passwords(tmp_path):
    with pytest.raises(SettingsError, match="needs passwords"):
        serve("127.0.0.1:0", None, "n1", 6)
    empty = tmp_path / "web.yml"
    empty.write_text("{}\n")
    with pytest.raises(SettingsError, match="needs passwords"):
        serve("127.0.0.1:0", str(empty), "n1", 6)


@pytest.mark.parametrize("host", ["0.0.0.0", "localhost.example.org", "127.example.org", "[::1f00]", ""])
def test_the_helper_does_not_listen_beyond_this_host_without_tls(tmp_path, host):
    """A name that began like an address of this host was taken for one, and passwords were sent in clear."""
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  twin: {USERS['twin']}\n")
    with pytest.raises(SettingsError, match="no TLS"):
        serve(f"{host}:0", str(config), "n1", 6)
