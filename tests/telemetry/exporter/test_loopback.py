"""Which addresses only this machine reaches. The exporter, the helper, the service and slurmrestd's client ask this."""

from __future__ import annotations

import pytest

from clustertwin.service.web.binding import Binding
from clustertwin.telemetry.exporter.http.loopback import is_loopback


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("localhost.example.org", False),
        ("127.example.org", False),
        ("127.0.0.1.example.org", False),
        ("::1f00", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_a_host_is_local_by_its_address_and_not_by_how_it_begins(host, loopback):
    assert is_loopback(host) == loopback
    assert Binding(host).loopback == loopback
