"""What others wrote, read with a budget: files -> bytes, texts -> JSON and TOML values, programs -> their output.

A reader of a job log, a recording or a model cannot know who wrote it. A FIFO would block it for ever, a device or a
huge file would fill the memory, and a deeply nested document would end in an error that nobody expects.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import stat
import subprocess
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from clustertwin.core.errors import InputError, RecordingError, SettingsError

#: The latest second that a file may name, in the year 5138. Later ones overflow sums of seconds.
LATEST_S = 10**11
#: How long a killed program may take to end.
KILLED_S = 5.0
#: The longest password or token.
MOST_SECRET_BYTES = 64 << 10


def open_regular(path: Path | str) -> int:
    """A descriptor of a regular file, to read from. `OSError` for a FIFO, a device, a directory or a socket."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path | str, most_bytes: int) -> bytes:
    """The content of a regular file. `OSError` if it is larger than the budget, before it is read."""
    with open(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {most_bytes:,} bytes, which is the limit", str(path))
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes:,} bytes, which is the limit", str(path))
    return content


def read_recorded(path: Path, most_bytes: int) -> bytes | None:
    """The bytes of a file of a recording; None if there is none. `RecordingError` if it cannot be read."""
    try:
        return read_regular(path, most_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordingError(path, f"cannot be read: {error.strerror}") from error


def parse_toml(text: str) -> dict[str, Any]:
    """A TOML document. `ValueError` for any other text, for deep nesting, and for numbers of thousands of digits.

    >>> parse_toml("a = 1")
    {'a': 1}
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None


def read_text(path: Path) -> str:
    """The text of a file that a person named. `InputError` if it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise InputError(path, f"not a text: byte {error.start} is not UTF-8") from error


def expanded(path: Path | str) -> Path:
    """The path that a person named, with `~` expanded. `SettingsError` if there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise SettingsError(f"{path}: this machine has no such user, or the user has no home directory") from None


def read_secret_bytes(path: Path | str, *, private: bool = False) -> bytes:
    """The secret in a file, without white space around it. The error names the file and the reason, never the content.

    The file may be a pipe: `<(secret-tool …)`. A private one is refused if other users can read it. Most are not
    private, because secrets that a container mounts are readable to all of its users.
    """
    try:
        with open(expanded(path), "rb") as file:
            if private and os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise SettingsError(f"{path}: other users can read the token; run chmod 600 {path}")
            secret = file.read(MOST_SECRET_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # a path with a zero byte
        raise SettingsError(f"{str(path)!r}: {error}") from None
    if len(secret) > MOST_SECRET_BYTES:
        raise SettingsError(f"{path}: longer than {MOST_SECRET_BYTES:,} bytes, so it is not a secret")
    if not secret.strip():
        raise SettingsError(f"{path}: the file is empty; it must contain a secret")
    return secret.strip()


def read_secret(path: Path | str, *, private: bool = False) -> str:
    """The password or token in a file."""
    try:
        return read_secret_bytes(path, private=private).decode()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not a text: byte {error.start} is not UTF-8") from None


def parse_json(data: bytes, most_values: int | None = None) -> Any:
    """A JSON document. `ValueError` for any other text, for deep nesting, and for text that cannot be encoded.

    A value takes 2 bytes of text and up to 100 bytes of memory, and all other threads wait while they are made. So the
    values of what a server sends are counted first; a text that holds commas or brackets counts for more.

    >>> parse_json(b'{"a": 1}')
    {'a': 1}
    """
    if most_values is not None and sum(map(data.count, (b",", b"[", b"{"))) > most_values:
        raise ValueError(f"the document has more than {most_values} values, which is the limit")
    try:
        document = json.loads(data)
        if b"\\ud" in data.lower():  # perhaps one half of a surrogate pair, which no page and no log can show
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None
    return document


def end_program(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and close its pipes.

    The kernel does not end a program that waits for a file system which does not answer. Such a program is not waited
    for; `subprocess` collects it later, when it starts another one.
    """
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_S)


def read_output(
    command: Sequence[str], most_bytes: int, within_s: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end. `OSError` if it prints more than the budget, `subprocess.TimeoutExpired` if it hangs.

    `subprocess.run` would keep whatever a program prints until the time is over, which can be gigabytes.
    """
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        pieces: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
        for pipe in pieces:
            selector.register(pipe, selectors.EVENT_READ)
        left, end_s = most_bytes, time.monotonic() + within_s
        try:
            while selector.get_map():
                ready = selector.select(max(end_s - time.monotonic(), 0.0))
                if not ready and time.monotonic() >= end_s:
                    raise subprocess.TimeoutExpired(command, within_s)
                for key, _ in ready:
                    piece = os.read(key.fd, 1 << 16)
                    if not piece:
                        selector.unregister(key.fd)
                    pieces[key.fd].append(piece)
                    left -= len(piece)
                    if left < 0:
                        raise OSError(errno.EFBIG, f"prints more than {most_bytes:,} bytes", command[0])
            code = process.wait(max(end_s - time.monotonic(), 0.1))
        except BaseException:
            end_program(process)
            raise
        output, errors = (b"".join(part) for part in pieces.values())
    return subprocess.CompletedProcess(command, code, output, errors)
