"""Node channels: known answers of each rule, what stays unknown, and sums over series."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.channels import JOB, NODE, Channel, Derivation, Operands, Schema, parse_selector
from clustertwin.telemetry.exporter.jobs.cgroup_files import FAMILIES
from clustertwin.telemetry.ingest import node_channels
from clustertwin.telemetry.ingest.node_channels import OperandSlots, derive, stolen

NAN = float("nan")


def of_rule(
    rule: str, *operands: tuple[float, float], half: float = 0.0, divided: bool = False, apart_s: float = 1.0
) -> list[float]:
    """The ratios of one channel whose operands were these, a second apart."""
    ratios = np.empty((1, len(operands) - 1, 1))
    node_channels._derive(
        np.array(operands, float)[None, :, None],
        np.arange(len(operands)),
        np.full(len(operands) - 1, apart_s),
        np.array([node_channels._RULES.index(rule)]),
        np.array([half]),
        np.array([divided]),
        ratios,
    )
    return ratios[0, :, 0].tolist()


@pytest.mark.parametrize(
    ("available", "total", "used"),
    [(25, 100, 0.75), (0, 100, 1.0), (100, 100, 0.0), (NAN, 100, NAN), (25, NAN, NAN), (25, 0, NAN), (101, 100, NAN)],
)
def test_a_complement_is_what_is_not_available(available: float, total: float, used: float) -> None:
    np.testing.assert_equal(of_rule("complement", (0, 0), (available, total)), [used])


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        (5.0, 5.25, 0.25),
        (5.0, 5.0, 0.0),
        (5.0, 6.1, 1.0),  # the clock of the sampler jitters
        (5.0, 1.0, NAN),  # a reboot
        (5.0, 500.0, NAN),  # a jump
        (NAN, 5.0, NAN),
        (5.0, NAN, NAN),  # PSI was switched off
    ],
)
def test_a_rate_is_the_part_of_a_second_and_never_a_giant(before: float, after: float, ratio: float) -> None:
    np.testing.assert_allclose(of_rule("rate", (before, NAN), (after, NAN)), [ratio])


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        ((10, 1000), (12, 1100), 0.02),
        ((10, 1000), (10, 1000), 0.0),  # nothing was received
        ((10, 1000), (15, 1000), 1.0),  # everything was dropped
        ((10, 1000), (0, 50), NAN),
        ((10, 1000), (12, 50), NAN),
        ((NAN, 1000), (12, 1100), NAN),
    ],
)
def test_a_share_is_an_increase_over_another(
    before: tuple[float, float], after: tuple[float, float], ratio: float
) -> None:
    np.testing.assert_allclose(of_rule("share", before, after), [ratio])


@pytest.mark.parametrize(
    ("used", "limit", "ratio"), [(25, 100, 0.25), (120, 100, 1.0), (0, 100, 0.0), (NAN, 100, NAN), (25, NAN, NAN)]
)
def test_a_fraction_is_at_most_one(used: float, limit: float, ratio: float) -> None:
    np.testing.assert_equal(of_rule("fraction", (0, 0), (used, limit)), [ratio])


@pytest.mark.parametrize(
    ("running", "threads", "ratio"),
    [(8, 8, 0.5), (24, 8, 0.75), (0, 8, 0.0), (NAN, 8, NAN), (8, NAN, NAN), (8, 0, NAN)],
)
def test_a_queue_is_a_half_where_both_are_equal(running: float, threads: float, ratio: float) -> None:
    np.testing.assert_equal(of_rule("queue", (0, 0), (running, threads)), [ratio])


def test_a_saturating_rate_is_a_half_at_its_half_and_below_one_at_any_rate() -> None:
    rates = of_rule("saturating", (0, NAN), (100, NAN), (100, NAN), (1e12, NAN), half=100)
    np.testing.assert_allclose(rates, [0.5, 0.0, 1.0], atol=1e-9)
    assert rates[2] < 1
    assert of_rule("saturating", (0, NAN), (200, NAN), half=100, apart_s=2.0) == [0.5]


def test_a_counter_that_was_reset_is_unknown_in_every_rule_of_rates() -> None:
    for rule in ("rate", "capped", "saturating"):
        np.testing.assert_equal(of_rule(rule, (5, NAN), (1, NAN), half=1), [NAN])


def test_a_capped_rate_is_divided_by_its_threads() -> None:
    assert of_rule("capped", (0, 4), (2, 4), divided=True) == [0.5]
    assert of_rule("capped", (0, 4), (9, 4), divided=True) == [1.0]
    np.testing.assert_equal(of_rule("capped", (0, NAN), (2, NAN), divided=True), [NAN])


def test_stolen_time_is_the_part_of_all_threads_and_a_missing_thread_is_left_out() -> None:
    seconds = np.zeros((3, 2, 2))  # (cpu, time, mode)
    seconds[0, 1], seconds[1, 1], seconds[2, 1] = (0.75, 0.25), (1.0, 0.0), (NAN, NAN)
    np.testing.assert_allclose(stolen(seconds, ("user", "steal"), np.arange(2)), [0.125])
    assert np.isnan(stolen(seconds[..., :1], ("user",), np.arange(2)))


def test_a_nodes_queue_and_switches_are_per_thread() -> None:
    operands = np.full((2, len(NODE), 2), NAN)
    operands[:, NODE.index("run_queue"), 0] = 6
    operands[:, NODE.index("context_switches"), 0] = 0, 4000
    ratios = derive(operands, np.arange(2), np.ones(1), threads=2)
    assert ratios[0, NODE.index("run_queue")] == 0.75
    np.testing.assert_allclose(ratios[0, NODE.index("context_switches")], 2 / 3, atol=1e-6)
    assert np.isnan(operands[:, NODE.index("run_queue"), 1]).all()  # they were not changed


def test_without_operands_all_channels_are_unknown() -> None:
    ratios = derive(None, np.arange(3), np.ones(2), threads=2)
    assert ratios.shape == (2, len(NODE))
    assert np.isnan(ratios).all()


def test_an_operand_is_the_sum_of_its_series_and_nan_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = Derivation("share", {"twin": Operands(("errors", 'drops{way="in"}'), ("packets",))})
    schema = Schema((Channel("network_errors", derivation=errors), Channel("x", derivation=Derivation("rate", {}))))
    monkeypatch.setattr(node_channels, "NODE", schema)
    series = [
        ("errors", {"device": "a"}),
        ("drops", {"device": "a", "way": "in"}),
        ("drops", {"device": "a", "way": "out"}),
        ("errors", {"device": "b"}),
        ("other", {}),
    ]
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0, NAN])  # one more for what is missing
    np.testing.assert_equal(OperandSlots(series, "twin").read(values), [[11.0, NAN], [NAN, NAN]])


@pytest.mark.parametrize("dialect", ["twin", "node"])
def test_every_node_channel_can_be_read_from_both_exporters(dialect: str) -> None:
    for channel in NODE.channels:
        assert channel.scope == "node"
        assert channel.label
        assert channel.help.endswith(".")
        assert channel.derivation is not None
        if channel.derivation.rule == "stolen":
            continue  # from the counters of threads, which every source has
        first, second = channel.derivation.series[dialect]
        assert first
        assert bool(second) == (channel.derivation.rule in ("complement", "share"))
        assert bool(channel.derivation.half) == (channel.derivation.rule == "saturating")


def test_every_channel_of_jobs_can_be_read_from_our_exporter() -> None:
    exposed = set(FAMILIES)
    for channel in JOB.channels:
        assert channel.scope == "job"
        assert channel.name.startswith("job_")
        assert channel.label
        assert channel.help.endswith(".")
        assert channel.derivation is not None
        first, second = channel.derivation.series["twin"]
        assert {parse_selector(text).metric for text in (*first, *second)} <= exposed
