"""How a recording lies on disk: what it is -> zarr.json documents -> what it is; where recordings are.

DIR/zarr.json        a Zarr v3 group; its attributes hold nodes, channels, campaign, split, settings
DIR/labels.jsonl     what ran where
DIR/lock             held by the one writer
DIR/NODE/zarr.json   a Zarr v3 array (cpu, channel, time) of bytes
DIR/NODE/c.0.0.K     its K-th chunk: one hour of all threads
DIR/NODE/journal     the seconds not yet in a chunk
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from clustertwin.core.channels import Schema
from clustertwin.core.errors import RecordingError, SettingsError
from clustertwin.telemetry.recording.ticks import INVALID, Ticks

DOCUMENT, LABELS, LOCK, JOURNAL = "zarr.json", "labels.jsonl", "lock", "journal"
VERSION = 2


@dataclass(frozen=True, slots=True)
class RecordingSettings:
    """What can be chosen about a recording; saved with it."""

    interval_s: int = 1
    chunk_s: int = 3600  # longer compresses better, shorter reads faster
    flush_s: int = 10  # the most that a crash may cost
    level: int = 1  # of zstd; higher ones gain next to nothing on ratios and cost much
    keep_s: int | None = None  # chunks older than this are deleted; None: kept
    keep_bytes: int | None = None  # the oldest chunks go when all together are larger; None: kept

    def __post_init__(self) -> None:
        if min(self.interval_s, self.chunk_s, self.flush_s) < 1:
            raise SettingsError("a recording's interval_s, chunk_s and flush_s are whole seconds from 1 on")
        if self.chunk_s % self.interval_s:
            raise SettingsError(f"chunk_s {self.chunk_s} is no multiple of interval_s {self.interval_s}")


@dataclass(frozen=True, slots=True)
class Description:
    """What a recording is, apart from its seconds."""

    nodes: dict[str, tuple[int, ...]]
    schema: Schema
    campaign: str
    split: str
    settings: RecordingSettings

    @property
    def chunk_samples(self) -> int:
        return self.settings.chunk_s // self.settings.interval_s

    def chunk_shape(self, node: str) -> tuple[int, int, int]:
        """(cpu, stored, time)"""
        return len(self.nodes[node]), len(Ticks.of(self.schema).stored), self.chunk_samples


def group_document(about: Description) -> bytes:
    """DIR/zarr.json"""
    ours = {
        "version": VERSION,
        "campaign": about.campaign,
        "split": about.split,
        "nodes": {node: {"directory": directory_name(node), "cpus": cpus} for node, cpus in about.nodes.items()},
        "schema": about.schema.to_json(),
        "settings": asdict(about.settings),
    }
    return _dump({"zarr_format": 3, "node_type": "group", "attributes": {"clustertwin": ours}})


def parse_group(data: bytes, where: object) -> Description:
    """What DIR/zarr.json says."""
    try:
        ours = orjson.loads(data)["attributes"]["clustertwin"]
        version = ours["version"]
        if version != VERSION:
            raise RecordingError(where, f"a recording of version {version}; this clustertwin reads version {VERSION}")
        return Description(
            nodes={node: tuple(row["cpus"]) for node, row in ours["nodes"].items()},
            schema=Schema.from_json(ours["schema"]),
            campaign=ours["campaign"],
            split=ours["split"],
            settings=RecordingSettings(**ours["settings"]),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise RecordingError(where, "not the document of a recording") from error


def read_group(directory: Path) -> Description:
    path = directory / DOCUMENT
    try:
        return parse_group(path.read_bytes(), path)
    except (FileNotFoundError, NotADirectoryError):
        raise RecordingError(directory, f"no recording here: it has no {DOCUMENT}") from None


def array_document(about: Description, node: str, origin_s: int, chunks: int) -> bytes:
    """DIR/NODE/zarr.json: `chunks` chunks from `origin_s` on; those without a file read as invalid."""
    cpus, stored, samples = about.chunk_shape(node)
    ticks = Ticks.of(about.schema)
    inner = [
        {"name": "bytes"},
        {"name": "zstd", "configuration": {"level": about.settings.level, "checksum": True}},
    ]
    sharding = {
        "chunk_shape": [1, stored, samples],
        "codecs": inner,
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "index_location": "start",
    }
    return _dump(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [cpus, stored, chunks * samples],
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [cpus, stored, samples]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": INVALID,
            "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
            "dimension_names": ["cpu", "channel", "time"],
            "attributes": {
                "node": node,
                "cpu": about.nodes[node],
                "channel": [about.schema.names[i] for i in ticks.stored],
                "steps": ticks.steps,  # ratio = byte / steps
                "rest": {
                    about.schema.names[rest]: [about.schema.names[ticks.stored[r]] for r in rows]
                    for rest, rows in ticks.rests
                },
                "origin_s": origin_s,
                "interval_s": about.settings.interval_s,
            },
        }
    )


def read_origin(directory: Path) -> int | None:
    """The epoch second of a node's first column; None before its first append."""
    path = directory / DOCUMENT
    try:
        return int(orjson.loads(path.read_bytes())["attributes"]["origin_s"])
    except FileNotFoundError:
        return None
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise RecordingError(path, "not the document of a node's array") from error


def directory_name(node: str) -> str:
    """A file name for any node name: `gpu/1` -> `gpu%2F1`."""
    name = quote(node, safe="@:+ ")
    if name.startswith(".") or name in (DOCUMENT, LABELS, LOCK):
        return f"%{ord(name[0]):02X}{name[1:]}"
    return name


def chunk_name(number: int) -> str:
    return f"c.0.0.{number}"


def chunk_sizes(directory: Path) -> dict[int, int]:
    """Chunk number -> bytes, for the chunks a node has."""
    try:
        with os.scandir(directory) as entries:
            found = {entry.name: entry.stat().st_size for entry in entries if entry.name.startswith("c.0.0.")}
    except FileNotFoundError:
        return {}
    return {int(name[6:]): size for name, size in sorted(found.items()) if name[6:].isdecimal()}


def find(root: Path) -> list[Path]:
    """The recordings at or below a directory, in order of their paths."""
    if not root.is_dir():
        raise RecordingError(root, "no such directory")
    found = []
    for path, below, files in os.walk(root):
        if DOCUMENT in files and b'"clustertwin"' in (Path(path) / DOCUMENT).read_bytes():
            found.append(Path(path))
            below.clear()
        below.sort()
    return found


def _dump(document: Mapping[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)
