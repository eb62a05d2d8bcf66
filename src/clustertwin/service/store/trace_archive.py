"""Archived traces: nodes and a time range -> their traces, from the recording or from Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from clustertwin.core.errors import NoSamples
from clustertwin.core.traces import Trace
from clustertwin.telemetry.ingest.dialects import DIALECTS
from clustertwin.telemetry.ingest.sources import traces
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
from clustertwin.telemetry.recording import Recording


class Past(Protocol):
    name: str  # for messages, such as "the recording"

    def traces(self, nodes: Sequence[str], start_s: int, end_s: int) -> list[Trace]:
        """One trace for each of these nodes that has data; a TwinError if the archive cannot be read."""
        ...

    def recording(self) -> Recording | None:
        """The recording, if the archive is one: it also has the jobs that have ended."""
        ...


class RecordedPast:
    """A recording. It is opened again for each request, because the service may still be writing it."""

    name = "the recording"

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def traces(self, nodes: Sequence[str], start_s: int, end_s: int) -> list[Trace]:
        recording = self.recording()
        return [recording.trace(node, start_s, end_s) for node in nodes if node in recording.nodes]

    def recording(self) -> Recording:
        return Recording.open(self.directory)


class PrometheusPast:
    """A Prometheus server. Only the requested nodes are queried."""

    def __init__(self, endpoint: Endpoint, matchers: str = "") -> None:
        self.endpoint, self.matchers, self.name = endpoint, matchers, f"Prometheus {endpoint.url}"

    def traces(self, nodes: Sequence[str], start_s: int, end_s: int) -> list[Trace]:
        answers: list[Trace] = []
        for node in nodes:
            only = ",".join([*([self.matchers] if self.matchers else []), self._instance(node, start_s, end_s)])
            try:
                # A query for one node may return another name than a query for all: two exporters on one host.
                answers += [replace(trace, node=node) for trace in traces(self._only(only), start_s, end_s)[0][:1]]
            except NoSamples:
                continue
        return answers

    def recording(self) -> None:
        return None

    def _instance(self, node: str, start_s: int, end_s: int) -> str:
        """A matcher for the scraped address of a node: by the name the node reports, else by its host name."""
        server = self._only(self.matchers)
        for dialect in DIALECTS.values():
            info = server.raw(dialect.info, start_s, end_s, ((dialect.info_label, _quoted(node)),))
            for series in info:
                return f'instance="{_quoted(series.labels.get("instance", ""))}"'
        return f'instance=~"{_quoted(_literally(node))}(:[0-9]+)?"'

    def _only(self, matchers: str) -> Prometheus:
        return Prometheus(self.endpoint, matchers=matchers)


def _literally(text: str) -> str:
    """A regular expression that matches exactly this text, in the syntax of Prometheus."""
    return "".join(f"\\{letter}" if letter in r"\.+*?()|[]{}^$" else letter for letter in text)


def _quoted(text: str) -> str:
    """Escape text for a PromQL string."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
