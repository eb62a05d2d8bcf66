"""The requests to an exporter and the readings in its responses, without a network."""

from __future__ import annotations

import pytest

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.ingest.sources.exporter_protocol import ExporterRequest, ExporterSession
from clustertwin.telemetry.ingest.sources.http import Endpoint

PAGE = b'twin_cpu_seconds_total{cpu="0",mode="user"} 1\ntwin_node_info{node="n1"} 1\n'
HAS_RING = b"twin_exporter_ring_begin_timestamp_seconds 10.25\n"


def block(time_s: float) -> bytes:
    return b"t %.3f\ncpu0 100 0 50 850 0 0 0 0\n" % time_s


def since(time_s: float) -> ExporterRequest:
    return ExporterRequest("/ring", (("since", f"{time_s:.3f}"),))


def after(time_s: float) -> ExporterRequest:
    return since(time_s + 0.001)


def greeted(**options) -> ExporterSession:
    session = ExporterSession(Endpoint("http://n:9752"), **options)
    assert session.next_request(100.0).path == "/metrics"
    session.receive(PAGE + HAS_RING)
    return session


def times(session: ExporterSession, body: bytes) -> list[float] | None:
    found = session.receive(body)
    return None if found is None else [reading.time_s for reading in found]


def test_after_the_page_only_newer_parts_of_the_ring_are_requested():
    session = greeted()
    assert session.next_request(100.0) == since(98)
    assert times(session, block(99) + block(100)) == [100]
    assert session.next_request(101.0) == after(100)
    assert times(session, block(100) + block(101) + block(102)) == [101, 102]
    assert session.next_request(103.0) == after(102)


def test_readings_have_the_name_from_the_page():
    session = greeted()
    session.next_request(100.0)
    (reading,) = session.receive(block(100))
    assert reading.node == "n1"


def test_if_a_clock_is_behind_the_whole_ring_is_requested_once():
    session = greeted()
    session.next_request(100.0)
    assert times(session, b"") is None
    assert session.next_request(100.0) == since(0)
    assert times(session, block(50) + block(51)) == [51]
    assert session.next_request(101.0) == after(51)


def test_after_a_clock_was_set_back_there_are_readings_again():
    session = greeted()
    session.next_request(100.0)
    session.receive(block(100))
    for second in range(101, 112):
        session.next_request(float(second))
        assert times(session, b"") == []
    assert session.next_request(112.0) == since(110)
    assert times(session, b"") is None
    assert session.next_request(112.0) == since(0)
    assert times(session, block(20) + block(21)) == [21]


def test_after_a_clock_returned_from_the_future_there_are_readings_within_three_seconds():
    session = greeted()
    session.next_request(100.0)
    assert times(session, block(3700)) == [3700]
    assert session.next_request(101.0) == after(3700)
    assert times(session, b"") == []
    assert session.next_request(102.0) == since(100)
    assert times(session, block(3700) + block(101) + block(102)) == [102]
    assert session.next_request(103.0) == after(102)
    # The ring has the second from the future for as long as the clock was ahead, or until it is full.
    assert times(session, block(3700) + block(103)) == [103]
    assert session.next_request(104.0) == after(103)
    assert times(session, block(3700) + block(104) + block(105)) == [104, 105]


def test_a_ring_without_news_is_asked_for_older_samples_and_none_of_them_is_returned_again():
    session = greeted()
    session.next_request(100.0)
    assert times(session, block(99) + block(100)) == [100]
    assert session.next_request(102.0) == after(100)
    assert times(session, b"") == []
    assert session.next_request(103.0) == after(100)
    assert times(session, block(99) + block(100)) == []
    assert session.next_request(104.0) == after(100)
    assert times(session, block(101) + block(104)) == [101, 104]


def test_after_an_outage_the_page_is_requested_and_then_the_missed_part_of_the_ring():
    session = greeted()
    session.next_request(100.0)
    session.receive(block(100))
    session.disconnected()
    assert session.next_request(160.0).path == "/metrics"
    assert session.receive(PAGE + HAS_RING) is None
    assert session.next_request(160.0) == after(100)
    assert times(session, b"".join(block(t) for t in range(100, 161))) == list(range(101, 161))


