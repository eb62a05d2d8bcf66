"""What a configuration has us watch: a source -> the feed of its seconds, and where those are kept that left memory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from clustertwin.config import Config
from clustertwin.core.errors import NoSamples, SettingsError
from clustertwin.service.live.feeds import Feed, LiveFeed, PrometheusFeed, ReplayFeed
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.recording.trace_archive import GrowingRecordingArchive, PrometheusArchive, TraceArchive


def live_feed(config: Config, now_s: float) -> Feed:
    """The feed that the configuration asks for."""
    source = config.source
    if source.kind == "host":
        from clustertwin.telemetry.ingest.sources.local_host import Host

        host = Host()
        return LiveFeed("this host", [(host.node, host)])
    if source.kind == "exporters":
        from clustertwin.service.live.exporter_feed import ExporterFeed, make_room

        make_room(len(source.urls))
        return ExporterFeed([_endpoint(config, url, deadline_s=5.0) for url in source.urls])
    from clustertwin.telemetry.ingest.sources.prometheus import Prometheus

    # What is no Prometheus is said at once; one that is down later is waited for.
    with suppress(NoSamples):
        Prometheus(_endpoint(config, source.url, deadline_s=5.0), matchers=source.match).counters(now_s - 5, now_s)
    history = Prometheus(_endpoint(config, source.url), matchers=source.match, node_channels=True)
    return PrometheusFeed(f"prometheus {source.url}", history)


def replay_feed(directory: Path, speed: float) -> ReplayFeed:
    recording = Recording.open(directory)
    if recording.interval_s != 1:
        raise SettingsError(f"{directory}: recorded every {recording.interval_s} s; a replay needs every second")
    if recording.end_s <= recording.start_s:
        raise SettingsError(f"{directory}: an empty recording")
    return ReplayFeed(recording, speed)


def past_of(config: Config) -> TraceArchive | None:
    """Where seconds are kept that have left the loop's memory; with exporters alone, nowhere."""
    source = config.source
    if source.kind == "prometheus":
        return PrometheusArchive(_endpoint(config, source.url, deadline_s=10.0), source.match)
    return GrowingRecordingArchive(config.home / "recording") if source.kind == "host" and config.recording.on else None


def _endpoint(config: Config, url: str, deadline_s: float = 30.0) -> Endpoint:
    source = config.source
    return Endpoint(
        url,
        source.username,
        _secret(source.password_file),
        _secret(source.token_file),
        source.ca_file,
        deadline_s=deadline_s,
    )


def _secret(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
