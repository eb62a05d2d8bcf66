"""Run the service: a configuration -> the loop in a thread and a web server, until SIGINT or SIGTERM."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustertwin.core import files
from clustertwin.core.errors import OutputError, SettingsError, describe
from clustertwin.core.extras import require
from clustertwin.core.foreign_files import expanded
from clustertwin.service.config import ServiceConfig
from clustertwin.service.live.beside.recording_thread import RecordingThread, TraceRecorder
from clustertwin.service.live.beside.side_work import SideThreads, fence_of, repeat
from clustertwin.service.live.champion_loading import Loading, RepeatedLoading
from clustertwin.service.live.feeds.contract import Feed
from clustertwin.service.live.feeds.source_setup import (
    SourceSettings,
    archive_of,
    live_feed,
    receiver_of,
    replay_feed,
    write_source,
)
from clustertwin.service.live.live_recorder import LiveRecorder
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.members.member_board import MemberBoard
from clustertwin.service.live.queue.start_board import StartBoard
from clustertwin.service.live.scorer import InProcessScorer, Scorer
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.live.turn_failures import LoopFailed
from clustertwin.service.outgoing import systemd_notify
from clustertwin.service.store.database_readers import reading_as
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.history_limits import apply_limits
from clustertwin.service.store.home_format import create_home
from clustertwin.service.store.tokens import Tokens
from clustertwin.service.web.binding import Binding, check_binding
from clustertwin.telemetry.recording.trace_archive import GrowingRecordingArchive

if TYPE_CHECKING:
    from clustertwin.service.web.connections import BoundedListener
    from clustertwin.telemetry.learning.champions.handover import Handover


#: Between two looks at the limits of the history.
LIMIT_HISTORY_S = 3600.0
#: The journals of a cluster are synced this often. With the seconds that are collected first, a kill loses a minute.
CLUSTER_FLUSH_S = 50


def state_home(home: Path, replayed: bool) -> Path:
    """Where events and verdicts are stored. A replay has its own directory and changes nothing in the home itself."""
    return home / "replay" if replayed else home


def run(
    config: ServiceConfig, replay: tuple[Path, float] | None = None, ready: Callable[[Binding], None] = print
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` is called with the address when the service listens."""
    for package in ("fastapi", "uvicorn"):
        require(package, "service")
    create_home(config.home)
    home = state_home(config.home, replay is not None)
    source = config.source.settings()
    feed = replay_feed(*replay) if replay else live_feed(source, time.time())
    with _exclusive(home):
        if replay is not None:
            for file in home.glob("state.sqlite*"):
                file.unlink()  # a replay starts without the events of the last one
        store = Store(home / "state.sqlite")
        store.database.check()
        binding = config.service.settings()
        check_binding(binding, Tokens(store.database))
        from clustertwin.service.web import connections

        listener = _listen(binding, connections.BoundedListener)
        listener.most = connections.most_connections()
        binding = replace(binding, port=listener.getsockname()[1])
        state = ServiceState(home, store, feed.source)
        state.replayed = replay is not None
        state.receiver = receiver_of(feed, source)
        if state.receiver is not None:
            state.receiver.limit_threads(config.scoring.most_threads)
        if replay is None:
            _remember_source(state, source)
        state.may_be_in_shadow = config.learning.shadow and not state.replayed
        state.past = GrowingRecordingArchive(replay[0]) if replay else archive_of(source, config.recording_directory)
        stop, listening = threading.Event(), threading.Event()
        beside = SideThreads(stop)
        _limit_history(config, state, beside)
        _notify(config, state, beside)
        if replay is None:
            _hand(config, state, beside)
            _forecast_starts(config, state, beside)
            _join_clusters(config, state, beside)
            _follow_champion(config, state, beside, listening)
            _nightly(config, state, beside)
        # After every setting was checked: the thread that loads the detector would keep a process that cannot start.
        loop = _loop(config, state, feed, _champion(config.home, listening), live=replay is None)
        # Start the loop first: it reads its first seconds while the pages are imported.
        worker = _LoopThread(loop, stop)
        worker.start()
        server = _server(state, binding, listener)
        state.ending = lambda: server.should_exit
        worker.stop_on_failure(server)
        # uvicorn raises the signal again after it has stopped. Without a handler, SIGTERM would end the process before
        # the loop has written its events.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
        ready(binding)
        systemd_notify.notify("READY=1")
        listening.set()
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:
            pass  # Ctrl-C is how a person stops the service; uvicorn raises it again after it has stopped
        finally:
            stop.set()
            worker.join(timeout=10)
            beside.join()
            store.close()
        if worker.error is not None:
            raise LoopFailed(f"the service stops: {describe(worker.error)}")


def _remember_source(state: ServiceState, source: SourceSettings) -> None:
    """Let `twin job` find the data of a cluster. On a full disk the service starts without it, and watches."""
    try:
        write_source(state.home, source)
    except OutputError as error:
        state.side_problems["source"] = f"`twin job` does not know where the data comes from: {error}"


