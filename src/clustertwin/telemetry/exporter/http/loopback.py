"""Whether only this machine reaches an address: a host -> True or False."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """A name other than localhost is not resolved and counts as reachable, whatever it begins with.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "127.example.org")]
    [True, True, True, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
