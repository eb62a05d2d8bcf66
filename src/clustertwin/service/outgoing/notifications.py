"""Notifications without an Alertmanager: events that open, change and close -> messages, spooled until delivered.

A message is a file in HOME/outbox/TARGET until the target accepts it. The file is named for the event and the kind of
message, and it is written before the event is marked as announced, so a crash loses no message. A target that fails is
tried again at growing intervals. The messages that wait are sent as one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple

from clustertwin.core import files, formatting
from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.core.foreign_files import parse_json, read_regular
from clustertwin.service.live.beside.side_work import fence_of, repeat
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.outgoing import message_process
from clustertwin.service.outgoing.message_process import target_of
from clustertwin.service.outgoing.score_meaning import score_meaning
from clustertwin.service.store.event_store import Case, NoSuchEvent, Store
from clustertwin.service.store.quiet_periods import Silence, is_silenced
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation_text import title_of
from clustertwin.telemetry.learning.champions.shadow import NO_SHADOW, Shadow

OUTBOX, ANNOUNCED = "outbox", "told.json"
#: The largest file of one message, and of the events that people were told about.
MOST_MESSAGE_BYTES, MOST_TOLD_BYTES = 1 << 20, 64 << 20
Kind = Literal["opened", "changed", "closed", "action"]
_ASK_S = 60.0  # between two looks at the reasons of announced events
#: Messages are delivered every few seconds. If the clock is this much later than the last time, it has jumped, and no
#: message is too old for a first attempt.
JUMP_S = 86_400.0
_WORDS: dict[Kind, str] = {"opened": "Anomaly", "changed": "New reason", "closed": "Resolved", "action": "Action"}
_log = logging.getLogger("uvicorn.error")
#: title, body -> whether the target accepted the message
Send = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class NotifySettings:
    urls: tuple[str, ...] = ()  # Apprise URLs: mailtos://user:password@host?to=…, json://host/path, …
    link: str = ""  # the address of the service, for links: https://twin.example.org
    every_s: float = 60.0  # the shortest time between two messages to a target
    longest_pause_s: float = 3600.0  # between two attempts at a target that fails
    keep_s: float = 7 * 86_400.0  # an older message is deleted
    change_s: float = 600.0  # the shortest time between two messages about an event that stays open


@dataclass(frozen=True, slots=True)
class Message:
    kind: Kind
    event: str
    at_s: float
    title: str
    body: str


def needs_notification(case: Case, silences: Iterable[Silence], shadow: Shadow = NO_SHADOW) -> bool:
    """Whether people should be notified: the event is not dismissed, not new normal, not silenced, not in shadow."""
    if case.is_settled or shadow.covers(case.event.seen_s):
        return False
    return not is_silenced(case.event, silences)


def compose(case: Case, kind: Kind, at_s: float, link: str = "") -> Message:
    """Write the message. Names come from users, so control characters are replaced by spaces."""
    event = case.event
    lines = [case.why.sentence, f"Next step: {case.why.next_step}"] if case.why else []
    lines += [
        f"nodes    {formatting.listed([f'{node} cpu {formatting.ranges(cpus)}' for node, cpus in event.places], 8)}",
        f"jobs     {', '.join(event.jobs[:8]) or formatting.UNKNOWN}{f', owner {event.owner}' if event.owner else ''}",
        f"since    {formatting.clock(event.onset_s)}",
    ]
    lines += [f"until    {formatting.clock(event.end_s)}"] if event.end_s is not None else []
    by = f"question {event.question}" if event.by_finding else f"view {event.view}"
    lines += [f"{score_meaning(event, None).name:8} {formatting.number(event.score)}, {by}, model {event.model}"]
    lines += [f"{link.rstrip('/')}/events/{event.id}"] if link else []
    title = f"{_WORDS[kind]}: {event.title or title_of(event, case.why)}"
    return Message(kind, event.id, at_s, _plain(title), "\n".join(map(_plain, lines)))


def reason_of(case: Case) -> str:
    """What a message about the event says, without its figures: if it changes, people are told again."""
    return f"{case.event.cause} {case.why.channel} {case.why.known_fault}".strip() if case.why else ""


class Outbox:
    """The messages that are not delivered yet, in one directory for each target."""

    def __init__(self, home: Path, urls: Sequence[str]) -> None:
        self.directory = home / OUTBOX
        self.boxes = {url: self.directory / hashlib.sha256(url.encode()).hexdigest()[:12] for url in urls}

    def put(self, messages: Iterable[Message]) -> None:
        """Write messages for every target. They are on disk when this returns."""
        spooled = [(f"{m.event}-{m.kind}.json", json.dumps(asdict(m)).encode()) for m in messages]
        for box in self.boxes.values():
            files.make_directory(box)
            for name, data in spooled:
                files.write(box / name, data, sync_parent=False)
            with files.reporting(box):
                files.sync_directory(box)

    def waiting(self, url: str) -> list[tuple[Path, Message]]:
        """The messages for a target, oldest first. A damaged file is skipped."""
        messages = []
        for path in self.boxes[url].glob("*.json"):
            try:
                messages.append((path, _message(parse_json(read_regular(path, MOST_MESSAGE_BYTES)))))
            except (OSError, ValueError, TypeError, KeyError):
                continue
        return sorted(messages, key=lambda entry: (entry[1].at_s, entry[0].name))


def _message(plain: dict[str, Any]) -> Message:
    texts = {name: str(plain[name]) for name in ("event", "title", "body")}
    return Message(kind=plain["kind"], at_s=float(plain["at_s"]), **texts)


def pending(home: Path) -> int:
    """The number of messages that are not delivered yet, over all targets."""
    return sum(1 for _ in (home / OUTBOX).glob("*/*.json"))


class Told(NamedTuple):
    """What people were told about an event, and when."""

    reason: str
    at_s: float


class Notifier:
    """`spool` writes messages for new changes, and `deliver` sends them."""

    def __init__(self, home: Path, store: Store, settings: NotifySettings, sends: Sequence[Send]) -> None:
        """`sends` has one function for each URL of the settings."""
        self.store, self.settings = store, settings
        self._outbox = Outbox(home, settings.urls)
        self._send = dict(zip(settings.urls, sends, strict=True))
        self._path = self._outbox.directory / ANNOUNCED
        self._announced: dict[str, Told] | None = None  # events that were announced and are not resolved yet
        self._asked_s = -_ASK_S
        self._paused = dict.fromkeys(settings.urls, (0.0, 0.0))  # since when, and for how long
        self._failures = dict.fromkeys(settings.urls, 0)
        self._delivered_s = inf  # when messages were delivered last

    def spool(
        self, open_events: Iterable[Event], now_s: float, feed_s: float | None = None, shadow: Shadow = NO_SHADOW
    ) -> None:
        """Spool a message for each event that opened, for each announced one whose reason changed, and for its end.

        Silences end by the feed's clock, which differs from real time in a replay. Messages age in real time.
        """
        announced = self._read_announced()
        silences = self.store.quiet_periods.silences(now_s if feed_s is None else feed_s)
        now_open = {event.id: event for event in open_events}
        # If the store does not have the event, because the disk is full, send it without an explanation.
        opened = [self._stored(id) or Case(event, None) for id, event in now_open.items() if id not in announced]
        opened = [case for case in opened if needs_notification(case, silences, shadow)]
        again = [self._stored(id) for id in self._to_ask_again(now_open, now_s)]
        known = [case for case in again if case is not None and reason_of(case)]
        changed = [case for case in known if announced[case.id].reason not in ("", reason_of(case))]
        changed = [case for case in changed if needs_notification(case, silences, shadow)]
        # An event is announced before it is explained. Its first reason is no change.
        first = {case.id: Told(reason_of(case), announced[case.id].at_s) for case in known if not announced[case.id][0]}
        not_open = {id: self._stored(id) for id in announced.keys() - now_open.keys()}
        closed = [case for case in not_open.values() if case is not None and not case.event.open]
        gone = {id for id, case in not_open.items() if case is None} | {case.id for case in closed}
        if not opened and not changed and not gone and not first:
            return
        link = self.settings.link
        by_kind: dict[Kind, list[Case]] = {"opened": opened, "changed": changed, "closed": closed}
        self._outbox.put([compose(case, kind, now_s, link) for kind, cases in by_kind.items() for case in cases])
        told = {case.id: Told(reason_of(case), now_s) for case in (*opened, *changed)}
        announced = {id: entry for id, entry in (announced | first | told).items() if id not in gone}
        files.make_directory(self._path.parent)
        files.write(self._path, json.dumps(announced).encode())
        self._announced = announced

    def _to_ask_again(self, now_open: Iterable[str], now_s: float) -> list[str]:
        """Once a minute, the announced events whose reason may have changed."""
        if is_within(now_s, self._asked_s, _ASK_S):
            return []
        self._asked_s = now_s
        told = {id: self._read_announced()[id] for id in now_open if id in self._read_announced()}
        change_s = self.settings.change_s
        return [id for id, (reason, at_s) in told.items() if not reason or not is_within(now_s, at_s, change_s)]

    def deliver(self, now_s: float) -> None:
        """Send what is due, as one message to each target."""
        oldest_s = -inf if now_s - self._delivered_s > JUMP_S else now_s - self.settings.keep_s
        self._delivered_s = now_s
        for url, send in self._send.items():
            if is_within(now_s, *self._paused[url]):
                continue
            waiting = self._outbox.waiting(url)
            due = [entry for entry in waiting if entry[1].at_s >= oldest_s]
            accepted = bool(due) and _accepted(send, *joined([message for _, message in due], self.settings.link))
            for path, message in waiting:
                if accepted or message.at_s < oldest_s:
                    path.unlink(missing_ok=True)
            if due:
                self._failures[url] = 0 if accepted else self._failures[url] + 1
                pause_s = self.settings.every_s * 2.0 ** min(max(self._failures[url] - 1, 0), 30)
                longest_s = max(self.settings.longest_pause_s, self.settings.every_s)
                self._paused[url] = now_s, min(pause_s, longest_s)

    def _read_announced(self) -> dict[str, Told]:
        """What was told. A list of ids is the file of an older release."""
        if self._announced is None:
            try:
                content = parse_json(read_regular(self._path, MOST_TOLD_BYTES))
                entries = content.items() if isinstance(content, dict) else ((id, ("", 0.0)) for id in content)
                self._announced = {str(id): Told(str(reason), float(at_s)) for id, (reason, at_s) in entries}
            except (OSError, ValueError, TypeError):
                self._announced = {}
        return self._announced

    def _stored(self, event_id: str) -> Case | None:
        try:
            return self.store.event(event_id)
        except NoSuchEvent:
            return None


def is_within(now_s: float, since_s: float, pause_s: float) -> bool:
    """Whether a pause is not over yet. It is over if the clock was set back to before its beginning."""
    return since_s <= now_s < since_s + pause_s


def _accepted(send: Send, title: str, body: str) -> bool:
    """Whether the target accepted the message. One that raises an error does not stop the messages to the others."""
    try:
        return send(title, body)
    except Exception as error:
        _log.warning("a message was not delivered: %s", type(error).__name__)  # its text may hold a password
        return False


def joined(messages: Sequence[Message], link: str = "", most: int = 50) -> tuple[str, str]:
    """Title and body of one message that combines these."""
    if len(messages) == 1:
        return messages[0].title, messages[0].body
    opened, changed, closed, actions = (sum(message.kind == kind for message in messages) for kind in _WORDS)
    title = f"{formatting.counted(opened, 'new event')}, {f'{changed} changed, ' if changed else ''}{closed} resolved"
    if actions:
        title += f", {formatting.counted(actions, 'action')}"
    parts = [f"{message.title}\n{message.body}" for message in messages[:most]]
    if len(messages) > most:
        parts.append(f"and {len(messages) - most} more{f': {link.rstrip(chr(47))}/events' if link else ''}")
    return title, "\n\n".join(parts)


def sender(url: str, timeout_s: float = 30.0) -> Send:
    """The function that sends to one target. For an invalid URL, the error does not contain the password."""
    if target_of(url) is None:
        raise SettingsError(f"{_host(url)}: Apprise does not support this notification URL")
    return lambda title, body: message_process.send(url, title, body, timeout_s)


def deliver_now(urls: Iterable[str], title: str, body: str) -> None:
    """Send a message at once, without the spool. Every target is tried; the error names those that failed."""
    failed = [_host(url) for url, send in [(url, sender(url)) for url in urls] if not send(title, body)]
    if failed:
        raise SourceError(f"the message was not delivered to {', '.join(failed)}")


def watch(state: ServiceState, settings: NotifySettings, stop: threading.Event, check_s: float = 5.0) -> None:
    """Spool and deliver until `stop` is set; the work of a thread beside the loop."""
    notifier = Notifier(state.home, state.store, settings, [sender(url) for url in settings.urls])
    spooling, delivery = (
        fence_of(state.side_problems, work) for work in ("new notifications", "delivery of notifications")
    )

    def turn() -> None:
        # If the disk is full, nothing is marked as announced, and the next check tries again.
        with spooling():
            notifier.spool(state.snapshot.events, time.time(), state.snapshot.now_s, state.shadow)
        with delivery():
            notifier.deliver(time.time())

    repeat(turn, stop, check_s)


def _host(url: str) -> str:
    """Scheme and host only: logs must not contain users and passwords."""
    scheme, _, rest = url.partition("://")
    return (
        f"{_plain(scheme)}://{_plain(rest.rpartition('@')[2].split('/')[0].split('?')[0])}" if rest else "(no scheme)"
    )


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text.encode("utf-8", "backslashreplace").decode())
