"""Log lines for journald: a level and a message -> one line on standard error."""

from __future__ import annotations

import sys


def log(level: str, message: str) -> None:
    """`level` is info, warning or error. The logging module would add a tenth to the exporter's memory."""
    sys.stderr.write(f"level={level} msg={message!r}\n")
    sys.stderr.flush()
