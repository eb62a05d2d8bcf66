"""The address the service listens on: host, port, names and certificate -> checked before anything listens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.exporter.http.loopback import is_loopback

if TYPE_CHECKING:
    from clustertwin.service.store.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Binding:
    """Where the service listens, and the names that clients use for it."""

    host: str = "127.0.0.1"
    port: int = 8790
    names: tuple[str, ...] = ()  # more host names that a request's Host header may contain
    certificate: str = ""
    key: str = field(default="", repr=False)

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"


def check_binding(binding: Binding, tokens: Tokens | None = None) -> None:
    """Raise unless the address is loopback, or TLS and at least one token protect it. If None, only TLS is checked."""
    if bool(binding.certificate) != bool(binding.key):
        raise SettingsError("TLS needs both a certificate and a key")
    if binding.loopback:
        return
    missing = [] if binding.certificate else ["TLS (certificate and key)"]
    if tokens is not None and not tokens.valid():
        missing.append("at least one token that has not expired (`twin token add NAME --role admin`)")
    if missing:
        raise SettingsError(
            f"{binding.host} can be reached from outside this machine: it needs {' and '.join(missing)}"
        )
