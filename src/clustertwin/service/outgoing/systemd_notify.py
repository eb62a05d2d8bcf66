"""Tell systemd that the service is ready or alive: a word -> a datagram to $NOTIFY_SOCKET, if there is one."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(word: str) -> None:
    """Send `READY=1` or `WATCHDOG=1`. Without systemd this does nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        sender.sendto(word.encode(), address)
