"""The helper of a node: GET /evidence?job=42 with a password -> the evidence of that job, one request at a time.

The helper does nothing until it is asked. It refuses to start without passwords, because evidence shows what the
programs of other users do. It refuses to listen beyond this host without TLS.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from urllib.parse import parse_qs

from clustertwin import __version__
from clustertwin.core.errors import SettingsError, SourceError, TwinError
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, to_json
from clustertwin.telemetry.diagnosis.evidence_subprocess import take_in_subprocess
from clustertwin.telemetry.exporter.http.loopback import is_loopback
from clustertwin.telemetry.exporter.http.messages import HttpRequest, HttpResponse, refusal
from clustertwin.telemetry.exporter.http.password_gate import PasswordGate
from clustertwin.telemetry.exporter.http.server import Server
from clustertwin.telemetry.exporter.http.webconfig import read_web_config

_JOB, _OWNER = re.compile(r"[A-Za-z0-9_.+\[\]-]{1,64}"), re.compile(r"[0-9]{0,10}")
Take = Callable[[str, int | None], JobEvidence | None]


class EvidenceRoutes:
    """Takes evidence for those who have a password, at most `per_minute` times a minute."""

    def __init__(
        self, take_job: Take, users: dict[str, str], per_minute: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._take, self._gate, self._per_minute, self._clock = take_job, PasswordGate(users), per_minute, clock
        self._taking = threading.Lock()
        self._taken_s: deque[float] = deque()

    def respond(self, request: HttpRequest) -> HttpResponse:
        if refused := self._gate.refusal_of(request):
            return refused
        if request.path != "/evidence":
            return refusal(404, "the path is /evidence?job=ID")
        if request.method != "GET":
            return refusal(405, "only GET", "Allow: GET")
        query = _query(request.query)
        job, owner = query.get("job", [""])[0], query.get("owner", [""])[0]
        if not _JOB.fullmatch(job) or not _OWNER.fullmatch(owner):
            return refusal(400, "job must be the id of a job, and owner a user id")
        if not self._taking.acquire(blocking=False):
            return refusal(503, "evidence of another job is being taken; try again", "Retry-After: 3")
        try:
            if not self._is_within_rate():
                return refusal(429, f"evidence is taken at most {self._per_minute} times a minute", "Retry-After: 60")
            evidence = self._take(job, int(owner) if owner else None)
        except TwinError as error:
            return refusal(503 if isinstance(error, SourceError) else 400, str(error))
        finally:
            self._taking.release()
        if evidence is None:
            return refusal(404, f"job {job} has no process on this node")
        return HttpResponse(200, [to_json(evidence)], "application/json")

    def _is_within_rate(self) -> bool:
        now_s = self._clock()
        while self._taken_s and self._taken_s[0] < now_s - 60:
            self._taken_s.popleft()
        if len(self._taken_s) >= self._per_minute:
            return False
        self._taken_s.append(now_s)
        return True


def _query(text: str) -> dict[str, list[str]]:
    """The fields of a query; none if there are more than anybody asks for."""
    try:
        return parse_qs(text, max_num_fields=4)
    except ValueError:
        return {}


def serve(address: str, config_path: str | None, node: str, per_minute: int, as_json: bool = False) -> int:
    """Serve until SIGINT or SIGTERM; the exit code."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"--web.listen-address={address}: must be HOST:PORT, for example 127.0.0.1:9753")
    host = host.strip("[]") or "0.0.0.0"
    if config_path is None:
        raise SettingsError("the helper needs passwords: set --web.config.file, as for the exporter")
    config = read_web_config(config_path)
    if not config.users:
        raise SettingsError(f"{config_path}: basic_auth_users is empty, and the helper needs passwords")
    if not is_loopback(host) and not config.tls:
        raise SettingsError(f"{host} is reachable from other hosts, and {config_path} has no TLS")

    def take_here(job: str, owner: int | None) -> JobEvidence | None:
        return take_in_subprocess(job, owner, node)

    server = Server(host, int(port), config, EvidenceRoutes(take_here, config.users, per_minute))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server.start()
    sys.stderr.write(f"clustertwin evidence helper {__version__} for node {node}: {host}:{server.port}\n")
    if as_json:
        scheme = "https" if config.tls else "http"
        sys.stdout.write(json.dumps({"node": node, "url": f"{scheme}://{host}:{server.port}/evidence"}) + "\n")
        sys.stdout.flush()
    while not stop.wait(1.0):
        server.reap(time.monotonic())
    server.close()
    return 0
