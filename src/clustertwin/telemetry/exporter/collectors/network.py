"""/proc/net/dev -> bytes and errors of the node's network devices.

Only devices with hardware behind them are read: the traffic of a bridge, a bond or a container passes a real device
too, and would count twice. Where no device has hardware (in a container), all but the loopback device are read.
RDMA passes none of them: the ports of InfiniBand, Omni-Path and RoCE adapters count it. What IP sends over such a port
counts twice.
"""

from __future__ import annotations

import glob
import os

from clustertwin.telemetry.exporter.text.kernelfile import read_file
from clustertwin.telemetry.exporter.text.text_format import family, label_value, template_text

#: Metric, further label, and column among the sixteen numbers.
COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("twin_network_received_bytes_total", "", 0),
    ("twin_network_sent_bytes_total", "", 8),
    ("twin_network_errors_total", ',direction="received"', 2),
    ("twin_network_errors_total", ',direction="sent"', 10),
)
#: What a port counts.
PORT_COLUMNS = ("twin_network_received_bytes_total", "twin_network_sent_bytes_total")
_HEADS = {
    "twin_network_received_bytes_total": "Bytes received.",
    "twin_network_sent_bytes_total": "Bytes sent.",
    "twin_network_errors_total": "Packets with errors.",
}
#: A node with containers can have thousands of devices; those beyond this many are left out.
MAX_DEVICES = 64
_WORD = 4  # bytes: the unit of the counters of a port


def parse_net_dev(text: bytes, faults: list[str]) -> dict[str, list[bytes]]:
    """Device -> its sixteen numbers; the first two lines are headings."""
    devices: dict[str, list[bytes]] = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.rpartition(b":")
        numbers = rest.split()
        if not name or len(numbers) < 16 or not b"".join(numbers).isdigit():
            faults.append(f"/proc/net/dev: not a line of a device: {line[:60].decode('ascii', 'backslashreplace')!r}")
            continue
        devices[os.fsdecode(name.strip())] = numbers
    return devices


def read_ports(adapters: str) -> dict[str, list[bytes]]:
    """The directory of all adapters -> the bytes that each port received and sent, such as those of `mlx5_0/1`."""
    ports = {}
    for place in sorted(glob.glob("*/ports/*/counters", root_dir=adapters))[:MAX_DEVICES]:
        files = [os.path.join(adapters, place, name) for name in ("port_rcv_data", "port_xmit_data")]
        try:
            counts = [b"%d" % (_WORD * int(read_file(file))) for file in files]
        except (OSError, ValueError):  # a port without counters
            continue
        device, _, port, _ = place.split("/")
        ports[f"{device}/{port}"] = counts
    return ports


class NetworkCollector:
    """Network devices."""

    reads = "network devices and RDMA ports, from /proc/net/dev and /sys/class/infiniband"

    def __init__(self, rootfs: str) -> None:
        # The file of a process shows its own network: /proc/1 is the node's, also from a container that sees it.
        self._paths = [os.path.join(rootfs, path) for path in ("proc/1/net/dev", "proc/net/dev")]
        self._hardware = os.path.join(rootfs, "sys/class/net")
        self._adapters = os.path.join(rootfs, "sys/class/infiniband")
        self._present: tuple[list[str], list[str]] = [], []
        self._names: list[str] = []
        self._template = b""

    def collect(self, faults: list[str]) -> bytes:
        devices, ports = parse_net_dev(self._read(), faults), read_ports(self._adapters)
        if (list(devices), list(ports)) != self._present:
            self._present = list(devices), list(ports)
            self._names = self._chosen(list(devices))
            self._template = _template(self._names, list(ports))
        values: list[bytes] = []
        for metric, _, column in COLUMNS:
            values += [devices[name][column] for name in self._names]
            values += [counts[PORT_COLUMNS.index(metric)] for counts in ports.values() if metric in PORT_COLUMNS]
        return self._template % tuple(values)

    def _read(self) -> bytes:
        try:
            return read_file(self._paths[0])
        except OSError:
            return read_file(self._paths[1])

    def _chosen(self, names: list[str]) -> list[str]:
        real = [name for name in names if os.path.exists(os.path.join(self._hardware, name, "device"))]
        return (real or [name for name in names if name != "lo"])[:MAX_DEVICES]


def _template(devices: list[str], ports: list[str]) -> bytes:
    pieces, written = [], set()
    for metric, label, _ in COLUMNS:
        names = devices + ports * (metric in PORT_COLUMNS)
        if not names:
            continue
        if metric not in written:
            written.add(metric)
            pieces.append(family(metric, "counter", _HEADS[metric]))
        pieces += [template_text(f'{metric}{{device="{label_value(name)}"{label}}} ') + b"%b\n" for name in names]
    return b"".join(pieces)
