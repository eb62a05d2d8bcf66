"""/proc/stat: known answers, threads that come and go, invalid lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import InputError
from clustertwin.telemetry.exporter.collectors.cpu import MODES, CpuCollector, cpu_lines, parse_cpu_lines
from clustertwin.telemetry.exporter.text.text_format import to_rows


def values(text: bytes) -> dict[tuple[str, str], float]:
    rows = [row for row in to_rows(text.decode()) if row["name"] == "twin_cpu_seconds_total"]
    return {(row["labels"]["cpu"], row["labels"]["mode"]): row["value"] for row in rows}


def test_ticks_are_hundredths_of_a_second(tree):
    text = CpuCollector(str(tree.node().root), user_hz=100).collect([])
    assert b'twin_cpu_seconds_total{cpu="0",mode="user"} 1234e-2\n' in text
    assert values(text)["1", "idle"] == 50.0


@pytest.mark.parametrize(("user_hz", "seconds"), [(100, 12.34), (1000, 1.234), (250, 4.936)])
def test_seconds_are_right_at_any_tick_rate(tree, user_hz, seconds):
    text = CpuCollector(str(tree.node().root), user_hz=user_hz).collect([])
    assert values(text)["0", "user"] == seconds


def test_the_second_scrape_reads_again(tree):
    cpu = CpuCollector(str(tree.node().root))
    first = values(cpu.collect([]))
    tree.write("proc/stat", "cpu  1 1 1 1\ncpu0 1334 4 200 4000 50 0 9 2 0 0\ncpu1 66 0 60 5100 20 0 0 0 0 0\nintr 1\n")
    second = values(cpu.collect([]))
    assert {key for key in first if first[key] != second[key]} == {("0", "user"), ("1", "idle")}


def test_threads_may_go_offline_and_come_online(tree):
    cpu = CpuCollector(str(tree.node().root))
    cpu.collect([])
    tree.write("proc/stat", "cpu  1 1 1 1\ncpu1 1 2 3 4 5 6 7 8 0 0\ncpu2 9 9 9 9 9 9 9 9 0 0\nintr 1\n")
    faults: list[str] = []
    assert {key[0] for key in values(cpu.collect(faults))} == {"1", "2"}
    assert faults == []


@pytest.mark.parametrize(
    "broken",
    [
        b"cpu1 66 0 x 5000 20 0 0 0 0 0\n",
        b"cpu1 66 0 60 5000 -20 0 0 0 0 0\n",
        b"cpu1 66 0 60\n",
        b"cpuX 66 0 60 5000 20 0 0 0 0 0\n",
        b"cpu0 66 0 60 5000 20 0 0 0 0 0\n",
        b"\xff\xfe garbage\n",
        b"cpu1 66 0 60 5000 20 0 0 0 0 0 7 8 9\n",
    ],
)
@pytest.mark.parametrize("warm", [False, True])
def test_a_broken_line_is_a_fault_and_the_rest_is_exposed(tree, broken, warm):
    cpu = CpuCollector(str(tree.node().root))
    if warm:
        cpu.collect([])
    tree.write("proc/stat", b"cpu  1 1 1 1\ncpu0 1 2 3 4 5 6 7 8 0 0\n" + broken + b"intr 1\n")
    faults: list[str] = []
    assert {key[0] for key in values(cpu.collect(faults))} == {"0"}
    assert len(faults) == 1
    assert "/proc/stat" in faults[0]


def test_a_file_cut_inside_a_number_does_not_expose_that_number(tree):
    tree.write("proc/stat", "cpu  1 1 1 1\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 8 0 123")
    faults: list[str] = []
    assert {key[0] for key in values(CpuCollector(str(tree.root)).collect(faults))} == {"0"}
    assert len(faults) == 1


def test_a_cut_is_detected_also_with_a_known_layout(tree):
    cpu = CpuCollector(str(tree.node().root))
    cpu.collect([])
    tree.write("proc/stat", "cpu  1 1 1 1\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0")
    assert {key[0] for key in values(cpu.collect([]))} == {"0"}


@pytest.mark.parametrize("text", ["", "ctxt 5\n", "cpu  1 2 3 4\nintr 5\n"])
def test_a_file_without_threads_is_an_error(tree, text):
    tree.write("proc/stat", text)
    with pytest.raises(InputError, match="proc/stat"):
        CpuCollector(str(tree.root)).collect([])


def test_the_kernels_lines_are_kept_verbatim(tree):
    cpu = CpuCollector(str(tree.node().root))
    cpu.collect([])
    assert cpu.lines == b"cpu0 1234 4 200 4000 50 0 9 2 0 0\ncpu1 66 0 60 5000 20 0 0 0 0 0\n"


@given(rows=st.lists(st.lists(st.integers(0, 2**63), min_size=10, max_size=10), min_size=1, max_size=5))
def test_exposed_seconds_are_the_kernels_counts(rows, tmp_path_factory):
    root = tmp_path_factory.mktemp("stat")
    (root / "proc").mkdir()
    lines = "".join(f"cpu{i} {' '.join(map(str, row))}\n" for i, row in enumerate(rows))
    (root / "proc/stat").write_text(f"cpu  1 1 1 1\n{lines}intr 1\n")
    cpu = CpuCollector(str(root), user_hz=100)
    slow, fast = cpu.collect([]), cpu.collect([])
    assert slow == fast
    told = values(fast)
    assert told == {(str(i), mode): float(f"{row[m]}e-2") for i, row in enumerate(rows) for m, mode in enumerate(MODES)}


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parser(text):
    parse_cpu_lines(cpu_lines(text), [])
