"""Whether the ranks of a job send messages over TCP: their processes -> bytes of each of their sockets.

The kernel counts the bytes of a TCP socket, and reports them for each inode (sock_diag). Messages that bypass it, as on
InfiniBand, are not counted: if a process has such a device open, nothing can be said.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator

#: Devices through which no message passes between nodes. Any other may be a network of its own (as nvidia's imex is).
HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts/", "/dev/shm/",
            "/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/fuse")  # fmt: skip
MOST_DESCRIPTORS = 16_384
MOST_BYTES = 32 << 20  # of the kernel's answer
_SOCK_DIAG, _BY_FAMILY, _DONE, _ERROR = 4, 20, 3, 2
_REQUEST_AND_DUMP = 0x301
_HEAD = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")  # family, protocol, extensions, states, and an id that selects every socket
_INODE = struct.Struct("=68xI")  # of struct inet_diag_msg
_ATTRIBUTE = struct.Struct("=HH")
_INFO = 2  # the attribute with struct tcp_info
_BYTES = struct.Struct("=120xQQ")  # of tcp_info: acknowledged and received bytes


def traffic(pids: Iterable[int]) -> dict[int, int] | None:
    """Socket -> bytes sent and received, of the TCP sockets of these processes; None if they may have other ways."""
    inodes: set[int] = set()
    seen = 0
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            return None
        seen += len(names)
        if seen > MOST_DESCRIPTORS:
            return None
        for name in names:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue  # closed since
            if target.startswith("socket:["):
                inodes.add(int(target[8:-1]))
            elif target.startswith("/dev/") and (not target.startswith(HARMLESS) or "imex" in target):
                return None
    try:
        if any(inode in inodes for inode, _ in _sockets(socket.IPPROTO_UDP)):
            return None  # the kernel does not count the bytes of a UDP socket
        counts = {inode: count for inode, count in _sockets(socket.IPPROTO_TCP) if inode in inodes}
        return counts if any(counts.values()) else None  # a socket that was never used is not the way of messages
    except (OSError, struct.error):
        return None


def _sockets(protocol: int) -> Iterator[tuple[int, int]]:
    """(inode, bytes) of every socket of this host."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            body = _REQUEST.pack(family, protocol, 1 << (_INFO - 1), 0xFFF)
            kernel.send(_HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _REQUEST_AND_DUMP, 1, 0) + body)
            read = 0
            while (data := kernel.recv(1 << 16)) and read <= MOST_BYTES:
                read += len(data)
                messages = list(_messages(data))
                yield from (_socket(message) for kind, message in messages if kind == _BY_FAMILY)
                if any(kind == _DONE for kind, _ in messages):
                    break
                if any(kind == _ERROR for kind, _ in messages):
                    raise OSError("sock_diag is not available")
            else:
                raise OSError("there are too many sockets")


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEAD.size <= len(data):
        length, kind, *_ = _HEAD.unpack_from(data, at)
        yield kind, data[at + _HEAD.size : at + length]
        at += max((length + 3) & ~3, _HEAD.size)


def _socket(message: bytes) -> tuple[int, int]:
    (inode,) = _INODE.unpack_from(message)
    at = _INODE.size
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == _INFO and length >= _ATTRIBUTE.size + _BYTES.size:
            return inode, sum(_BYTES.unpack_from(message, at + _ATTRIBUTE.size))
        at += max((length + 3) & ~3, _ATTRIBUTE.size)
    return inode, 0
