"""Tell people where there is no Alertmanager: events that open and close -> messages, spooled until delivered.

A message is a file in home/outbox/TARGET from the moment its event is seen until its target took it. Files are named
for event and kind, and written before it is noted that the event was told of: a crash loses no message. A target that
refuses is tried again ever more rarely; what gathered meanwhile goes out as one message.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from clustertwin.core import files, formatting
from clustertwin.core.errors import SettingsError, SourceError, TwinError
from clustertwin.core.extras import require
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.event_store import Case, NoSuchEvent, Store
from clustertwin.service.store.quiet_times import Silence, hushed
from clustertwin.telemetry.detection.events.event import Event

OUTBOX, TOLD = "outbox", "told.json"
#: title, body -> whether the target took it
Send = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class NotifySettings:
    urls: tuple[str, ...] = ()  # Apprise's: mailtos://user:password@host?to=…, json://host/path, …
    link: str = ""  # where people reach the service: https://twin.example.org
    every_s: float = 60.0  # a target hears no more often; what gathers meanwhile is one message
    longest_pause_s: float = 3600.0  # between two attempts at a target that refuses
    keep_s: float = 7 * 86_400.0  # after which a message is old news


@dataclass(frozen=True, slots=True)
class Message:
    kind: Literal["opened", "closed"]
    event: str
    at_s: float
    title: str
    body: str


def worth_telling(case: Case, silences: Iterable[Silence]) -> bool:
    """Whether anybody should be disturbed: no person has waved it off, and nobody asked for silence."""
    return case.verdict not in ("dismissed", "new-normal") and not hushed(case.event, silences)


def compose(case: Case, kind: Literal["opened", "closed"], at_s: float, link: str = "") -> Message:
    """What a person reads; the words of labels are theirs, so control characters become blanks."""
    event = case.event
    where = f"job {event.job} on " if event.job else ""
    where += event.nodes[0] if len(event.nodes) == 1 else formatting.counted(len(event.nodes), "node")
    channel = f" ({case.why.channel})" if case.why else ""
    lines = [case.why.sentence] if case.why else []
    lines += [
        f"nodes    {', '.join(f'{node} cpu {formatting.ranges(cpus)}' for node, cpus in event.places[:8])}"
        + (f" and {len(event.places) - 8} more" if len(event.places) > 8 else ""),
        f"jobs     {', '.join(event.jobs[:8]) or formatting.UNKNOWN}{f', owner {event.owner}' if event.owner else ''}",
        f"since    {formatting.clock(event.onset_s)}",
    ]
    lines += [f"until    {formatting.clock(event.end_s)}"] if event.end_s is not None else []
    lines += [f"score    {formatting.number(event.score)}, seen by {event.view}, model {event.model}"]
    lines += [f"{link.rstrip('/')}/events/{event.id}"] if link else []
    title = f"{'Strange' if kind == 'opened' else 'Over'}: {where}{channel}"
    return Message(kind, event.id, at_s, _plain(title), "\n".join(map(_plain, lines)))


class Outbox:
    """The messages that wait, a directory for each target."""

    def __init__(self, home: Path, urls: Sequence[str]) -> None:
        self.directory = home / OUTBOX
        self.boxes = {url: self.directory / hashlib.sha256(url.encode()).hexdigest()[:12] for url in urls}

    def put(self, messages: Iterable[Message]) -> None:
        """All of them on disk when this returns."""
        written = [(f"{m.event}-{m.kind}.json", json.dumps(asdict(m)).encode()) for m in messages]
        for box in self.boxes.values():
            files.make_directory(box)
            for name, data in written:
                files.write(box / name, data, sync_parent=False)
            with files.reporting(box):
                files.sync_directory(box)

    def waiting(self, url: str) -> list[tuple[Path, Message]]:
        """Oldest first; a file that is no message is left aside."""
        found = []
        for path in self.boxes[url].glob("*.json"):
            try:
                found.append((path, Message(**json.loads(path.read_bytes()))))
            except (OSError, ValueError, TypeError):
                continue
        return sorted(found, key=lambda entry: (entry[1].at_s, entry[0].name))


def pending(home: Path) -> int:
    """Messages that wait, over all targets."""
    return sum(1 for _ in (home / OUTBOX).glob("*/*.json"))


class Notifier:
    """`look` spools what is new, `deliver` sends what waits."""

    def __init__(self, home: Path, store: Store, settings: NotifySettings, sends: Sequence[Send]) -> None:
        """`sends` has one for each of the settings' urls."""
        self.store, self.settings = store, settings
        self._outbox = Outbox(home, settings.urls)
        self._send = dict(zip(settings.urls, sends, strict=True))
        self._path = self._outbox.directory / TOLD
        self._told: set[str] | None = None  # events whose opening was told of, and whose end was not
        self._next_s = dict.fromkeys(settings.urls, 0.0)
        self._refused = dict.fromkeys(settings.urls, 0)

    def look(self, open_events: Iterable[Event], now_s: float, feed_s: float | None = None) -> None:
        """Spool a message for each event that opened, and for each that closed after it was told of.

        Silences end on the feed's clock, which is not the wall's in a replay; messages age on the wall's.
        """
        told = self._read_told()
        silences = self.store.quiet.silences(now_s if feed_s is None else feed_s)
        now_open = {event.id: event for event in open_events}
        # With reason and verdict where the store has them already: a full disk must not keep people uninformed.
        fresh = [self._known(id) or Case(event, None) for id, event in now_open.items() if id not in told]
        fresh = [case for case in fresh if worth_telling(case, silences)]
        gone = {id: self._known(id) for id in told - now_open.keys()}
        over = [case for case in gone.values() if case is not None and not case.event.open]
        forgotten = {id for id, case in gone.items() if case is None}  # the store was set up anew
        if not fresh and not over and not forgotten:
            return
        link = self.settings.link
        messages = [compose(case, "opened", now_s, link) for case in fresh]
        self._outbox.put([*messages, *(compose(case, "closed", now_s, link) for case in over)])
        told = (told - {case.id for case in over} - forgotten) | {case.id for case in fresh}
        files.make_directory(self._path.parent)
        files.write(self._path, json.dumps(sorted(told)).encode())
        self._told = told

    def deliver(self, now_s: float) -> None:
        """Send what is due, one message a target."""
        for url, send in self._send.items():
            if now_s < self._next_s[url]:
                continue
            waiting = self._outbox.waiting(url)
            due = [entry for entry in waiting if entry[1].at_s >= now_s - self.settings.keep_s]
            taken = bool(due) and send(*joined([message for _, message in due], self.settings.link))
            for path, message in waiting:
                if taken or message.at_s < now_s - self.settings.keep_s:
                    path.unlink(missing_ok=True)
            if due:
                self._refused[url] = 0 if taken else self._refused[url] + 1
                pause_s = self.settings.every_s * 2.0 ** min(max(self._refused[url] - 1, 0), 30)
                self._next_s[url] = now_s + min(pause_s, max(self.settings.longest_pause_s, self.settings.every_s))

    def _read_told(self) -> set[str]:
        if self._told is None:
            try:
                self._told = set(json.loads(self._path.read_bytes()))
            except (OSError, ValueError, TypeError):
                self._told = set()
        return self._told

    def _known(self, event_id: str) -> Case | None:
        try:
            return self.store.event(event_id)
        except NoSuchEvent:
            return None


