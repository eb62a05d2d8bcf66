"""The bytes of an HTTP/1 response as they arrive -> its status and its body, once they are complete."""

from __future__ import annotations

import re

#: Limits of a response before its body is known to be text. The heads of our sources have less than one KB, and Go's
#: servers write 4 KB a chunk; chunks of one byte would take a second to join.
MOST_HEAD_BYTES, MOST_CHUNKS = 64 << 10, 16_384
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}[ \t]*(?:;[^\r\n]*)?")
_FRAMING = re.compile(rb"\r\n(?:content-length|transfer-encoding)[ \t]*:", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)

#: Where the complete chunks of a response begin and end among its bytes.
ChunkEnds = list[tuple[int, int]]


def unpack(received: bytearray, ended: bool, chunks: ChunkEnds | None = None) -> tuple[int, bytes, bool] | None:
    """The bytes of a response so far -> status, body, and whether the connection stays open; None if it is incomplete.

    `ended`: the server has closed the connection. `chunks`: those that an earlier call has found in the same response.
    ValueError if the bytes are not HTTP/1.
    """
    end = received.find(b"\r\n\r\n")
    if (len(received) if end < 0 else end) > MOST_HEAD_BYTES:
        raise ValueError(f"the head of the response is longer than {MOST_HEAD_BYTES} bytes")
    if end < 0:
        return None
    head, body_at = received[: end + 2], end + 4
    status = _STATUS.match(head)
    if status is None:
        raise ValueError(f"not an HTTP/1 response: {bytes(head[:60])!r}")
    if len(_FRAMING.findall(head)) > 1:
        raise ValueError("the length of the response is stated twice")
    stays_open = not ended and _CLOSES.search(head) is None
    if _CHUNKED.search(head):
        body = _joined(received, body_at, [] if chunks is None else chunks)
        return None if body is None else (int(status[1]), body, stays_open)
    length = _LENGTH.search(head)
    if length is None:  # the body ends with the connection
        return (int(status[1]), bytes(received[body_at:]), False) if ended else None
    if len(received) - body_at < int(length[1]):
        return None
    return int(status[1]), bytes(received[body_at : body_at + int(length[1])]), stays_open


def _joined(received: bytearray, at: int, chunks: ChunkEnds) -> bytes | None:
    """The chunks from `at` on, joined; None if the last one is missing.

    Chunks that are known are not read again: a server whose every piece ends like a response would cost the square of
    its length.
    """
    if not received.endswith(b"0\r\n\r\n"):
        return None
    at = chunks[-1][1] + 2 if chunks else at
    while True:
        line_end = received.find(b"\r\n", at)
        if line_end < 0:
            return None
        line = bytes(received[at : min(line_end, at + 1024)])
        if _CHUNK_SIZE.fullmatch(line) is None:  # int() would also accept -5 and 1_0
            raise ValueError(f"not the size of a chunk: {line[:20]!r}")
        if len(chunks) == MOST_CHUNKS:
            raise ValueError(f"more than {MOST_CHUNKS} chunks")
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            return b"".join([received[begin:end] for begin, end in chunks])
        at = line_end + 2 + size + 2
        if at > len(received):
            return None
        chunks.append((line_end + 2, at - 2))
