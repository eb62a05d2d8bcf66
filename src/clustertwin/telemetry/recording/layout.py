"""The layout of a recording on disk: description <-> zarr.json documents; where recordings are.

DIR/zarr.json         a Zarr v3 group; its attributes hold nodes, channels, campaign, split, settings
DIR/labels.jsonl      the jobs and their labels
DIR/lock              held by the one writer
DIR/NODE/zarr.json    the threads of a node: a Zarr v3 array (cpu, channel, time) of bytes
DIR/NODE/c.0.0.K      chunk K: one hour of all threads
DIR/NODE/journal      the seconds that are not in a chunk yet
DIR/NODE!S/           the channels of the node itself, in the same form: an array (channel, 1, time)
DIR/NODE!jobsS/       the channels of its jobs: an array (slot and channel, 1, time)
DIR/jobs.jsonl        which job a slot holds, from which second on

S numbers the segments of node channels. A writer with other node channels than the last segment begins a new one;
older segments stay as they are, and readers join them by the names of the channels.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from clustertwin.core.channels import Channel, Schema
from clustertwin.core.errors import RecordingError, SettingsError
from clustertwin.core.foreign_files import LATEST_S, read_recorded, read_regular
from clustertwin.telemetry.recording.logs.job_slots import SLOTS
from clustertwin.telemetry.recording.ticks import INVALID, Ticks

DOCUMENT, LABELS, LOCK, JOURNAL = "zarr.json", "labels.jsonl", "lock", "journal"
JOB_SLOTS = "jobs.jsonl"
LONGEST_DIRECTORY = 230  # characters; a file system allows 255, and a segment is added
VERSION = 2

#: Budgets of a document, and of the bytes of one chunk in memory: 500 threads need 5 MB for an hour.
MOST_DOCUMENT_BYTES, MOST_CHUNK_BYTES = 1 << 26, 1 << 28

#: Each row of an array of node channels is one channel: a single bounded ratio.
RATIO = Schema((Channel("ratio"),))


@dataclass(frozen=True, slots=True)
class RecordingSettings:
    """The settings of a recording; they are saved with it."""

    interval_s: int = 1
    chunk_s: int = 3600  # longer chunks compress better, shorter ones are faster to read
    flush_s: int = 10  # how much a crash may lose
    level: int = 1  # of zstd; higher levels gain almost nothing on ratios and are slower
    keep_s: int | None = None  # older chunks are deleted; None: kept
    keep_bytes: int | None = None  # above this total size the oldest chunks are deleted; None: kept

    def __post_init__(self) -> None:
        seconds = (self.interval_s, self.chunk_s, self.flush_s)
        limits = tuple(value for value in (self.keep_s, self.keep_bytes) if value is not None)
        if not all(type(value) is int for value in (*seconds, *limits, self.level)):
            raise SettingsError("the settings of a recording must be whole numbers")
        if min(seconds) < 1:
            raise SettingsError("interval_s, chunk_s and flush_s of a recording must be whole seconds of at least 1")
        if self.chunk_s % self.interval_s:
            raise SettingsError(f"chunk_s {self.chunk_s} is not a multiple of interval_s {self.interval_s}")


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """One array of a recording: the threads of a node, or the channels of the node itself."""

    node: str
    directory: str
    rows: tuple[int, ...]  # cpus; of node channels their positions
    schema: Schema  # of each row
    settings: RecordingSettings
    node_channels: tuple[str, ...] = ()  # the name of each row; empty: rows are threads

    @property
    def shape(self) -> tuple[int, int, int]:
        """(row, stored, time) of a chunk."""
        return len(self.rows), len(Ticks.of(self.schema).stored), self.settings.chunk_s // self.settings.interval_s


@dataclass(frozen=True, slots=True)
class RecordingDescription:
    """Everything about a recording except its seconds."""

    nodes: dict[str, tuple[int, ...]]
    schema: Schema
    campaign: str
    split: str
    settings: RecordingSettings
    node_segments: tuple[tuple[str, ...], ...] = ()  # names of the node channels, oldest segment first
    job_segments: tuple[tuple[str, ...], ...] = ()  # the same of the channels of jobs

    def threads(self, node: str) -> ArrayLayout:
        return ArrayLayout(node, directory_name(node), self.nodes[node], self.schema, self.settings)

    def node_channels(self, node: str, segment: int) -> ArrayLayout:
        names = self.node_segments[segment]
        directory = f"{directory_name(node)}!{segment}"
        return ArrayLayout(node, directory, tuple(range(len(names))), RATIO, self.settings, names)

    def job_channels(self, node: str, segment: int) -> ArrayLayout:
        """The rows of slot 0, then those of slot 1, and so on."""
        names = tuple(f"{slot}/{name}" for slot in range(SLOTS) for name in self.job_segments[segment])
        directory = f"{directory_name(node)}!jobs{segment}"
        return ArrayLayout(node, directory, tuple(range(len(names))), RATIO, self.settings, names)

    def arrays(self, node: str) -> list[ArrayLayout]:
        """All arrays of a node, those of older segments too."""
        return [
            self.threads(node),
            *(self.node_channels(node, i) for i in range(len(self.node_segments))),
            *(self.job_channels(node, i) for i in range(len(self.job_segments))),
        ]


def group_document(description: RecordingDescription) -> bytes:
    """DIR/zarr.json"""
    nodes = {node: {"directory": directory_name(node), "cpus": cpus} for node, cpus in description.nodes.items()}
    ours: dict[str, Any] = {
        "version": VERSION,
        "campaign": description.campaign,
        "split": description.split,
        "nodes": nodes,
        "schema": description.schema.to_json(),
        "settings": asdict(description.settings),
    }
    if description.node_segments:
        ours["node_channels"] = description.node_segments
    if description.job_segments:
        ours["job_channels"] = description.job_segments
    return _dump({"zarr_format": 3, "node_type": "group", "attributes": {"clustertwin": ours}})


def parse_group(data: bytes, where: object) -> RecordingDescription:
    """The content of DIR/zarr.json."""
    try:
        ours = orjson.loads(data)["attributes"]["clustertwin"]
        version = ours["version"]
        if version != VERSION:
            raise RecordingError(where, f"the format is version {version}; this clustertwin reads version {VERSION}")
        description = RecordingDescription(
            nodes={node: tuple(row["cpus"]) for node, row in ours["nodes"].items()},
            schema=Schema.from_json(ours["schema"]),
            campaign=ours["campaign"],
            split=ours["split"],
            settings=RecordingSettings(**ours["settings"]),
            node_segments=tuple(tuple(names) for names in ours.get("node_channels", ())),
            job_segments=tuple(tuple(names) for names in ours.get("job_channels", ())),
        )
        _check(description)
        return description
    except SettingsError as error:
        raise RecordingError(where, str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordingError(where, f"not the document of a recording ({error})") from error


def _check(description: RecordingDescription) -> None:
    """Raise `ValueError` for values of other types, and for chunks that need more memory than any recording."""
    if not description.nodes:
        raise ValueError("no nodes")
    for node in description.nodes:
        check_node(description, node)
    segments = (*description.node_segments, *description.job_segments)
    if any(not names or len(set(names)) < len(names) for names in segments):
        raise ValueError("a segment has no channels, or one of them twice")
    if not all(type(text) is str for text in (description.campaign, description.split, *sum(segments, ()))):
        raise ValueError("campaign, split and the names of channels must be texts")
    first = next(iter(description.nodes))
    for array in description.arrays(first):  # the segments of all nodes have the same shape
        _check_chunk(array)


def check_node(description: RecordingDescription, node: str) -> None:
    """Raise `ValueError` if the threads of a node are not distinct numbers, or if there are too many for a chunk."""
    cpus = description.nodes[node]
    if not cpus or len(set(cpus)) < len(cpus) or not all(type(cpu) is int and 0 <= cpu < 1 << 20 for cpu in cpus):
        raise ValueError(f"the cpus of node {node[:80]!r} are not distinct numbers of cpus")
    _check_chunk(description.threads(node))


def _check_chunk(array: ArrayLayout) -> None:
    if not array.shape[1] or math.prod(array.shape) > MOST_CHUNK_BYTES:
        raise ValueError(f"a chunk of {array.shape} values; the limit is {MOST_CHUNK_BYTES:,} bytes")


def check_directory(path: Path) -> None:
    """Raise if a path is no directory, and say whether something else is there."""
    if not path.is_dir():
        raise RecordingError(path, "a file, not a directory" if path.exists() else "no such directory")


def read_group(directory: Path) -> RecordingDescription:
    path = directory / DOCUMENT
    try:
        return parse_group(read_regular(path, MOST_DOCUMENT_BYTES), path)
    except (FileNotFoundError, NotADirectoryError):
        check_directory(directory)
        raise RecordingError(directory, f"not a recording: it has no {DOCUMENT}{_below(directory)}") from None
    except OSError as error:
        raise RecordingError(path, f"cannot be read: {error.strerror}") from error


def array_document(array: ArrayLayout, origin_s: int, chunks: int) -> bytes:
    """DIR/NODE/zarr.json: `chunks` chunks from `origin_s` on. A chunk without a file reads as invalid."""
    rows, stored, samples = array.shape
    inner = [
        {"name": "bytes"},
        {"name": "zstd", "configuration": {"level": array.settings.level, "checksum": True}},
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
            "shape": [rows, stored, chunks * samples],
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [rows, stored, samples]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": INVALID,
            "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
            "dimension_names": ["channel", "value", "time"] if array.node_channels else ["cpu", "channel", "time"],
            "attributes": {
                "node": array.node,
                **_axes(array),
                "origin_s": origin_s,
                "interval_s": array.settings.interval_s,
            },
        }
    )


def _axes(array: ArrayLayout) -> dict[str, Any]:
    """The attributes that name rows and channels; ratio = byte / steps."""
    ticks = Ticks.of(array.schema)
    if array.node_channels:
        return {"channel": array.node_channels, "steps": ticks.steps}
    names = array.schema.names
    return {
        "cpu": array.rows,
        "channel": [names[i] for i in ticks.stored],
        "steps": ticks.steps,
        "rest": {names[rest]: [names[ticks.stored[row]] for row in rows] for rest, rows in ticks.rests},
    }


def read_origin(directory: Path) -> int | None:
    """The epoch second of the first column of an array; None before the first append."""
    path = directory / DOCUMENT
    document = read_recorded(path, MOST_DOCUMENT_BYTES)
    if document is None:
        return None
    try:
        origin_s = int(orjson.loads(document)["attributes"]["origin_s"])
        if abs(origin_s) > LATEST_S:
            raise ValueError("origin_s is not a second")
        return origin_s
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RecordingError(path, "not the document of an array of a recording") from error


def directory_name(node: str) -> str:
    """A file name for any node name.

    >>> directory_name("gpu/1"), directory_name(".")
    ('gpu%2F1', '%2E')
    """
    name = quote(node, safe="@:+ ")
    if name.startswith(".") or name in (DOCUMENT, LABELS, LOCK, JOB_SLOTS):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) > LONGEST_DIRECTORY:  # "%-" is in no other name
        return f"{name[: LONGEST_DIRECTORY - 18]}%-{hashlib.sha256(node.encode()).hexdigest()[:16]}"
    return name


def chunk_name(number: int) -> str:
    return f"c.0.0.{number}"


def chunk_sizes(directory: Path) -> dict[int, int]:
    """Chunk number -> bytes, for the chunks of an array."""
    try:
        with os.scandir(directory) as entries:
            chunks = [entry for entry in entries if entry.name.startswith("c.0.0.")]
        sizes = {}
        for entry in chunks:
            with suppress(FileNotFoundError):  # it has just expired; the others have not
                sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RecordingError(directory, f"cannot be read: {error.strerror}") from error
    # A number of more digits lies beyond `LATEST_S`.
    return {int(name[6:]): size for name, size in sorted(sizes.items()) if name[6:].isdecimal() and len(name) <= 17}


def find(root: Path) -> list[Path]:
    """The recordings at or below a directory, in the order of their paths."""
    check_directory(root)
    recordings = []
    for path, below, files in os.walk(root):
        if DOCUMENT in files and _is_ours(Path(path) / DOCUMENT):
            recordings.append(Path(path))
            below.clear()
        below.sort()
    return recordings


def _below(directory: Path) -> str:
    """A hint for the directory of a campaign: the recordings in it."""
    try:
        inner = sorted(path.parent for path in directory.glob(f"*/{DOCUMENT}") if _is_ours(path))
    except OSError:
        return ""
    if not inner:
        return ""
    return (
        f"; it contains {len(inner)} recordings, use one of them: "
        + ", ".join(map(str, inner[:3]))
        + (" …" if len(inner) > 3 else "")
    )


def _is_ours(path: Path) -> bool:
    try:
        return b'"clustertwin"' in read_regular(path, MOST_DOCUMENT_BYTES)
    except OSError:
        return False


def _dump(document: Mapping[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)
