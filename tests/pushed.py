"""Requests of remote write, written by hand: labels and samples -> the bytes of a WriteRequest, field by field."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

Sample = tuple[int, float]  # milliseconds, value


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def label(name: str, value: str) -> bytes:
    return message(1, message(1, name.encode()) + message(2, value.encode()))


def sample(time_ms: int, value: float | bytes) -> bytes:
    bits = value if isinstance(value, bytes) else struct.pack("<d", value)
    return message(2, b"\x09" + bits + b"\x10" + varint(time_ms))


def series(labels: Mapping[str, str], samples: Iterable[tuple[int, float | bytes]]) -> bytes:
    content = b"".join(label(*pair) for pair in labels.items()) + b"".join(sample(*one) for one in samples)
    return message(1, content)


def literal_block(data: bytes) -> bytes:
    """A snappy block without any compression."""
    out = varint(len(data))
    for at in range(0, len(data), 60):
        piece = data[at : at + 60]
        out += bytes([(len(piece) - 1) << 2]) + piece
    return out


#: What Prometheus sends when a series has ended.
STALE = (0x7FF0000000000002).to_bytes(8, "little")