def _server(state: ServiceState, binding: Binding, listener: BoundedListener) -> Any:
    """The web server of the pages, the API and the metrics, with deadlines for its clients."""
    uvicorn: Any = require("uvicorn", "service")
    from clustertwin.service.application import create_app
    from clustertwin.service.web import connections

    server = uvicorn.Server(
        uvicorn.Config(
            create_app(state, binding),
            http=connections.bounded_protocol(listener),
            ws="none",
            h11_max_incomplete_event_size=connections.MAX_HEAD_BYTES,
            log_level="warning",
            server_header=False,
            proxy_headers=False,  # else a local client could name any address as its own
            timeout_graceful_shutdown=2,
            ssl_certfile=binding.certificate or None,
            ssl_keyfile=binding.key or None,
        )
    )
    connections.limit_logs()  # after uvicorn has set up its loggers
    return server


class _LoopThread(threading.Thread):
    """The thread of the loop. If the loop fails, the web server is stopped, so that the process can end."""

    def __init__(self, loop: Loop, stop: threading.Event) -> None:
        super().__init__(name="loop", daemon=True)
        self.error: BaseException | None = None
        self._loop, self._stop_event = loop, stop
        self._server: Any = None

    def run(self) -> None:
        try:
            with reading_as("loop"):
                self._loop.run(self._stop_event)
        except BaseException as error:
            self.error = error
            if self._server is not None:
                self._server.should_exit = True

    def stop_on_failure(self, server: Any) -> None:
        self._server = server
        if self.error is not None:
            server.should_exit = True


def _loop(config: ServiceConfig, state: ServiceState, feed: Feed, champion: Loading, live: bool) -> Loop:
    recorder = _recorder(config) if live else None
    return Loop(state, feed, champion, config.loop_settings(), recorder, _scorer(config), beat=_beat)


def _recorder(config: ServiceConfig) -> TraceRecorder | None:
    """The recorder of this host, on the loop's thread, or that of a cluster, on a thread of its own."""
    directory, limits = config.recording_directory, config.recording.limits()
    if directory is None:
        return None
    if config.source.kind == "host":
        return LiveRecorder(directory, *limits)
    return RecordingThread(LiveRecorder(directory, *limits, flush_s=CLUSTER_FLUSH_S))


def _beat() -> None:
    systemd_notify.notify("WATCHDOG=1")


def _champion(home: Path, listening: threading.Event) -> Loading:
    """Load the detector in a thread: importing torch takes seconds, and the first readings must not wait.

    The thread waits until the pages are imported. Both at once would delay the pages.
    """

    def load() -> Handover:
        listening.wait(timeout=10)
        from clustertwin.telemetry.detection.bundled import bundled
        from clustertwin.telemetry.learning.champions.handover import Handover

        return Handover(home, bundled())

    return RepeatedLoading(load)


def _limit_history(config: ServiceConfig, state: ServiceState, beside: SideThreads) -> None:
    """Delete history that is over its limits, now and once an hour."""
    limits, fence = config.retention.settings(), fence_of(state.side_problems, "limits of the history")

    def limit() -> None:
        apply_limits(state.store.database, limits, time.time())

    beside.start("history", lambda: repeat(limit, beside.stop, LIMIT_HISTORY_S, fence, at_once=True))


def _notify(config: ServiceConfig, state: ServiceState, beside: SideThreads) -> None:
    """Start sending notifications, if there are addresses."""
    settings = config.notify.settings()
    if not settings.urls:
        return
    from clustertwin.service.outgoing import notifications

    for url in settings.urls:
        notifications.sender(url)  # an invalid URL is an error at start
    beside.start("notify", lambda: notifications.watch(state, settings, beside.stop))


def _hand(config: ServiceConfig, state: ServiceState, beside: SideThreads) -> None:
    """Start taking evidence and acting by policy, if it is configured. An invalid policy is an error at start."""
    if not config.hand.on:
        return
    from clustertwin.service.act import evidence_sources
    from clustertwin.service.act.hand import Hand, watch
    from clustertwin.service.act.policy import read_policy
    from clustertwin.service.outgoing.action_notices import queue_notices

    section, settings = config.hand, config.hand.settings()
    read_policy(expanded(settings.policy) if settings.policy else None)
    take: evidence_sources.TakeEvidence = evidence_sources.take_on_this_host
    if section.helper:
        take = evidence_sources.from_helpers(
            evidence_sources.HelperSettings(
                section.helper, section.helper_username, section.helper_password_file, section.helper_ca_file
            )
        )
    post = None
    if section.owner_url:
        from clustertwin.service.outgoing.owner_messages import OwnerPost, watch_owners

        post = OwnerPost(state.home, section.owner_url, config.notify.link, section.contact)
        beside.start("owners", partial(watch_owners, post, state, beside.stop))
    deliver = queue_notices(state.home, config.notify.settings(), post)
    hand = Hand(state.home, state.store, settings, take, section.runner(), deliver)
    beside.start("hand", lambda: watch(hand, state, beside.stop))


