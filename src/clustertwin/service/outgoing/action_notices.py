"""Messages about actions: a record -> a message in the outbox of every target, delivered with those of events."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from clustertwin.service.act.action_journal import ActionRecord
from clustertwin.service.act.action_message import compose_message
from clustertwin.service.outgoing.notifications import Message, NotifySettings, Outbox


def queue_notices(home: Path, settings: NotifySettings) -> Callable[[ActionRecord], None]:
    """A function that queues the message about an action. The same action has one message, also after a crash."""
    outbox = Outbox(home, settings.urls)

    def queue(action: ActionRecord) -> None:
        title, body = compose_message(action, settings.link)
        outbox.put([Message("action", f"{action.event}-{action.id}", time.time(), title, body)])

    return queue
