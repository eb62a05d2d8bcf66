"""Messages to the owners of jobs: an action -> a message to one user, kept on disk until it is accepted.

`hand.owner_url` is an Apprise URL with {user} in it, such as mailtos://…?to={user}@example.org. The name comes from
Slurm, and is checked before it becomes part of an address. An action has one message, also after a crash.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from clustertwin.core import files
from clustertwin.core.errors import SettingsError
from clustertwin.core.foreign_files import parse_json, read_regular
from clustertwin.service.act.action_journal import ActionRecord
from clustertwin.service.act.action_message import compose_message
from clustertwin.service.live.beside.side_work import fence_of, repeat
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.outgoing.notifications import JUMP_S, MOST_MESSAGE_BYTES, Send, is_within, sender

OWNERS = "outbox-owners"
KEEP_S = 2 * 86_400.0  # an older message is about a job that nobody remembers
RETRY_S = 300.0
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")


class OwnerPost:
    """`put` writes a message, and `deliver` sends those that wait."""

    def __init__(
        self, home: Path, url: str, link: str = "", contact: str = "", send_to: Callable[[str], Send] = sender
    ) -> None:
        if "{user}" not in url:
            raise SettingsError("hand.owner_url must contain {user}, as in mailtos://…?to={user}@example.org")
        send_to(url.replace("{user}", "nobody"))  # an invalid URL is an error at start
        self._box, self._url, self._link, self._contact = home / OWNERS, url, link, contact
        self._send_to = send_to
        self._failed_s: dict[str, float] = {}  # the name of a message -> when its target refused it last
        self._delivered_s = inf  # when messages were delivered last

    def put(self, action: ActionRecord) -> None:
        """Keep the message for the job's owner. It is on disk when this returns."""
        user = action.plan.facts.user
        if not _USER.fullmatch(user):
            raise SettingsError(f"{user[:32]!r} is not a user name, so the owner is not told")
        title, body = compose_message(action, self._link, owner=True, contact=self._contact)
        files.make_directory(self._box)
        message = {"user": user, "title": title, "body": body, "at_s": time.time()}
        files.write(self._box / f"{action.id}.json", json.dumps(message).encode())

    def deliver(self, now_s: float) -> None:
        """Send the messages that wait, until one is refused. That one is tried again after a while.

        The next turn goes on with the others: an address that does not exist must not stop them.
        """
        oldest_s = -inf if now_s - self._delivered_s > JUMP_S else now_s - KEEP_S
        self._delivered_s = now_s
        waiting = sorted(self._box.glob("*.json"))
        self._failed_s = {path.name: self._failed_s[path.name] for path in waiting if path.name in self._failed_s}
        for path in waiting:
            if is_within(now_s, self._failed_s.get(path.name, -inf), RETRY_S):
                continue
            try:
                message = parse_json(read_regular(path, MOST_MESSAGE_BYTES))
                user, title, body = (str(message[key]) for key in ("user", "title", "body"))
                at_s = float(message["at_s"])
            except (OSError, ValueError, TypeError, KeyError):
                continue
            self._failed_s[path.name] = now_s
            if at_s < oldest_s or self._send_to(self._url.replace("{user}", user))(title, body):
                path.unlink(missing_ok=True)
            else:
                return


def watch_owners(post: OwnerPost, state: ServiceState, stop: threading.Event, check_s: float = 10.0) -> None:
    """Deliver until `stop` is set; the work of a thread."""
    repeat(lambda: post.deliver(time.time()), stop, check_s, fence_of(state.side_problems, "messages to owners"))
