"""Durations, memory, TRES, GRES and node ranges as Slurm writes them."""

from __future__ import annotations

import math

import pytest

from clustertwin.workload.slurm.site.quantities import (
    Gres,
    expand_hosts,
    parse_gres,
    parse_limit_s,
    parse_memory_mb,
    parse_tres,
    parse_weights,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800), ("30:15", 1815), ("24:00:00", 86_400), ("3-00:00:00", 259_200), ("7-0", 604_800),
        ("1-06:30", 109_800), ("UNLIMITED", math.inf), ("infinite", math.inf),
    ],
)  # fmt: skip
def test_a_time_limit_is_read_in_every_form(text, seconds):
    assert parse_limit_s(text) == seconds


@pytest.mark.parametrize("text", ["", "1h", "1:2:3:4", "-5", "1-"])
def test_a_malformed_time_limit_is_refused(text):
    with pytest.raises(ValueError, match="not a time"):
        parse_limit_s(text)


def test_memory_counts_megabytes():
    assert [parse_memory_mb(text) for text in ("100", "100M", "1G", "1T", "1024K")] == [100, 100, 1024, 1024**2, 1]
    with pytest.raises(ValueError, match="not an amount"):
        parse_memory_mb("much")


def test_tres_lists_and_weights():
    assert parse_tres("cpu=4,mem=1G,gres/gpu:v100=2,node=-1") == {"cpu": 4, "mem": 1024, "gres/gpu:v100": 2}
    assert parse_weights("CPU=0,Mem=.03,GRES/gpu=30000") == {"cpu": 0, "mem": 0.03, "gres/gpu": 30_000}
    assert parse_weights("Mem=0.25G")["mem"] == pytest.approx(0.25 / 1024)
    with pytest.raises(ValueError, match="not name=amount"):
        parse_tres("cpu")


def test_gres_with_and_without_type_and_count():
    assert parse_gres("gpu") == (Gres("gpu", "", 1),)
    assert parse_gres("gpu:2") == (Gres("gpu", "", 2),)
    assert parse_gres("gpu:v100:2(S:0-1),nvme:1") == (Gres("gpu", "v100", 2), Gres("nvme", "", 1))


def test_node_ranges_keep_zeros_order_and_several_brackets():
    assert expand_hosts("n[001-003,10],x") == ["n001", "n002", "n003", "n10", "x"]
    assert expand_hosts("r[1-2]-[01-02]") == ["r1-01", "r1-02", "r2-01", "r2-02"]
    for text in ("n[1-", "n[3-1]", "n[a-b]", "n]1["):
        with pytest.raises(ValueError, match=r"range|brackets"):
            expand_hosts(text)


@pytest.mark.parametrize("text", ["n" + 2000 * "[1]", 4000 * "n" + "[1-1000000]", f"n[{4000 * '0'}-999999]"])
def test_a_short_text_is_not_a_deep_or_a_huge_list_of_nodes(text):
    with pytest.raises(ValueError, match=r"ranges in one name|characters"):
        expand_hosts(text)
