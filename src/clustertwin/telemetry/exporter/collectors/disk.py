"""/proc/diskstats -> operations, bytes and seconds of every block device in use."""

from __future__ import annotations

import os
import re

from clustertwin.telemetry.exporter.text.kernelfile import read_file
from clustertwin.telemetry.exporter.text.text_format import family, label_value, template_text

#: Devices that are not whole disks; node_exporter leaves out the same.
IGNORED = re.compile(r"(z?ram|loop|fd|(h|s|v|xv)d[a-z]+|nvme\d+n\d+p)\d+")

#: Metric, help, type, column among the eleven numbers, and how the kernel's integer becomes the unit.
COLUMNS: tuple[tuple[str, str, str, int, str], ...] = (
    ("twin_disk_reads_total", "Reads completed.", "counter", 0, ""),
    ("twin_disk_read_bytes_total", "Bytes read.", "counter", 2, "sectors"),
    ("twin_disk_read_seconds_total", "Seconds spent by all reads.", "counter", 3, "e-3"),
    ("twin_disk_writes_total", "Writes completed.", "counter", 4, ""),
    ("twin_disk_written_bytes_total", "Bytes written.", "counter", 6, "sectors"),
    ("twin_disk_write_seconds_total", "Seconds spent by all writes.", "counter", 7, "e-3"),
    ("twin_disk_io_now", "Operations in flight.", "gauge", 8, ""),
    ("twin_disk_io_seconds_total", "Seconds in which the device was busy.", "counter", 9, "e-3"),
)
SECTOR_BYTES = 512  # in /proc/diskstats, whatever the sector size of the device is


def parse_diskstats(text: bytes, faults: list[str]) -> dict[str, list[bytes]]:
    """Device -> its numbers, for devices that were used at least once and are not ignored."""
    devices: dict[str, list[bytes]] = {}
    for line in text.splitlines():
        words = line.split()
        numbers = words[3:14]
        if len(numbers) < 11 or not b"".join(numbers).isdigit():
            faults.append(f"/proc/diskstats: not a line of a device: {line[:60].decode('ascii', 'backslashreplace')!r}")
            continue
        name = os.fsdecode(words[2])
        if name not in devices and not IGNORED.fullmatch(name) and set(numbers) != {b"0"}:
            devices[name] = numbers
    return devices


class DiskCollector:
    """Block devices."""

    reads = "block devices, from /proc/diskstats"

    def __init__(self, rootfs: str) -> None:
        self._path = os.path.join(rootfs, "proc/diskstats")
        self._names: list[str] = []
        self._template = b""

    def collect(self, faults: list[str]) -> bytes:
        devices = parse_diskstats(read_file(self._path), faults)
        if list(devices) != self._names:
            self._names = list(devices)
            self._template = _template(self._names)
        values: list[bytes] = []
        for _, _, _, column, unit in COLUMNS:
            cells = [numbers[column] for numbers in devices.values()]
            values += [b"%d" % (int(cell) * SECTOR_BYTES) for cell in cells] if unit == "sectors" else cells
        return self._template % tuple(values)


def _template(names: list[str]) -> bytes:
    if not names:
        return b""
    pieces = []
    for metric, text, kind, _, unit in COLUMNS:
        pieces.append(family(metric, kind, text))
        exponent = unit if unit.startswith("e") else ""
        for name in names:
            pieces.append(template_text(f'{metric}{{device="{label_value(name)}"}} ') + f"%b{exponent}\n".encode())
    return b"".join(pieces)
