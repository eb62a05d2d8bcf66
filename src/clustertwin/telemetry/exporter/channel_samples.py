"""Pick what a ring sample keeps of a page: the text of families -> the sample lines that node channels need."""

from __future__ import annotations

from clustertwin.core.channels import NODE, Schema, parse_selector
from clustertwin.telemetry.exporter.text.text_format import parse_series

#: Network devices of containers come and go: the memory of series seen is emptied when it holds this many.
MAX_SERIES = 4096


class ChannelSamples:
    """The series that the node channels are derived from, among those that our exporter writes."""

    def __init__(self, schema: Schema = NODE) -> None:
        self._selectors = [
            parse_selector(text)
            for channel in schema.channels
            if channel.derivation is not None and "twin" in channel.derivation.series
            for operand in channel.derivation.series["twin"]
            for text in operand
        ]
        self._needed: dict[bytes, bool] = {}  # by series, so that each is looked at once

    def pick(self, families: bytes) -> bytes:
        """The lines of these series, as they are."""
        needed, lines = self._needed, []
        if len(needed) > MAX_SERIES:
            needed.clear()
        for line in families.split(b"\n"):
            series = line[: line.rfind(b" ")]
            if series not in needed:
                needed[series] = self._is_needed(series)
            if needed[series]:
                lines.append(line + b"\n")
        return b"".join(lines)

    def _is_needed(self, series: bytes) -> bool:
        if not series or series.startswith(b"#"):
            return False
        name, labels = parse_series(series.decode())
        return any(selector.selects(name, labels) for selector in self._selectors)