def joined(messages: Sequence[Message], link: str = "", most: int = 50) -> tuple[str, str]:
    """Title and body of one message for all of these."""
    if len(messages) == 1:
        return messages[0].title, messages[0].body
    opened = sum(message.kind == "opened" for message in messages)
    title = f"{formatting.counted(opened, 'event')} began, {len(messages) - opened} ended"
    parts = [f"{message.title}\n{message.body}" for message in messages[:most]]
    if len(messages) > most:
        parts.append(f"and {len(messages) - most} more{f': {link.rstrip(chr(47))}/events' if link else ''}")
    return title, "\n\n".join(parts)


def sender(url: str, timeout_s: float = 30.0) -> Send:
    """Apprise's way to one target; a URL it does not know is a `SettingsError` that does not repeat its password."""
    apprise: Any = require("apprise", "notify")
    target = apprise.Apprise(
        asset=apprise.AppriseAsset(app_id="clustertwin", storage_mode="memory", allow_templates=False)
    )
    if not target.add(url):
        raise SettingsError(f"not a notification URL that Apprise knows: {_host(url)}")

    def send(title: str, body: str) -> bool:
        return bool(target.notify(body=body, title=title, body_format="text", timeout=timeout_s))

    return send


def deliver_now(urls: Iterable[str], title: str, body: str) -> None:
    """Send it, without a spool; every target is tried, and those that refused are named."""
    refused = [_host(url) for url, send in [(url, sender(url)) for url in urls] if not send(title, body)]
    if refused:
        raise SourceError(f"not delivered: {', '.join(refused)} refused")


def watch(state: ServiceState, settings: NotifySettings, stop: threading.Event, look_s: float = 5.0) -> None:
    """Look and deliver until told to stop; a thread's work, beside the loop."""
    notifier = Notifier(state.home, state.store, settings, [sender(url) for url in settings.urls])
    while not stop.wait(look_s):
        # A disk that is full now may have room the next time: nothing is noted as told that was not spooled.
        with suppress(TwinError):
            notifier.look(state.snapshot.events, time.time(), state.snapshot.now_s)
        notifier.deliver(time.time())


def _host(url: str) -> str:
    """Scheme and host alone: users and passwords are not for logs."""
    scheme, _, rest = url.partition("://")
    return (
        f"{_plain(scheme)}://{_plain(rest.rpartition('@')[2].split('/')[0].split('?')[0])}" if rest else "(no scheme)"
    )


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text.encode("utf-8", "backslashreplace").decode())
