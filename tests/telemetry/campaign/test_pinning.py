"""CPU lists, maps of nodes to CPUs, and pinning."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.jobs.pinning import (
    NODE_CPUS,
    cpu_list,
    format_node_cpus,
    parse_node_cpus,
    pin,
    this_nodes_cpus,
)
from clustertwin.telemetry.campaign.scratch import file_system


def test_a_map_can_be_written_and_read() -> None:
    nodes = {"n1": (0, 1), "n2": (2, 3)}
    assert parse_node_cpus(format_node_cpus(nodes)) == nodes


@pytest.mark.parametrize("text", ["n1", "=0", "n1=x", "n1=0 n2=0", "n1=0-x"])
def test_invalid_maps_are_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        parse_node_cpus(text)


def test_a_process_finds_its_nodes_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODE_CPUS, "n1=0 n2=1,2")
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    assert this_nodes_cpus((7,)) == (1, 2)
    monkeypatch.delenv(NODE_CPUS)
    assert this_nodes_cpus((7,)) == (7,)


def test_the_error_for_missing_cpus_names_the_usable_ones() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(SettingsError, match=r"cannot use CPUs 10000: .*; usable CPUs: "):
        pin((10**4,))
    assert os.sched_getaffinity(0) == before


def test_cpu_lists_have_the_kernels_notation() -> None:
    assert cpu_list("0,4-6") == (0, 4, 5, 6)


def test_the_longest_mount_decides_the_file_system() -> None:
    mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/vdb /tmp/disk xfs rw 0 0\n"
    kinds = [file_system(Path(path), mounts) for path in ("/tmp/x", "/tmp/disk/x", "/tmpx", "/")]
    assert kinds == ["tmpfs", "xfs", "ext4", "ext4"]
