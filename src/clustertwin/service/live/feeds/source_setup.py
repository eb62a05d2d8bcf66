"""Set up the configured source: its settings -> the feed of its seconds, and the archive of older ones."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clustertwin.core import files
from clustertwin.core.errors import InputError, NoSamples, SettingsError
from clustertwin.core.extras import require
from clustertwin.core.foreign_files import read_secret
from clustertwin.service.live.feeds.contract import Feed
from clustertwin.service.live.feeds.job_names import NamedFeed, named, owners_in_prometheus
from clustertwin.service.live.feeds.live_feed import LiveFeed
from clustertwin.service.live.feeds.prometheus_feed import PrometheusFeed
from clustertwin.service.live.feeds.replay_feed import ReplayFeed
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.recording.trace_archive import GrowingRecordingArchive, PrometheusArchive, TraceArchive

if TYPE_CHECKING:
    from clustertwin.service.live.feeds.remote_write_feed import RemoteWriteFeed

#: The longest answer of an exporter: its whole ring, of ten minutes and 1,000 threads.
EXPORTER_BYTES = 64 << 20

SOURCE_FILE = "source.json"
SourceKind = Literal["host", "prometheus", "exporters", "remote-write"]


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Where the data comes from."""

    kind: SourceKind = "host"
    url: str = ""  # of Prometheus or VictoriaMetrics
    urls: tuple[str, ...] = ()  # of exporters
    shard: str = ""  # of the exporters, only this part: "3/40" is the third of forty
    match: str = ""  # PromQL matchers that select nodes: cluster="a",instance=~"n[0-9]+:.*"
    username: str = ""
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""

    @property
    def shard_urls(self) -> tuple[str, ...]:
        """The exporters of this shard: neighbours in `urls`, because jobs often use neighbouring nodes."""
        if not self.shard:
            return self.urls
        number, count = parse_shard(self.shard)
        size = len(self.urls)
        return self.urls[(number - 1) * size // count : number * size // count]

    def endpoint(self, url: str, deadline_s: float = 30.0) -> Endpoint:
        password, token = (read_secret(path) if path else "" for path in (self.password_file, self.token_file))
        return Endpoint(url, self.username, password, token, self.ca_file, deadline_s=deadline_s)


def parse_shard(text: str) -> tuple[int, int]:
    """`3/40` -> (3, 40); ValueError if it is not one."""
    found = re.fullmatch(r"([1-9]\d{0,4})/([1-9]\d{0,4})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError(f"{text!r} is not a shard such as 3/40")
    return int(found[1]), int(found[2])


def live_feed(source: SourceSettings, now_s: float) -> Feed:
    """The feed of a live source."""
    if source.kind == "host":
        from clustertwin.telemetry.ingest.sources.local_host import Host

        host = Host()
        return named(LiveFeed("this host", [(host.node, host)]))
    if source.kind == "exporters":
        from clustertwin.service.live.feeds.exporter_feed import ExporterFeed, raise_file_limit

        urls = source.shard_urls
        raise_file_limit(len(urls))
        ends = [source.endpoint(url, deadline_s=5.0) for url in urls]
        return named(ExporterFeed([replace(end, most_bytes=EXPORTER_BYTES) for end in ends]))
    if source.kind == "remote-write":
        from clustertwin.service.live.feeds.remote_write_feed import RemoteWriteFeed

        require("cramjam", "remote-write")
        pushed = RemoteWriteFeed()
        pushed.prepare()
        return named(pushed, pushed.owners)
    from clustertwin.telemetry.ingest.sources.prometheus import Prometheus

    # Ask once, so that a wrong address is an error at start. A server that goes down later is waited for.
    with suppress(NoSamples):
        Prometheus(source.endpoint(source.url, deadline_s=5.0), matchers=source.match).counters(now_s - 5, now_s)
    # Every few seconds compressing would cost more than sending. The archive, which reads days, is compressed.
    live = replace(source.endpoint(source.url), compressed=False)
    history = Prometheus(live, matchers=source.match, node_channels=True)
    names = Prometheus(source.endpoint(source.url, deadline_s=10.0), matchers=source.match)
    return named(PrometheusFeed(f"prometheus {source.url}", history), owners_in_prometheus(names))


def receiver_of(feed: Feed, source: SourceSettings) -> RemoteWriteFeed | None:
    """What takes in pushed samples; None if the source is another."""
    if source.kind != "remote-write":
        return None
    from clustertwin.service.live.feeds.remote_write_feed import RemoteWriteFeed

    inner = feed.feed if isinstance(feed, NamedFeed) else feed
    return inner if isinstance(inner, RemoteWriteFeed) else None  # a replay is another feed


def replay_feed(directory: Path, speed: float) -> ReplayFeed:
    """The feed of a recording that is played again."""
    recording = Recording.open(directory)
    if recording.interval_s != 1:
        raise SettingsError(
            f"{directory}: its interval is {recording.interval_s} s; a replay needs a recording of every second"
        )
    if recording.end_s <= recording.start_s:
        raise SettingsError(f"{directory}: the recording is empty")
    return ReplayFeed(recording, speed, most_step_s=max(15.0, speed / 2))


def write_source(home: Path, source: SourceSettings) -> None:
    """Remember where the service of this home reads its data. Secrets stay in their own files."""
    files.write(home / SOURCE_FILE, json.dumps(asdict(source)).encode())


def read_source(home: Path) -> SourceSettings | None:
    """Where the last service of this home read its data; None if no service has run here."""
    try:
        content = json.loads((home / SOURCE_FILE).read_bytes())
        return SourceSettings(**{**content, "urls": tuple(content.get("urls", ()))})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(home / SOURCE_FILE, f"is not a source: {error}; start the service again") from error


def archive_of(source: SourceSettings, recording: Path | None) -> TraceArchive | None:
    """The archive of seconds that are no longer in memory; None if nothing stores the data."""
    if source.kind == "prometheus":
        return PrometheusArchive(source.endpoint(source.url, deadline_s=10.0), source.match)
    return GrowingRecordingArchive(recording) if recording else None
