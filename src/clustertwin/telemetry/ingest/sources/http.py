"""Ask a server by HTTP: endpoint, path and parameters -> the body, within a deadline and with bounded retries."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
import orjson

from clustertwin.core.errors import SettingsError, SourceError

#: Answers that another try may better; anything else is told at once.
_PASSING = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server and how to speak to it. `deadline_s` bounds one question, retries included."""

    url: str
    username: str = ""
    password: str = field(default="", repr=False)
    bearer_token: str = field(default="", repr=False)
    ca_file: str = ""  # trust this authority instead of the system's
    deadline_s: float = 30.0
    tries: int = 4
    backoff_s: float = 0.25  # before the second try; doubled each time
    most_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(f"{self.url!r} is no address like http://host:9090")
        if parts.username or parts.password:
            raise SettingsError(f"{parts.hostname}: give user and password as settings, not inside the address")
        if self.bearer_token and self.username:
            raise SettingsError(f"{self.url}: a bearer token or a user, not both")

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or self.url


class Http:
    """One connection to an endpoint, one question in flight."""

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = endpoint
        self._clock, self._sleep = clock, sleep
        self._client: httpx.Client | None = None

    def get(self, path: str, params: Mapping[str, str] | None = None, accept: str = "*/*") -> bytes:
        """The body of the answer, or a SourceError that says what was asked, where, and what went wrong."""
        where = self.endpoint.url.rstrip("/") + path
        deadline_s = self._clock() + self.endpoint.deadline_s
        wrong = ""
        for attempt in range(self.endpoint.tries):
            if attempt:
                pause_s = self.endpoint.backoff_s * 2 ** (attempt - 1)
                if self._clock() + pause_s >= deadline_s:
                    break
                self._sleep(pause_s)
            try:
                status, body = self._ask(where, params or {}, accept, deadline_s)
            except httpx.TimeoutException:
                wrong = f"no answer within {self.endpoint.deadline_s:g} s"
            except httpx.HTTPError as error:
                wrong = str(error) or type(error).__name__
            else:
                if status == 200:
                    return body
                wrong = f"HTTP {status}: {refused(body)}"
                if status not in _PASSING:
                    break
        raise SourceError(f"{where}: {wrong}")

    def _ask(self, url: str, params: Mapping[str, str], accept: str, deadline_s: float) -> tuple[int, bytes]:
        """One try. A server that drips is cut off at the deadline, one that pours at the cap."""
        left_s = deadline_s - self._clock()
        if left_s <= 0:
            raise httpx.ReadTimeout("too late")
        body = bytearray()
        with self._open().stream("GET", url, params=dict(params), headers={"Accept": accept}, timeout=left_s) as answer:
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > self.endpoint.most_bytes:
                    raise SourceError(f"{url}: more than {self.endpoint.most_bytes} bytes; ask for less at once")
                if self._clock() > deadline_s:
                    raise httpx.ReadTimeout("too late")
            return answer.status_code, bytes(body)

    def _open(self) -> httpx.Client:
        if self._client is None:
            end = self.endpoint
            headers = {"Authorization": f"Bearer {end.bearer_token}"} if end.bearer_token else {}
            auth = (end.username, end.password) if end.username else None
            self._client = httpx.Client(auth=auth, headers=headers, verify=trust(end) or False)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def trust(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Whom to believe; plain http has nobody to check, and redirects are not followed."""
    if not endpoint.url.startswith("https:"):
        return None
    try:
        return ssl.create_default_context(cafile=endpoint.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"{endpoint.ca_file}: no certificate authority can be read: {error}") from None


def refused(body: bytes) -> str:
    """What a server says of its refusal: Prometheus's own words, or the beginning of the page."""
    try:
        document = orjson.loads(body)
        return str(document["error"])[:500]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return " ".join(body[:200].decode("utf-8", "replace").split()) or "no reason given"
