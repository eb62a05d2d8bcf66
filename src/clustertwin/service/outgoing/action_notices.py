"""Messages about actions: a record -> a message in the outbox of every target, delivered with those of events."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from clustertwin.core.errors import SettingsError
from clustertwin.service.act.action_journal import ActionRecord
from clustertwin.service.act.action_message import compose_message
from clustertwin.service.outgoing.notifications import Message, NotifySettings, Outbox
from clustertwin.service.outgoing.owner_messages import OwnerPost


def queue_notices(
    home: Path, settings: NotifySettings, owners: OwnerPost | None = None
) -> Callable[[ActionRecord], None]:
    """A function that queues the messages about an action. The same action has one message, also after a crash."""
    outbox = Outbox(home, settings.urls)

    def queue(action: ActionRecord) -> None:
        title, body = compose_message(action, settings.link)
        outbox.put([Message("action", f"{action.event}-{action.id}", time.time(), title, body)])
        if owners is not None:
            with suppress(SettingsError):  # a name that is no address; the administrators are told
                owners.put(action)

    return queue
