"""Answers of helpers and of slurmrestd: bombs, endless and slow ones are refused in one sentence."""

from __future__ import annotations

import gzip

import httpx
import pytest

from clustertwin.core.errors import SourceError
from clustertwin.service.act.bounded_answer import body_of
from clustertwin.service.act.evidence_sources import MAX_BYTES, _ask
from clustertwin.service.act.slurm_rest import MOST_VALUES, RestSettings, SlurmRest, read_answer

#: 300 MB in 30 KB, and in less than one: httpx would decode either in one step.
BOMB = gzip.compress(bytes(30 << 20))
TWICE = gzip.compress(BOMB)


def served(content: bytes, encoding: str = "") -> httpx.Client:
    headers = {"Content-Encoding": encoding} if encoding else {}
    return httpx.Client(
        transport=httpx.MockTransport(lambda request: httpx.Response(200, headers=headers, stream=Stream(content)))
    )


class Stream(httpx.SyncByteStream):
    def __init__(self, content: bytes) -> None:
        self.content = content

    def __iter__(self):
        for at in range(0, len(self.content), 65536):
            yield self.content[at : at + 65536]


@pytest.mark.parametrize(("content", "encoding"), [(BOMB, "gzip"), (TWICE, "gzip, gzip"), (b"x", "br")])
def test_a_helper_cannot_send_a_compressed_answer(content, encoding):
    said = _ask(served(content, encoding), "https://n1:9753/evidence", "n1", "42", 0)
    assert said == f"n1: Content-Encoding is {encoding!r}; no compression is accepted"


def test_a_helper_cannot_send_an_answer_without_end():
    assert _ask(served(bytes(MAX_BYTES + 1)), "https://n1:9753/evidence", "n1", "42", 0) == (
        f"n1: more than {MAX_BYTES >> 20} MB"
    )


def test_an_answer_that_comes_slowly_ends_at_its_deadline():
    """The timeout of httpx begins anew with each byte."""
    clock = iter(range(100))
    client = served(bytes(65536 * 50))
    with client.stream("GET", "https://n1") as answer, pytest.raises(SourceError, match="took too long"):
        body_of(answer, 1 << 30, 5.0, lambda: float(next(clock)))
    assert next(clock) == 7


@pytest.mark.parametrize(
    "document", [b"[" * 200_000, b'{"a":' * 200_000, b'{"errors": 5}', b'{"errors": true, "jobs": []}', b"9" * 5000]
)
def test_a_document_of_slurmrestd_that_is_deep_or_odd_is_refused_in_one_sentence(document):
    with pytest.raises(SourceError, match="slurmrestd"):
        read_answer(200, document)


def test_slurmrestd_cannot_send_a_compressed_answer(monkeypatch):
    client = httpx.Client
    monkeypatch.setattr(
        httpx,
        "Client",
        lambda **options: client(
            transport=httpx.MockTransport(
                lambda request: httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=Stream(BOMB))
            )
        ),
    )
    with pytest.raises(SourceError, match="Slurm's answer cannot be used: slurmrestd, Content-Encoding is 'gzip'"):
        SlurmRest(RestSettings("http://127.0.0.1:1"))._ask("GET", "/slurm/v0.0.38/jobs/", {})


def test_an_answer_of_empty_objects_is_refused_before_they_are_made():
    """64 MB of them took 1.7 GB, and no other thread ran for four seconds."""
    with pytest.raises(SourceError, match="something that is not a document"):
        read_answer(200, b'{"jobs": [%b{}]}' % (b"{}," * (MOST_VALUES // 2)))


@pytest.mark.parametrize("text", ["\\u001b[2J", "\\ud800"])
def test_an_error_of_slurmrestd_can_be_shown_everywhere(text):
    with pytest.raises(SourceError) as raised:
        read_answer(500, b'{"errors": [{"description": "%b"}]}' % text.encode())
    assert str(raised.value).isprintable()