def _forecast_starts(config: ServiceConfig, state: ServiceState, beside: SideThreads) -> None:
    """Start forecasting when waiting jobs start, if a site or a past is configured. A missing file is an error."""
    settings = config.queue.settings()
    if not settings.on:
        return
    from clustertwin.service.live.queue import start_watch
    from clustertwin.service.live.queue.change_desk import ChangeDesk

    for key, text in (("site", settings.site), ("past", settings.past)):
        if text and not expanded(text).exists():
            raise SettingsError(f"queue.{key}: {text} does not exist")

    def publish(board: StartBoard) -> None:
        state.starts = board

    if settings.site:
        state.changes = ChangeDesk(settings)
    starts = start_watch.StartWatch(settings, publish, health=lambda: state.known_health)
    publish(starts.board)
    fence = fence_of(state.side_problems, "forecast of starts")
    beside.start("starts", lambda: repeat(starts.turn, beside.stop, settings.every_s, fence, at_once=True))


def _join_clusters(config: ServiceConfig, state: ServiceState, beside: SideThreads) -> None:
    """Start asking the services of other clusters, if there are any. A missing token file is an error at start."""
    settings = config.members()
    if not settings:
        return
    from clustertwin.service.live.members import member_watch

    def publish(board: MemberBoard) -> None:
        state.members = board

    members = member_watch.MemberWatch(settings, publish)
    fence = fence_of(state.side_problems, "joined clusters")
    beside.start("clusters", lambda: member_watch.watch(members, beside.stop, fence))


def _follow_champion(
    config: ServiceConfig, state: ServiceState, beside: SideThreads, listening: threading.Event
) -> None:
    """Start taking the champion of a central service, if there is one. A missing token file is an error at start."""
    section = config.learning
    if not section.champion_url:
        return
    from clustertwin.service.live.members import central_champion

    secrets = SourceSettings(token_file=section.champion_token_file, ca_file=section.champion_ca_file)
    champion = central_champion.CentralChampion(secrets.endpoint(section.champion_url), config.home)
    fence = fence_of(state.side_problems, "central champion")

    def follow() -> None:
        listening.wait(timeout=10)  # its imports would delay the pages
        with closing(champion):
            repeat(champion.turn, beside.stop, central_champion.EVERY_S, fence, at_once=True)

    beside.start("champion", follow)


def _nightly(config: ServiceConfig, state: ServiceState, beside: SideThreads) -> None:
    """Start nightly learning, if it is configured. A source without an archive is an error at start."""
    hour, source = config.learning.hour, config.source
    if hour is None:
        return
    config.check_nights()
    from clustertwin.service.live.beside import night_runner

    flags: list[str] = []
    if source.kind == "prometheus":
        options = {
            "--prometheus": source.url,
            "--match": source.match,
            "--username": source.username,
            "--password-file": source.password_file,
            "--token-file": source.token_file,
            "--ca-file": source.ca_file,
        }
        flags = [word for option, value in options.items() if value for word in (option, value)]
    run = night_runner.learn(config.home, [*flags, *config.learning.flags], beside.stop, config.retention.log_bytes)
    nights = night_runner.NightlySchedule(hour, run, night_runner.last_begun_s(config.home, time.time()))
    fence = fence_of(state.side_problems, "nightly learning")
    # A night that runs is a process, which ends a little later than the signal to it.
    beside.start("nightly", lambda: night_runner.watch(nights, beside.stop, fence=fence), ends_within_s=10.0)


def _scorer(config: ServiceConfig) -> Scorer:
    if config.scoring.engine == "here":
        return InProcessScorer()
    from clustertwin.service.live.ray_scorer import RayScorer

    return RayScorer(config.scoring.workers)


def _listen(binding: Binding, kind: type[BoundedListener]) -> BoundedListener:
    """Listen before anything starts: a port in use is an error at once, and early clients wait for their answer."""
    family = socket.AF_INET6 if ":" in binding.host else socket.AF_INET
    listener = kind(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((binding.host, binding.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise SettingsError(f"{binding.host}:{binding.port}: {error.strerror}; choose another --port") from error
    except (TypeError, UnicodeError) as error:  # a label of more than 63 characters
        listener.close()
        raise SettingsError(f"service.host: {binding.host[:80]!r} is not a host name") from error
    return listener


@contextmanager
def _exclusive(home: Path) -> Iterator[None]:
    """Lock the home: two services would overwrite each other's events."""
    with files.reporting(home):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(home / "service.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise SettingsError(f"{home}: another service uses this home; choose another --home") from None
    try:
        yield
    finally:
        os.close(lock)
