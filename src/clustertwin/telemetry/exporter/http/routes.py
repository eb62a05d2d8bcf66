"""The paths of the exporter: a request -> /metrics, /ring or the landing page, or a refusal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from clustertwin import __version__
from clustertwin.telemetry.exporter.http.messages import HttpRequest, HttpResponse, refusal
from clustertwin.telemetry.exporter.http.password_gate import PasswordGate
from clustertwin.telemetry.exporter.text.text_format import CONTENT_TYPE


class Routes:
    """Checks the password, if there are any, and answers by path."""

    def __init__(
        self,
        node: str,
        scrape: Callable[[], list[bytes]],
        ring_since: Callable[[float], Iterator[bytes] | None],
        telemetry_path: str = "/metrics",
        users: dict[str, str] | None = None,
    ) -> None:
        self._scrape, self._ring_since, self._telemetry_path = scrape, ring_since, telemetry_path
        self._gate = PasswordGate(users)
        self._landing = _landing_page(node, telemetry_path)

    def respond(self, request: HttpRequest) -> HttpResponse:
        if refused := self._gate.refusal_of(request):
            return refused
        if request.path not in (self._telemetry_path, "/ring", "/"):
            return refusal(404, f"the paths are {self._telemetry_path}, /ring and /")
        if request.method not in ("GET", "HEAD"):
            return refusal(405, "only GET and HEAD", "Allow: GET, HEAD")
        if request.path == self._telemetry_path:
            return HttpResponse(200, self._scrape(), CONTENT_TYPE)
        if request.path == "/ring":
            return self._ring(request.query)
        return HttpResponse(200, [self._landing], "text/html; charset=utf-8")

    def _ring(self, query: str) -> HttpResponse:
        key, _, value = (query or "since=0").partition("=")
        try:
            since_s = float(value) if key == "since" else math.nan
        except ValueError:
            since_s = math.nan
        if not math.isfinite(since_s):
            return refusal(400, "since must be seconds since 1970, as in /ring?since=1731700000.5")
        pieces = self._ring_since(since_s)
        return HttpResponse(200, pieces) if pieces is not None else refusal(404, "this exporter keeps no ring")


def _escaped(text: str) -> str:
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(char, entity)
    return text


def _landing_page(node: str, telemetry_path: str) -> bytes:
    name, path = _escaped(node), _escaped(telemetry_path)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>clustertwin exporter · {name}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}}</style></head>
<body><h1>clustertwin exporter</h1>
<p>Node <strong>{name}</strong>, version {__version__}.</p>
<ul><li><a href="{path}">{path}</a>: the counters of this node, read now</li>
<li><a href="/ring">/ring</a>: the counters of the last minutes, second by second
(<code>?since=</code> seconds since 1970)</li></ul></body></html>
""".encode()