def test_after_an_outage_whose_part_of_the_ring_is_too_long_only_its_newest_part_is_requested():
    """The ring of a node with 2,000 threads is longer than an answer may be: it was never read again."""
    session = greeted()
    session.next_request(100.0)
    assert times(session, block(100)) == [100]
    for _ in range(4):
        session.disconnected()
        session.next_request(900.0)
        assert session.receive(PAGE + HAS_RING) is None
        assert session.next_request(900.0) == after(100)
    session.disconnected()
    session.next_request(901.0)
    session.receive(PAGE + HAS_RING)
    assert session.next_request(901.0) == since(899)
    assert times(session, block(900) + block(901)) == [901]


def test_another_node_at_the_same_address_is_named_once_and_then_read_under_its_own_name():
    """After a change of addresses, the values of the new node were those of the old one."""
    session = greeted()
    session.next_request(100.0)
    session.receive(block(100))
    other = PAGE.replace(b"n1", b"n2") + HAS_RING
    session.disconnected()
    session.next_request(101.0)
    with pytest.raises(SourceError, match="it says that it is n2, and it was n1 before"):
        session.receive(other)
    session.disconnected()
    assert session.next_request(102.0).path == "/metrics"
    assert session.receive(other) is None
    assert session.next_request(102.0) == since(100)
    (reading,) = session.receive(block(102))
    assert reading.node == "n2"


@pytest.mark.parametrize("given", ["", "front"])
def test_another_node_that_answers_the_next_request_for_the_ring_is_named_and_not_merged(given):
    """A load balancer may choose another node for each request: the counters of two nodes became one node's."""
    session = greeted(node=given)
    n1, n2 = (b'twin_node_info{node="%b"} 1\n' % name for name in (b"n1", b"n2"))
    session.next_request(100.0)
    assert times(session, block(100) + n1) == [100]
    for second in (101.0, 102.0):
        session.next_request(second)
        with pytest.raises(SourceError, match="ring: it says that it is n2, and it was n1 before"):
            session.receive(block(second) + n2)
    session.next_request(103.0)
    with pytest.raises(SourceError, match="it says that it is n2, and it was n1 before"):
        session.receive(block(102) + n1 + block(103) + n2)
    session.next_request(104.0)
    assert times(session, block(104) + n1) == [104]
    session.next_request(105.0)
    assert times(session, block(105)) == [105]  # an older exporter does not write its name


def test_an_address_that_another_node_answers_each_time_is_refused_until_it_stays_the_same():
    session = ExporterSession(Endpoint("http://any:9100"))
    nodes, reasons = set(), []
    for second in range(100, 120):
        session.next_request(float(second))
        try:
            nodes |= {reading.node for reading in session.receive(PAGE.replace(b"n1", b"n%d" % (second // 2 % 2)))}
        except SourceError as error:
            reasons.append(str(error))
    assert nodes == {"n0", "n1"}
    assert "several nodes answer here: n1, and now n0" in reasons[-1]
    session.next_request(900.0)
    with pytest.raises(SourceError, match="it says that it is n0, and it was n1 before"):
        session.receive(PAGE.replace(b"n1", b"n0"))
    session.next_request(901.0)
    assert [reading.node for reading in session.receive(PAGE.replace(b"n1", b"n0"))] == ["n0"]


def test_without_a_ring_each_page_is_a_reading():
    for session, page in (
        (ExporterSession(Endpoint("http://n:9100")), PAGE),
        (ExporterSession(Endpoint("http://n:9100"), pages=True), PAGE + HAS_RING),
    ):
        for time_s in (100.0, 101.0):
            assert session.next_request(time_s).path == "/metrics"
            assert times(session, page) == [time_s]


def test_an_invalid_page_is_a_source_error():
    session = ExporterSession(Endpoint("http://n:9100"))
    session.next_request(0.0)
    with pytest.raises(SourceError, match=r"http://n:9100/metrics:1: '<html>' does not begin with a metric name"):
        session.receive(b"<html>\n")


def test_connections_that_break_do_not_delay_a_clock_that_returned_from_the_future():
    """Each page counted as news of the ring: with a connection that broke every two seconds it was never read again."""
    session = greeted()
    session.next_request(100.0)
    assert times(session, block(3700)) == [3700]
    session.next_request(101.0)
    assert times(session, b"") == []
    session.disconnected()
    assert session.next_request(102.0).path == "/metrics"
    assert session.receive(PAGE + HAS_RING) is None
    assert session.next_request(102.0) == since(100)
    assert times(session, block(101) + block(102)) == [102]
