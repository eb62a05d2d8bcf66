"""Requests to the exporter, damaged or hostile: each gets an answer, and no answer holds a piece of a header."""

from __future__ import annotations

from tests.hostile_inputs import fuzzed

from clustertwin.telemetry.exporter.http.messages import ONCE, HttpResponse, has_bare_lf, head_of, parse_request
from clustertwin.telemetry.exporter.http.routes import Routes

#: A bcrypt hash of the lowest cost; its password is unknown.
USERS = {"twin": "$2b$04$CwTycUXWue0Thq9StjUM0uJ8E0Y4sZ1v0m5bq4lJj0R3v6u0V7b2K"}
PLAIN = Routes("n1", lambda: [b"twin_up 1\n"], lambda since_s: iter([b"t 1\n"]))
GUARDED = Routes("n1", lambda: [b"twin_up 1\n"], lambda since_s: None, users=USERS)


@fuzzed("http_request")
def test_a_request_to_the_exporter(data: bytes) -> None:
    head, _, _ = data.partition(b"\r\n\r\n")
    request = parse_request(head, "127.0.0.1")
    if isinstance(request, HttpResponse):
        answers = [request]
    else:
        assert not has_bare_lf(head)
        assert request.headers.get("content-length", "0") == "0"
        lines = [line.partition(b":")[0].lower().decode("latin-1") for line in head.split(b"\r\n")[1:]]
        assert all(lines.count(name) <= 1 for name in ONCE)
        answers = [PLAIN.respond(request), GUARDED.respond(request)]
        assert answers[1].status in (401, 429)
    for answer in answers:
        sent = head_of(answer, False, answer.closes)
        assert sent.endswith(b"\r\n\r\n")
        assert sent.count(b"\r\n\r\n") == 1
        assert answer.status in (200, 400, 401, 404, 405, 429)
