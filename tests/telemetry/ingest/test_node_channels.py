"""Node channels: known answers of each rule, what stays unknown, and sums over series."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.channels import NODE, Channel, Derivation, Operands, Schema
from clustertwin.telemetry.ingest import node_channels
from clustertwin.telemetry.ingest.node_channels import OperandSlots, derive

NAN = float("nan")


def of_rule(rule: str, *operands: tuple[float, float]) -> list[float]:
    """The ratios of one channel whose operands were these, a second apart."""
    ratios = np.empty((len(operands) - 1, 1))
    node_channels._derive(
        np.array(operands, float)[:, None],
        np.arange(len(operands)),
        np.ones(len(operands) - 1),
        np.array([node_channels._RULES.index(rule)]),
        ratios,
    )
    return ratios[:, 0].tolist()


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


def test_without_operands_all_channels_are_unknown() -> None:
    ratios = derive(None, np.arange(3), np.ones(2))
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
        first, second = channel.derivation.series[dialect]
        assert first
        assert bool(second) == (channel.derivation.rule != "rate")
