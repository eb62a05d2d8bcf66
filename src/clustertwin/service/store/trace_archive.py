"""Seconds that are no longer in memory: nodes and a time -> their traces, from the recording or from Prometheus."""

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
    name: str  # in a person's words

    def traces(self, nodes: Sequence[str], start_s: int, end_s: int) -> list[Trace]:
        """One trace for each of these nodes of which anything is kept; a TwinError where nobody can tell."""
        ...

    def recording(self) -> Recording | None:
        """The recording, where it is one: it knows of jobs that are over."""
        ...


class RecordedPast:
    """A recording, perhaps one that is still being written: it is opened anew for each question."""

    name = "the recording"

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def traces(self, nodes: Sequence[str], start_s: int, end_s: int) -> list[Trace]:
        recording = self.recording()
        return [recording.trace(node, start_s, end_s) for node in nodes if node in recording.nodes]

    def recording(self) -> Recording:
        return Recording.open(self.directory)


class PrometheusPast:
    """A server that keeps what it scraped; only the nodes in question are asked for."""

    def __init__(self, endpoint: Endpoint, matchers: str = "") -> None:
        self.endpoint, self.matchers, self.name = endpoint, matchers, f"Prometheus {endpoint.url}"

    def traces(self, nodes: Sequence[str], start_s: int, end_s: int) -> list[Trace]:
        found: list[Trace] = []
        for node in nodes:
            only = ",".join([*([self.matchers] if self.matchers else []), self._instance(node, start_s, end_s)])
            try:
                # Asked for alone, a node may go by another name than among all: two exporters of one host.
                found += [replace(one, node=node) for one in traces(self._only(only), start_s, end_s)[0][:1]]
            except NoSamples:
                continue
        return found

    def recording(self) -> None:
        return None

    def _instance(self, node: str, start_s: int, end_s: int) -> str:
        """A matcher for the scraped address of a node: as the node names itself, else by its host."""
        server = self._only(self.matchers)
        for dialect in DIALECTS.values():
            named = server.raw(dialect.info, start_s, end_s, ((dialect.info_label, _quoted(node)),))
            for series in named:
                return f'instance="{_quoted(series.labels.get("instance", ""))}"'
        return f'instance=~"{_quoted(_literally(node))}(:[0-9]+)?"'

    def _only(self, matchers: str) -> Prometheus:
        return Prometheus(self.endpoint, matchers=matchers)


def _literally(text: str) -> str:
    """As a regular expression that matches this text alone, in the server's dialect."""
    return "".join(f"\\{letter}" if letter in r"\.+*?()|[]{}^$" else letter for letter in text)


def _quoted(text: str) -> str:
    """The inside of a PromQL string."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
