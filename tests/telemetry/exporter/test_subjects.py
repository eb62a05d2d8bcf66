"""Memory, pressure and disks: known answers, and files that are missing or broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import InputError
from clustertwin.telemetry.exporter.collectors.disk import DiskCollector, parse_diskstats
from clustertwin.telemetry.exporter.collectors.memory import MemoryCollector, parse_meminfo
from clustertwin.telemetry.exporter.collectors.network import NetworkCollector
from clustertwin.telemetry.exporter.collectors.pressure import PressureCollector, parse_pressure
from clustertwin.telemetry.exporter.text.text_format import label_value, to_rows


def test_memory_is_in_bytes_and_unknown_words_are_left_out(tree):
    rows = to_rows(MemoryCollector(str(tree.node().root)).collect([]).decode())
    told = {row["name"]: row["value"] for row in rows}
    assert told["twin_memory_total_bytes"] == 16384 * 1024
    assert told["twin_memory_available_bytes"] == 8192 * 1024
    assert "twin_memory_dirty_bytes" not in told


def test_an_invalid_size_is_a_fault_and_the_rest_is_parsed():
    faults: list[str] = []
    assert parse_meminfo(b"MemTotal: 1 kB\nMemFree: lots\nCached: 2 MB\n", faults) == {b"MemTotal": 1024}
    assert len(faults) == 2


def test_memory_without_a_total_is_an_error(tree):
    tree.write("proc/meminfo", "MemFree: 1 kB\n")
    with pytest.raises(InputError, match="MemTotal"):
        MemoryCollector(str(tree.root)).collect([])


def test_pressure_is_in_seconds(tree):
    rows = to_rows(PressureCollector(str(tree.node().root)).collect([]).decode())
    told = {(row["labels"]["resource"], row["labels"]["share"]): row["value"] for row in rows}
    assert told["io", "some"] == 1.5
    assert told["memory", "full"] == 2e-6


def test_a_kernel_without_psi_gives_no_samples_and_no_fault(tree):
    faults: list[str] = []
    assert PressureCollector(str(tree.root)).collect(faults) == b""
    assert faults == []


def test_an_unreadable_pressure_file_is_a_fault(tree):
    tree.node().write("proc/pressure/io", "some avg10=oops\n")
    faults: list[str] = []
    assert b'resource="io"' not in PressureCollector(str(tree.root)).collect(faults)
    assert "pressure/io" in faults[0]


def test_disks_in_use_are_exposed_in_bytes_and_seconds(tree):
    rows = to_rows(DiskCollector(str(tree.node().root)).collect([]).decode())
    told = {(row["name"], row["labels"]["device"]): row["value"] for row in rows}
    assert {device for _, device in told} == {"sda", "nvme0n1"}  # no loops, no partitions, no unused disk
    assert told["twin_disk_read_bytes_total", "sda"] == 2048 * 512
    assert told["twin_disk_write_seconds_total", "sda"] == 2.5
    assert told["twin_disk_io_now", "sda"] == 1


def test_a_disk_that_is_plugged_in_appears(tree):
    disk = DiskCollector(str(tree.node().root))
    disk.collect([])
    tree.write("proc/diskstats", "8 0 sda 1 0 1 1 1 0 1 1 0 1 1\n8 16 sdb 1 0 1 1 1 0 1 1 0 1 1\n")
    assert b'device="sdb"' in disk.collect([])


def test_a_broken_disk_line_is_a_fault():
    faults: list[str] = []
    assert list(parse_diskstats(b"8 0 sda 1 2\n8 1 sdb 1 0 1 1 1 0 1 1 0 1 1\n", faults)) == ["sdb"]
    assert "sda" in faults[0]


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parsers(text):
    parse_meminfo(text, [])
    parse_diskstats(text, [])
    parse_pressure(text)


@given(st.text(max_size=40))
def test_any_name_survives_a_label(name):
    name = name.encode("utf-8", "ignore").decode()
    if "\n" in name or not name.isprintable():
        name = "".join(c for c in name if c.isprintable()) + "\n"
    (row,) = to_rows(f'm{{x="{label_value(name)}"}} 1')
    assert row["labels"] == {"x": name}


def test_the_ports_of_rdma_adapters_count_words_of_four_bytes(tree):
    counters = "sys/class/infiniband/mlx5_0/ports/1/counters"
    tree.node().write(f"{counters}/port_rcv_data", "250\n")
    tree.write(f"{counters}/port_xmit_data", "1000\n")
    tree.write("sys/class/infiniband/efa_0/ports/1/counters/port_rcv_errors", "0\n")  # a port without them
    faults: list[str] = []
    rows = to_rows(NetworkCollector(str(tree.root)).collect(faults).decode())
    told = {row["name"]: row["value"] for row in rows if row["labels"]["device"] != "eth0"}
    assert told == {"twin_network_received_bytes_total": 1000, "twin_network_sent_bytes_total": 4000}
    assert {row["labels"]["device"] for row in rows} == {"eth0", "mlx5_0/1"}
    assert faults == []
