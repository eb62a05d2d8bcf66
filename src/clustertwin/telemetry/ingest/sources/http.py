"""HTTP GET from one server: endpoint, path and parameters -> the body, within a deadline and with bounded retries."""

from __future__ import annotations

import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import urlsplit

import httpx
import orjson

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.core.formatting import visible
from clustertwin.telemetry.exporter.http.loopback import is_loopback
from clustertwin.telemetry.ingest.sources.socket_deadline import SocketDeadline

#: Statuses that are worth a retry.
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
#: Compressed bytes become at most this many at a time, so that the limit and the deadline are checked in between.
_STEP_BYTES = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server and how to reach it. `deadline_s` limits one request with all its retries."""

    url: str
    username: str = ""
    password: str = field(default="", repr=False)
    bearer_token: str = field(default="", repr=False)
    ca_file: str = ""  # trust this authority instead of the system's
    deadline_s: float = 30.0
    tries: int = 4
    backoff_s: float = 0.25  # before the second try; doubled each time
    most_bytes: int = 256 << 20
    compressed: bool = True  # whether to ask for gzip, which takes a server longer than to find the samples

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # not a port, or not an IPv6 address
            is_address = False
        # urlsplit() removes line ends, and a blank would end the address within the request.
        if not is_address or not self.url.isprintable() or " " in self.url:
            raise SettingsError(f"{self.url!r} is not an address like http://host:9090")
        if parts.username or parts.password:
            raise SettingsError(f"{parts.hostname}: pass the user name and password as settings, not in the address")
        if not self.bearer_token.isprintable() or " " in self.bearer_token:
            raise SettingsError(f"{self.url}: a bearer token is one word without control characters")
        if self.bearer_token and self.username:
            raise SettingsError(f"{self.url}: use a bearer token or a user name, not both")

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or self.url

    @property
    def is_encrypted(self) -> bool:
        """Whether the address is one of https. Its scheme may have capital letters."""
        return urlsplit(self.url).scheme == "https"

    def with_safe_token(self) -> Endpoint:
        """This endpoint; SettingsError if its token would cross the network unencrypted."""
        if self.bearer_token and not self.is_encrypted and not is_loopback(self.host):
            raise SettingsError(f"{self.url}: the token would cross the network unencrypted; use https://")
        return self


class AnswerTooLong(SourceError):
    """An answer is longer than the limit of its endpoint. A shorter range may have a shorter one."""


class HttpClient:
    """One connection to an endpoint, with one request at a time."""

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = endpoint
        self._clock, self._sleep = clock, sleep
        self._client: httpx.Client | None = None
        self._deadline = SocketDeadline()

    def get(self, path: str, params: Mapping[str, str] | None = None, accept: str = "*/*") -> bytes:
        """The body of the response; SourceError with the address and the reason if there is none."""
        where = self.endpoint.url.rstrip("/") + path
        deadline_s = self._clock() + self.endpoint.deadline_s
        failure = ""
        for attempt in range(self.endpoint.tries):
            if attempt:
                pause_s = self.endpoint.backoff_s * 2 ** (attempt - 1)
                if self._clock() + pause_s >= deadline_s:
                    break
                self._sleep(pause_s)
            try:
                status, body = self._try(where, params or {}, accept, deadline_s)
            except httpx.TimeoutException:
                failure = f"no response within {self.endpoint.deadline_s:g} s"
            except httpx.HTTPError as error:
                failure = str(error) or type(error).__name__
                if self._deadline.has_passed:
                    failure = f"no response within {self.endpoint.deadline_s:g} s"
            else:
                if status == 200:
                    return body
                failure = f"HTTP {status}: {refused(body)}"
                if status not in _TRANSIENT:
                    break
        raise SourceError(f"{where}: {failure}")

    def _try(self, url: str, params: Mapping[str, str], accept: str, deadline_s: float) -> tuple[int, bytes]:
        """One attempt. It ends at the deadline, and at the size limit."""
        left_s = deadline_s - self._clock()
        if left_s <= 0:
            raise httpx.ReadTimeout("the deadline has passed")
        pieces: list[bytes] = []  # not one growing array, which needs twice its size whenever it moves
        size = 0
        with (
            self._deadline.within(left_s),
            self._open().stream(
                "GET",
                url,
                params=dict(params),
                headers={"Accept": accept, "Accept-Encoding": "gzip" if self.endpoint.compressed else "identity"},
                timeout=left_s,
                extensions=self._deadline.extensions,
            ) as response,
        ):
            encoding = response.headers.get("Content-Encoding", "").strip().lower()
            if encoding not in ("", "identity", "gzip", "x-gzip"):
                raise SourceError(f"{url}: Content-Encoding is {encoding[:60]!r}; only one layer of gzip is accepted")
            chunks = response.iter_raw()
            for piece in _inflated(chunks, url) if encoding.endswith("gzip") else chunks:
                pieces.append(piece)
                size += len(piece)
                if size > self.endpoint.most_bytes:
                    pieces.clear()  # the error's traceback would keep them
                    raise AnswerTooLong(f"{url}: more than {self.endpoint.most_bytes} bytes; request a shorter range")
                if self._clock() > deadline_s:
                    raise httpx.ReadTimeout("the deadline has passed")
            return response.status_code, b"".join(pieces)

    def _open(self) -> httpx.Client:
        if self._client is None:
            end = self.endpoint
            headers = {"Authorization": f"Bearer {end.bearer_token}"} if end.bearer_token else {}
            auth = (end.username, end.password) if end.username else None
            # A server that sets new cookies with each answer would fill the memory, and then every request.
            no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
            self._client = httpx.Client(auth=auth, headers=headers, cookies=no_cookies, verify=trust(end) or False)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _inflated(chunks: Iterator[bytes], url: str) -> Iterator[bytes]:
    """Decompress one layer of gzip in small steps."""
    decoder = zlib.decompressobj(_GZIP)
    try:
        for chunk in chunks:
            while chunk and not decoder.eof:
                yield decoder.decompress(chunk, _STEP_BYTES)
                chunk = decoder.unconsumed_tail
    except zlib.error as error:
        raise SourceError(f"{url}: not gzip: {error}") from None
    if not decoder.eof:
        raise SourceError(f"{url}: the compressed response is cut off")


def trust(endpoint: Endpoint) -> ssl.SSLContext | None:
    """The TLS context of an https address; None for plain http. Redirects are not followed."""
    if not endpoint.is_encrypted:
        return None
    try:
        return ssl.create_default_context(cafile=endpoint.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"{endpoint.ca_file}: cannot be read as a certificate authority: {error}") from None


def refused(body: bytes) -> str:
    """The reason in the body of an error: Prometheus's message, or the beginning of the page.

    It is shown on terminals, so control characters are spelled out.
    """
    try:
        document = orjson.loads(body) if len(body) <= 1 << 16 else {}
        return visible(str(document["error"])[:500])
    except (ValueError, KeyError, TypeError):
        return visible(" ".join(body[:200].decode("utf-8", "replace").split())) or "no reason given"
