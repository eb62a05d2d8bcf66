"""Set up the configured source: its settings -> the feed of its seconds, and the archive of older ones."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from clustertwin.core import files
from clustertwin.core.errors import InputError, NoSamples, SettingsError
from clustertwin.service.live.feeds.job_names import JobNames, NamedFeed, NameSource, owners_in_prometheus, slurm_source
from clustertwin.service.live.feeds.trace_feeds import Feed, LiveFeed, PrometheusFeed, ReplayFeed
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.recording.trace_archive import GrowingRecordingArchive, PrometheusArchive, TraceArchive

#: The longest answer of an exporter: its whole ring, of ten minutes and 1,000 threads.
EXPORTER_BYTES = 64 << 20

SOURCE_FILE = "source.json"
SourceKind = Literal["host", "prometheus", "exporters"]


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Where the data comes from."""

    kind: SourceKind = "host"
    url: str = ""  # of Prometheus or VictoriaMetrics
    urls: tuple[str, ...] = ()  # of exporters
    match: str = ""  # PromQL matchers that select nodes: cluster="a",instance=~"n[0-9]+:.*"
    username: str = ""
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""

    def endpoint(self, url: str, deadline_s: float = 30.0) -> Endpoint:
        password, token = _secret(self.password_file), _secret(self.token_file)
        return Endpoint(url, self.username, password, token, self.ca_file, deadline_s=deadline_s)


def live_feed(source: SourceSettings, now_s: float) -> Feed:
    """The feed of a live source."""
    if source.kind == "host":
        from clustertwin.telemetry.ingest.sources.local_host import Host

        host = Host()
        return _named(LiveFeed("this host", [(host.node, host)]))
    if source.kind == "exporters":
        from clustertwin.service.live.feeds.exporter_feed import ExporterFeed, raise_file_limit

        raise_file_limit(len(source.urls))
        ends = [source.endpoint(url, deadline_s=5.0) for url in source.urls]
        return _named(ExporterFeed([replace(end, most_bytes=EXPORTER_BYTES) for end in ends]))
    from clustertwin.telemetry.ingest.sources.prometheus import Prometheus

    # Ask once, so that a wrong address is an error at start. A server that goes down later is waited for.
    with suppress(NoSamples):
        Prometheus(source.endpoint(source.url, deadline_s=5.0), matchers=source.match).counters(now_s - 5, now_s)
    history = Prometheus(source.endpoint(source.url), matchers=source.match, node_channels=True)
    names = Prometheus(source.endpoint(source.url, deadline_s=10.0), matchers=source.match)
    return _named(PrometheusFeed(f"prometheus {source.url}", history), owners_in_prometheus(names))


def _named(feed: Feed, *sources: NameSource) -> Feed:
    """The feed with the owners and names of its jobs, if anything here knows them."""
    every = [*slurm_source(), *sources]
    return NamedFeed(feed, JobNames(every)) if every else feed


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
    """The archive of seconds that are no longer in memory; None for exporters, and for a host without a recording."""
    if source.kind == "prometheus":
        return PrometheusArchive(source.endpoint(source.url, deadline_s=10.0), source.match)
    return GrowingRecordingArchive(recording) if recording else None


def _secret(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
