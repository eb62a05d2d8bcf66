"""Exposition text: known pages, hostile pages, agreement with prometheus_client, and the incremental parser."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from clustertwin.core.channels import NODE
from clustertwin.core.errors import ExpositionError
from clustertwin.telemetry.ingest.counters import MODES, JobCpus
from clustertwin.telemetry.ingest.exposition_parser import ExpositionLimits, MetricSample, parse
from clustertwin.telemetry.ingest.incremental_parser import IncrementalParser
from clustertwin.telemetry.ingest.metrics_page import PageReader
from clustertwin.telemetry.ingest.rates import RateStream

PAGE = rb"""# HELP twin_cpu_seconds_total Seconds, with a \\ and a\nnew line.
# TYPE twin_cpu_seconds_total counter
twin_cpu_seconds_total{cpu="0",mode="user"} 1234e-2
twin_cpu_seconds_total{cpu="0",mode="idle"} 5.5

# just a comment
odd { path = "C:\\dir\n\"x\"" , empty="", } -Inf 1700000000123
up 1
nothing NaN
"""


def test_a_page_on_paper() -> None:
    page = parse(PAGE)
    assert page.samples[:4] == (
        MetricSample("twin_cpu_seconds_total", {"cpu": "0", "mode": "user"}, 12.34),
        MetricSample("twin_cpu_seconds_total", {"cpu": "0", "mode": "idle"}, 5.5),
        MetricSample("odd", {"path": 'C:\\dir\n"x"', "empty": ""}, -math.inf, 1700000000.123),
        MetricSample("up", {}, 1.0),
    )
    assert math.isnan(page.samples[4].value)
    assert page.types == {"twin_cpu_seconds_total": "counter"}
    assert page.helps == {"twin_cpu_seconds_total": "Seconds, with a \\ and a\nnew line."}


def test_the_parts_of_openmetrics_that_exporters_emit_are_read() -> None:
    text = b'# UNIT a seconds\na_total{b="1"} 2.0 1700000000.5 # {trace="x"} 0.5 1699999999.0\n# EOF\n'
    assert parse(text).samples == (MetricSample("a_total", {"b": "1"}, 2.0, 1700000000.5),)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (b"up 1\n9lives 1\n", 2, "does not begin with a metric name"),
        (b"up\n", 1, "up has no value"),
        (b"up one\n", 1, "not a number: 'one'"),
        (b"up 1_000\n", 1, "not a number: '1_000'"),
        (b"up 1 2 3\n", 1, "after the value of up there is '2 3'"),
        (b'a{b="c} 1\n', 1, "the labels of a are not closed"),
        (b"a{b=c} 1\n", 1, "'b=c' is not a label=\"value\""),
        (b'a{b="c" d="e"} 1\n', 1, "is not a label"),
        (b'a{,b="c"} 1\n', 1, "is not a label"),
        (b'a{b="1",b="2"} 1\n', 1, "label b occurs twice"),
        (b'a{b="\\x"} 1\n', 1, "'\\\\x' is not an escape"),
        (b'a{b="1",c="2"} 1\na{c="2",b="1"} 1\n', 2, "a has a second sample with the same labels"),
        (b"# TYPE up clock\n", 1, "'clock' is not a type"),
        (b"# TYPE up gauge\n# TYPE up counter\n", 2, "up is declared as gauge and as counter"),
        (b"# HELP\n", 1, "names no metric"),
        (b"up 1\n\xff\xfe 1\n", 2, "not UTF-8"),
        (b"up 1\r\n", 1, "after the value of up|not a number"),
    ],
)
def test_a_broken_line_is_named_with_its_reason(text: bytes, line: int, reason: str) -> None:
    with pytest.raises(ExpositionError, match=r"node7:.*") as error:
        parse(text, "node7")
    assert error.value.line == line
    assert any(part in error.value.reason for part in reason.split("|"))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (ExpositionLimits(text_bytes=10), "bytes; the limit is 10"),
        (ExpositionLimits(line_chars=10), "a line of 16 characters; the limit is 10"),
        (ExpositionLimits(labels=1), "more than 1 labels"),
        (ExpositionLimits(samples=1), "more than 1 samples"),
    ],
)
def test_size_lines_labels_and_samples_are_capped(limits: ExpositionLimits, reason: str) -> None:
    with pytest.raises(ExpositionError, match=reason):
        parse(b'a{b="1",c="2"} 1\na{b="2"} 1\n', limits=limits)


def test_a_long_hostile_line_is_refused_quickly() -> None:
    for bad in (
        b'a{b="' + b"\\" * 15_000,
        b"a{" + b'b="",' * 3_000,
        b"a" * 15_000 + b"{",
        b"a " + b"9" * 15_000 + b"x",
    ):
        with pytest.raises(ExpositionError):
            parse(bad + b"\n")


# Text that is almost exposition: the alphabet of the grammar, so that much of it is nearly right.
scraps = st.lists(
    st.sampled_from(
        [
            *'ab_:09.{}=," \t\n\\#+-eE',
            "NaN",
            "+Inf",
            "# HELP ",
            "# TYPE a ",
            "# EOF\n",
            'a{b="c"} 1\n',
            "a 1\n",
            "\u00e9",
        ]
    ),
    max_size=24,
).map("".join)


@settings(max_examples=2 * settings.default.max_examples)
@given(st.one_of(scraps.map(str.encode), st.binary(max_size=200)))
@example(b"# EOF")
@example(b"\x00")
def test_no_text_raises_anything_but_our_error(text: bytes) -> None:
    reader = IncrementalParser()
    reader.read(b'a{b="c"} 1\n')
    for read in (parse, reader.read, lambda text: PageReader("n1").read(text, 0.0)):
        with suppress(ExpositionError):
            read(text)


names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,9}", fullmatch=True)
label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True).filter(lambda name: name[:2] != "__")
label_values = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('\n"\\ {},='), max_size=8)
numbers = st.one_of(
    st.floats().map(repr), st.integers(-(10**20), 10**20).map(str), st.sampled_from(["+Inf", "-Inf", "NaN", "12e-2"])
)
series = st.dictionaries(
    st.tuples(names, st.dictionaries(label_names, label_values, max_size=3).map(lambda d: tuple(sorted(d.items())))),
    st.tuples(numbers, st.none() | st.integers(0, 2**41)),
    max_size=6,
)


def write(page: dict[Any, Any]) -> str:
    """A valid page of these series."""
    lines = []
    for (name, labels), (number, time_ms) in page.items():
        escaped = [(k, v.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")) for k, v in labels]
        body = "{" + ",".join(f'{k}="{v}"' for k, v in escaped) + "}" if labels else ""
        lines.append(f"{name}{body} {number}" + (f" {time_ms}" if time_ms is not None else ""))
    return "".join(line + "\n" for line in lines)


def same(a: float | None, b: float | None) -> bool:
    return a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))


@pytest.mark.slow
@settings(max_examples=2 * settings.default.max_examples)
@given(series)
def test_valid_text_is_read_as_prometheus_client_reads_it(page: dict[Any, Any]) -> None:
    text = write(page)
    theirs = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    ours = parse(text.encode()).samples
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.name, mine.labels) == (other.name, other.labels)
        assert same(mine.value, float(other.value))  # theirs keeps whole numbers as int
        assert same(mine.time_s, other.timestamp)


@given(st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=2, max_size=3))
def test_a_later_page_gives_the_same_bits_as_a_full_parse(rows: list[list[str]]) -> None:
    reader = IncrementalParser()
    for k, row in enumerate(rows):
        text = "# HELP a x\n" + "".join(f'a{{b="{i}"}} {number}\n' for i, number in enumerate(row)) + "# end\n"
        before = reader.series
        values = reader.read(text.encode())
        assert (reader.series is before) == (k > 0)  # the first page is parsed, the others are only read
        careful = np.array([sample.value for sample in parse(text.encode()).samples])
        np.testing.assert_array_equal(values.view(np.int64), careful.view(np.int64))


@pytest.mark.parametrize(
    "text",
    [
        b"a 1\nb 2\nc 3\n",  # one more
        b"a 1\n",  # one less
        b"a 1\nc 2\n",  # another
        b"a 1\n# note\nb 2\n",
        b"a 1\nb 2\n# note\n",
        b"a 1\nb 2",  # cut short
        b"a 1\nb 2 1700000000000\n",
        b"a 1\nb  2\n",
    ],
)
def test_a_page_that_changed_is_parsed_in_full(text: bytes) -> None:
    reader = IncrementalParser()
    for page in (b"a 5\nb 6\n", text, b"a 7\nb 8\n"):
        assert reader.read(page).tolist() == [sample.value for sample in parse(page).samples]
        assert [s.name for s in reader.series] == [s.name for s in parse(page).samples]


def test_a_number_broken_on_the_second_page_is_an_error_with_its_line() -> None:
    for bad in (b"1.2.3", b"", b"-", b"1e", b"0x10", b"1 2 3", b"--1", b"."):
        reader = IncrementalParser("node7")
        reader.read(b"a 1\nb 2\n")
        with pytest.raises(ExpositionError, match=r"node7:2: "):
            reader.read(b"a 1\nb " + bad + b"\n")


def node_page(k: int, prefix: str = "twin") -> bytes:
    lines = [f'{prefix}_cpu_seconds_total{{cpu="{c}",mode="{m}"}} {k * 12.5:.2f}\n' for c in (0, 10, 2) for m in MODES]
    return "".join(lines).encode()


def test_pages_become_readings_with_threads_in_order() -> None:
    text = node_page(8) + (
        b"twin_memory_total_bytes 1000\ntwin_memory_available_bytes 250\n"
        b'twin_pressure_seconds_total{resource="io",share="some"} 5e-6\n'
        b'twin_pressure_seconds_total{resource="io",share="full"} 4e-6\n'
        b'twin_job_cpu_allocated{manager="slurm",jobid="17",cpu="2"} 1\n'
        b'twin_job_cpu_allocated{manager="slurm",jobid="17",cpu="0"} 1\n'
    )
    reading = PageReader("n1").read(text, 7.0)
    assert reading.cpus == (0, 2, 10)
    assert (reading.seconds == 100).all()
    operands = dict(zip(NODE.names, reading.operands.tolist(), strict=True))
    assert operands["memory_used"] == [250, 1000]
    assert operands["io_pressure"][0] == 5e-6
    assert np.isnan(operands["memory_pressure"]).all()
    assert reading.jobs == (JobCpus("17", (0, 2)),)


@pytest.mark.parametrize("prefix", ["twin", "node"])
def test_pages_of_either_exporter_become_rates(prefix: str) -> None:
    pages, stream = PageReader("n1"), RateStream()
    assert stream.push(pages.read(node_page(0, prefix), 10.0)) is None
    trace = stream.push(pages.read(node_page(0, prefix).replace(b" 0.00\n", b" 0.125\n"), 11.0))
    assert trace is not None
    np.testing.assert_allclose(trace.values[:, 0], [[0.25, 0.125, 0.125, 0.5]] * 3)
    assert trace.valid.all()


def test_a_mode_that_the_kernel_does_not_have_is_not_a_fault() -> None:
    stream, pages = RateStream(), PageReader("n1")
    text = b'node_cpu_seconds_total{cpu="0",mode="user"} %d\nnode_cpu_seconds_total{cpu="0",mode="idle"} 0\n'
    stream.push(pages.read(text % 0, 0.0))
    trace = stream.push(pages.read(text % 1, 1.0))
    assert trace is not None
    assert trace.values[0, 0].tolist() == [1, 0, 0, 0]


def test_a_page_without_cpu_counters_is_an_error_that_names_them() -> None:
    with pytest.raises(ExpositionError, match=r"n1:9100: no twin_cpu_seconds_total or node_cpu_seconds_total among"):
        PageReader("n1", "n1:9100").read(b"up 1\n", 0.0)
    with pytest.raises(ExpositionError, match="cpu='x' is not a hardware thread"):
        PageReader("n1").read(b'node_cpu_seconds_total{cpu="x",mode="user"} 1\n', 0.0)
