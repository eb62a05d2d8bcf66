"""Send one message in a process of its own: URL, title and body on standard input -> exit code 0 if it was accepted.

Apprise reads an answer of any length into memory, and leaves a thread behind for a target that answers byte by byte. A
process has a limit of memory, and can be killed. The URL may hold a password, so it is not an argument.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

from clustertwin.core.extras import require

#: Of memory; an answer has a few kilobytes.
MOST_BYTES = 1 << 30
#: What chats take for a call of everybody or of a person. A job may be named so.
_MENTION = re.compile(r"@(?=(?:everyone|here|channel|all|room)\b)|<(?=[!@#&])", re.IGNORECASE)


def target_of(url: str) -> Any:
    """Apprise with this target; None if the URL is invalid."""
    apprise: Any = require("apprise", "notify")
    asset = apprise.AppriseAsset(app_id="clustertwin", storage_mode="memory", allow_templates=False)
    target = apprise.Apprise(asset=asset)
    return target if target.add(url) else None


def send(url: str, title: str, body: str, within_s: float) -> bool:
    """Whether the target accepted the message in this time. `OSError` if no process can be started."""
    command = [sys.executable, "-m", __name__]
    title, body = without_mentions(title), without_mentions(body)
    message = json.dumps({"url": url, "title": title, "body": body, "within_s": within_s}).encode()
    try:
        # Apprise logs to standard error, with parts of the URL.
        done = subprocess.run(command, input=message, capture_output=True, timeout=within_s, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def without_mentions(text: str) -> str:
    """The text in which no name calls anybody in a chat: a word joiner, which is not seen, parts the mention."""
    return _MENTION.sub("\\g<0>\u2060", text)


def main() -> int:
    with suppress(OSError, ValueError):  # the limit may be lower already
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    message = json.load(sys.stdin.buffer)
    signal.alarm(int(message["within_s"]) + 1)  # the service may end first
    target = target_of(message["url"])
    return 0 if target and target.notify(body=message["body"], title=message["title"], body_format="text") else 1


if __name__ == "__main__":
    sys.exit(main())
