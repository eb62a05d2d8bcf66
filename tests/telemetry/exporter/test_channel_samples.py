"""A ring sample keeps the lines of the series that node channels are derived from, and no others."""

from __future__ import annotations

from clustertwin.core.channels import Channel, Derivation, Operands, Schema
from clustertwin.telemetry.exporter.channel_samples import MAX_SERIES, ChannelSamples

ERRORS = Derivation("share", {"twin": Operands(('twin_errors_total{way="in"}',), ("twin_packets_total",))})
SCHEMA = Schema(
    (
        Channel("network_errors", derivation=ERRORS),
        Channel("of_node_exporter", derivation=Derivation("rate", {"node": Operands(("node_x",))})),
    )
)


def test_lines_are_chosen_by_metric_and_by_the_labels_of_the_row():
    families = rb"""
# HELP twin_errors_total Errors.
# TYPE twin_errors_total counter
twin_errors_total{device="a b",way="in"} 1
twin_errors_total{device="a b",way="out"} 2
twin_packets_total{device="eth\"0"} 3
twin_packets 4
node_x 5
"""
    expected = rb"""twin_errors_total{device="a b",way="in"} 1
twin_packets_total{device="eth\"0"} 3
"""
    assert ChannelSamples(SCHEMA).pick(families) == expected


def test_the_memory_of_series_is_bounded():
    samples = ChannelSamples(SCHEMA)
    for i in range(3 * MAX_SERIES):
        assert samples.pick(b'twin_packets_total{device="veth%d"} 1\n' % i)
    assert len(samples._needed) <= MAX_SERIES + 2
