"""The last minutes of node channels: what comes in comes out, and the rest is unknown."""

from __future__ import annotations

import numpy as np

from clustertwin.core.channels import CPU, NODE, Schema
from clustertwin.core.traces import NodeChannels, Trace
from clustertwin.telemetry.moments.node_channel_buffer import NodeChannelBuffer
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer


def trace(node: str, start_s: int, *seconds: float, schema: Schema = NODE) -> Trace:
    """One thread; channel c of second k is seconds[k] + c / 100."""
    values = np.array(seconds, np.float32)[:, None] + np.arange(len(schema), dtype=np.float32) / 100
    threads = np.tile(np.array([0.2, 0.1, 0, 0.7], np.float32), (1, len(seconds), 1))
    valid = np.ones((1, len(seconds)), np.bool_)
    return Trace(node, (0,), start_s, CPU, threads, valid, node_channels=NodeChannels(schema, values))


def first(channels: NodeChannels | None) -> list[list[float]]:
    """The first channel of each node, second by second."""
    assert channels is not None
    return np.round(channels.values[:, :, 0], 3).tolist()


def test_seconds_are_kept_for_the_length_of_the_buffer_and_gaps_are_nan():
    buffer = NodeChannelBuffer(4)
    buffer.push(trace("a", 10, 0.1))
    buffer.push(trace("a", 11, 0.2, 0.3))
    buffer.push(trace("b", 12, 0.5))
    np.testing.assert_allclose(first(buffer.window(("a", "b"), 13)), [[np.nan, 0.1, 0.2, 0.3], [np.nan] * 3 + [0.5]])
    buffer.push(trace("a", 15, 0.6))
    np.testing.assert_allclose(first(buffer.window(("a",), 16)), [[0.3, np.nan, np.nan, 0.6]])


def test_a_late_second_is_put_in_its_place_and_a_long_trace_is_cut():
    buffer = NodeChannelBuffer(4)
    buffer.push(trace("a", 12, 0.3))
    buffer.push(trace("a", 11, 0.2))
    np.testing.assert_allclose(first(buffer.window(("a",), 13)), [[np.nan, np.nan, 0.2, 0.3]])
    buffer.push(trace("a", 20, *np.linspace(0, 0.9, 10)))
    np.testing.assert_allclose(first(buffer.window(("a",), 30)), [[0.6, 0.7, 0.8, 0.9]], atol=1e-3)


def test_a_node_that_is_forgotten_leaves_nothing_to_the_next():
    buffer = NodeChannelBuffer(3)
    for i in range(20):
        buffer.push(trace(f"n{i}", 10, 0.5))
    buffer.window(("n0",), 11)
    buffer.push(trace("new", 9, 0.1))
    np.testing.assert_allclose(first(buffer.window(("n0", "new"), 11)), [[np.nan, np.nan, 0.5], [np.nan, 0.1, np.nan]])
    assert len(buffer._rings) < 64


def test_a_node_without_channels_and_one_with_others_are_unknown_by_name():
    buffer = NodeChannelBuffer(2)
    assert buffer.window(("a",), 10) is None
    buffer.push(trace("a", 10, 0.1))
    buffer.push(trace("b", 10, 0.7, schema=Schema((NODE.channels[2], NODE.channels[0]))))
    channels = buffer.window(("a", "b", "c"), 11)
    assert channels is not None
    assert channels.schema == NODE
    np.testing.assert_allclose(channels.values[1, 1, :3], [0.71, np.nan, 0.7], atol=1e-6)
    assert np.isnan(channels.values[1, 1, 3:]).all()
    assert np.isnan(channels.values[2]).all()


def test_a_moment_has_the_channels_of_its_nodes_in_their_order():
    buffer = TraceBuffer(CPU, length_s=3)
    buffer.push(trace("b", 10, 0.2))
    buffer.push(trace("a", 10, 0.1))
    moment = buffer.moment(11)
    assert moment.nodes == ("a", "b")
    np.testing.assert_allclose(first(moment.node_channels), [[np.nan, np.nan, 0.1], [np.nan, np.nan, 0.2]])
    assert moment.take(np.array([1])).node_channels is moment.node_channels
