"""The local user at the other end of a loopback connection: two addresses -> a user id, from the kernel.

TCP has no SO_PEERCRED. But both ends of a loopback connection are on this machine, and the kernel knows the owner of
each socket: by netlink, or else in the tables in /proc/net. A socket that its process has closed has no owner any more
(inode 0, user 0), and does not count: else a client could send a request, disconnect, and be taken for root.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from clustertwin.service.web import socket_owner

Address = tuple[str, int]

#: A table of more sockets is not searched, because the event loop would wait: the user is unknown.
MOST_BYTES = 1 << 23
#: What the kernel shows for users that do not exist in this user namespace.
_NOBODY = 65534


def peer_uid(client: Address | None, server: Address | None) -> int | None:
    """The user who owns the client's socket; None if the socket is closed or the addresses are not of this machine."""
    if client is None or server is None:
        return None
    try:
        found = socket_owner.owner(client, server)
    except (OSError, ValueError):  # the kernel answers no such question
        return uid_in_tables(client, server)
    return _user(*found) if found else None


def uid_in_tables(client: Address, server: Address, tables: Path = Path("/proc/net")) -> int | None:
    """The same from the tables of all sockets."""
    try:
        wanted = dict(_rows(client, server))
    except ValueError:  # not an address
        return None
    for table, ends in wanted.items():
        try:
            with (tables / table).open("rb") as file:
                text = file.read(MOST_BYTES + 1)
        except OSError:
            continue
        at = text.find(ends) if len(text) <= MOST_BYTES else -1
        if at >= 0:
            # both addresses, state, queues, timer, retransmits, user, timeout, inode
            words = text[at : at + 400].split()
            return _user(int(words[6]), int(words[8]))
    return None


def _user(uid: int, inode: int) -> int | None:
    return uid if inode and uid != _NOBODY else None


def rights(uid: int | None, environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The name for the audit log and the role of a local user without a token.

    The user of the service, root, and the user who called sudo administer it. Everybody else only reads.
    """
    if uid is None:
        return "unknown local user", "read"
    owners = {0, os.geteuid()}
    if os.geteuid() == 0 and environment.get("SUDO_UID", "").isdecimal():
        owners.add(int(environment["SUDO_UID"]))
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return f"local user {name}", "admin" if uid in owners else "read"


def _rows(client: Address, server: Address) -> Iterator[tuple[str, bytes]]:
    """Table -> both ends as the client's row has them: its own address first."""
    addresses = [(ipaddress.ip_address(host), port) for host, port in (client, server)]
    if all(address.version == 4 for address, _ in addresses):
        yield "tcp", _ends([(address.packed, port) for address, port in addresses])
        # A socket for both versions of IP has the addresses in the form of version 6.
        addresses = [(ipaddress.IPv6Address(f"::ffff:{address}"), port) for address, port in addresses]
    yield "tcp6", _ends([(address.packed, port) for address, port in addresses])


def _ends(addresses: list[tuple[bytes, int]]) -> bytes:
    """`0100007F:D431 0100007F:2256`: each address as numbers of 32 bits in the byte order of this machine."""
    ends = []
    for packed, port in addresses:
        numbers = [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]
        ends.append("".join(f"{number:08X}" for number in numbers) + f":{port:04X}")
    return " ".join(ends).encode()
