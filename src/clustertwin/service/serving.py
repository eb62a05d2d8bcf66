"""Run the whole service: a configuration -> a loop in a thread and a web server, until told to stop."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from clustertwin.config import Config
from clustertwin.core.errors import OutputError, SettingsError
from clustertwin.core.extras import require
from clustertwin.service.live.feeds import Feed
from clustertwin.service.live.live_recorder import Keeper
from clustertwin.service.live.loop import Loop, LoopSettings
from clustertwin.service.live.scorer import Here, Scorer
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.live.source_setup import live_feed, past_of, replay_feed
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.tokens import Tokens
from clustertwin.service.web.access import Binding, check_binding
from clustertwin.telemetry.detection.events.tracker import EventSettings
from clustertwin.telemetry.recording.trace_archive import GrowingRecordingArchive


def state_of(home: Path, replayed: bool) -> Path:
    """Where events and verdicts are kept: a replay has a place of its own and touches no real ones."""
    return home / "replay" if replayed else home


def run(config: Config, replay: tuple[Path, float] | None = None, told: Callable[[Binding], None] = print) -> None:
    """Serve until SIGINT or SIGTERM; `told` hears of the address once it listens."""
    require("fastapi", "service")
    uvicorn: Any = require("uvicorn", "service")
    home = state_of(config.home, replay is not None)
    feed = replay_feed(*replay) if replay else live_feed(config, time.time())
    with _alone(home):
        if replay is not None:
            for file in home.glob("state.sqlite*"):
                file.unlink()  # a replay tells its story from the beginning
        store = Store(home / "state.sqlite")
        binding = _binding(config)
        check_binding(binding, Tokens(store.database))
        listener = _listen(binding)
        binding = replace(binding, port=listener.getsockname()[1])
        state = ServiceState(home, store, feed.source)
        state.replayed = replay is not None
        state.past = GrowingRecordingArchive(replay[0]) if replay else past_of(config)
        stop, listening = threading.Event(), threading.Event()
        loop = _loop(config, state, feed, _champion(config.home, listening), live=replay is None)
        _notify(config, state, stop)
        nights = _nightly(config, stop) if replay is None else None
        # The loop first: it reads its first seconds while the pages are still being imported.
        worker = threading.Thread(target=loop.run, args=(stop,), name="loop", daemon=True)
        worker.start()
        from clustertwin.service.application import create_app

        server = uvicorn.Server(
            uvicorn.Config(
                create_app(state, binding),
                log_level="warning",
                server_header=False,
                timeout_graceful_shutdown=2,
                ssl_certfile=binding.certificate or None,
                ssl_keyfile=binding.key or None,
            )
        )
        state.ending = lambda: server.should_exit
        # uvicorn ends, then raises the signal again: unhandled, SIGTERM would end us before what was seen is written.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
        told(binding)
        listening.set()
        try:
            server.run(sockets=[listener])
        finally:
            stop.set()
            worker.join(timeout=10)
            if nights is not None:
                nights.join(timeout=10)
            store.close()


def _loop(config: Config, state: ServiceState, feed: Feed, champion: Future[Any], live: bool) -> Loop:
    scoring, events = config.scoring, config.events
    settings = LoopSettings(
        stride_s=scoring.stride_s,
        stale_s=scoring.stale_s,
        forget_s=scoring.forget_s,
        events=EventSettings(**events.model_dump()),
    )
    keep = live and config.recording.on and config.source.kind == "host"
    keeper = Keeper(state.home / "recording", int(config.recording.keep_days * 86_400)) if keep else None
    return Loop(state, feed, champion, settings, keeper, _scorer(config))


def _champion(home: Path, listening: threading.Event) -> Future[Any]:
    """The detector comes in a thread of its own: torch needs seconds, and the first readings are now.

    It waits until the pages are imported: side by side both would take as long as both together.
    """

    def load() -> Any:
        listening.wait(timeout=10)
        from clustertwin.telemetry.detection.bundled import bundled
        from clustertwin.telemetry.learning.champions.handover import Handover

        return Handover(home, bundled())

    pool = ThreadPoolExecutor(1, "champion")
    try:
        return pool.submit(load)
    finally:
        pool.shutdown(wait=False)


def _notify(config: Config, state: ServiceState, stop: threading.Event) -> None:
    """Tell people, where somebody is named to be told."""
    if not config.notify.urls:
        return
    from clustertwin.service.outgoing import notifications

    settings = notifications.NotifySettings(config.notify.urls, config.notify.link, config.notify.every_s)
    for url in settings.urls:
        notifications.sender(url)  # one that Apprise does not know is told before anything is served
    threading.Thread(target=notifications.watch, args=(state, settings, stop), name="notify", daemon=True).start()


def _nightly(config: Config, stop: threading.Event) -> threading.Thread | None:
    """Learn by night, where no timer does; what cannot be learnt from is told before anything is served."""
    hour, source = config.learning.hour, config.source
    if hour is None:
        return None
    from clustertwin.service.live import night_runner

    flags: list[str] = []
    if source.kind == "prometheus":
        told = {
            "--prometheus": source.url,
            "--match": source.match,
            "--username": source.username,
            "--password-file": source.password_file,
            "--token-file": source.token_file,
            "--ca-file": source.ca_file,
        }
        flags = [word for option, value in told.items() if value for word in (option, value)]
    elif source.kind == "exporters" or not config.recording.on:
        raise SettingsError(
            "learning.nightly: nobody keeps the day; it needs source.kind prometheus, or host with recording.on"
        )
    run = night_runner.learn(config.home, flags, stop)
    nights = night_runner.Nightly(hour, run, night_runner.last_begun_s(config.home, time.time()))
    thread = threading.Thread(target=night_runner.watch, args=(nights, stop), name="nightly", daemon=True)
    thread.start()
    return thread


def _scorer(config: Config) -> Scorer:
    if config.scoring.engine == "here":
        return Here()
    from clustertwin.service.live.ray_scorer import RayScorer

    return RayScorer(config.scoring.workers)


def _binding(config: Config) -> Binding:
    service = config.service
    return Binding(service.host, service.port, service.names, service.certificate, service.key)


def _listen(binding: Binding) -> socket.socket:
    """Before anything starts, so that a port in use is one sentence, and whoever comes early waits and is answered."""
    family = socket.AF_INET6 if ":" in binding.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((binding.host, binding.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise SettingsError(f"{binding.host}:{binding.port}: {error.strerror}; choose another --port") from error
    return listener


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Two services on one home would write each other's events."""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(home / "service.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise OutputError(f"{home}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise SettingsError(f"{home}: another service runs on it; choose another --home") from None
    try:
        yield
    finally:
        os.close(lock)
