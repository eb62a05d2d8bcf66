"""Names and patterns: what they match, what they may cost, and the budgets of quiet periods."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.service.store import name_patterns
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.name_patterns import NamePatterns, matches
from clustertwin.service.store.quiet_periods import (
    MOST_NAMES,
    MOST_PATTERNS,
    MOST_PERIODS,
    MaintenanceWindow,
    Silence,
)


@pytest.fixture
def periods(tmp_path):
    store = Store(tmp_path / "state.sqlite")
    yield store.quiet_periods
    store.close()


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("n01", "n0*", True),
        ("n11", "n0*", False),
        ("n1", "n?", True),
        ("n1", "n[12]", True),
        ("[::1]:9752", "[::1]:9752", True),
        ("N1", "n1", False),
        ("anything", "*", True),
    ],
)
def test_a_name_matches_itself_and_patterns(name, pattern, expected):
    assert matches(name, pattern) is expected
    assert NamePatterns((pattern, "other")).match(name) is expected


def test_a_stored_window_matches_a_node_once(periods, monkeypatch):
    periods.add_maintenance(MaintenanceWindow(("n0*",), 0.0, 100.0), 1.0)
    assert periods.maintenance(2.0)[0].covers("n01")
    monkeypatch.setattr(name_patterns, "_compiled", None)  # must not be asked again
    (window,) = periods.maintenance(3.0)
    assert window.covers("n01")
    assert asdict(window)["nodes"] == ("n0*",)


def test_the_patterns_of_all_open_windows_have_a_budget(periods):
    def add(nodes: list[str], end_s: float = 100.0) -> None:
        periods.add_maintenance(MaintenanceWindow(tuple(nodes), 0.0, end_s), 1.0)

    half = MOST_PATTERNS // 2
    add([f"*a{i}*" for i in range(half)], end_s=50.0)
    with pytest.raises(SettingsError, match=f"{MOST_PATTERNS + 1} patterns in all maintenance windows"):
        add([f"*b{i}*" for i in range(half + 1)])
    with pytest.raises(SettingsError, match="names in all"):
        add([f"n{i}" for i in range(MOST_NAMES + 1)])
    with pytest.raises(SettingsError, match="at most 8 wildcards"):
        add(["*a" * 20])
    with pytest.raises(SettingsError, match="at most 255 characters"):
        add(["n" * 256])
    add([f"n{i}" for i in range(1000)])  # names cost little
    assert len(periods.maintenance(60.0)) == 1
    periods.add_maintenance(MaintenanceWindow(tuple(f"*b{i}*" for i in range(half + 1)), 0.0, 100.0), 60.0)


def test_the_number_of_open_windows_and_silences_has_a_budget(periods):
    for i in range(MOST_PERIODS):
        periods._db._connection.execute(
            "INSERT INTO silences (node, job, owner, view, until_s, reason, who) VALUES (?, '', '', '', 100, '', '')",
            (f"n{i}",),
        )
    with pytest.raises(SettingsError, match="201 silences"):
        periods.add_silence(Silence(100.0, "n1"), 1.0)


@pytest.mark.slow
def test_forty_thousand_stored_patterns_do_not_stop_the_loop(periods, monkeypatch):
    """A database of an earlier release can hold them. Only the first comparison with a node costs time."""
    import json

    for i in range(40):
        nodes = json.dumps([f"*x{i}-{j}*" for j in range(1000)])
        periods._db._connection.execute(
            "INSERT INTO maintenance (nodes, start_s, end_s, reason, who) VALUES (?, 0, 100, '', '')", (nodes,)
        )
    nodes = [f"node{i:02d}" for i in range(20)]
    first = [any(window.covers(node) for window in periods.maintenance(1.0)) for node in nodes[:1]]
    assert first == [False]
    for node in nodes:
        any(window.covers(node) for window in periods.maintenance(1.0))
    windows = periods.maintenance(2.0)
    for window in windows:
        monkeypatch.setattr(window._patterns, "_patterns", ("no pattern has to be compared again",))
    assert not any(window.covers(node) for window in windows for node in nodes)
