"""The cause of an open event: findings every ten seconds -> when another cause takes over."""

from __future__ import annotations

from tests.telemetry.detection.test_events import a_moment, scored

from clustertwin.telemetry.detection.events.tracker import Tracker
from clustertwin.telemetry.detection.questions.finding import Finding


def played(*spells: tuple[str, int, int]) -> list[tuple[int, str, str]]:
    """Findings of one job, each with its cause and its first and last second -> when events opened and closed."""
    tracker, changes = Tracker(), []
    for end_s in range(1000, 1600, 10):
        findings = [
            Finding("change", cause, "j", "a", (0,), "idle", 0.9, 0.1, "own past", since_s, 5.0)
            for cause, since_s, last_s in spells
            if since_s <= end_s <= last_s
        ]
        for change in tracker.update(a_moment(end_s, ["j"]), scored(1.0), 3.0, findings=findings):
            if change.kind != "extended":
                changes.append((end_s, change.kind, change.event.cause))
    return changes


def test_a_hang_after_other_work_is_an_event_as_soon_as_it_has_lasted() -> None:
    """It used to wait for another minute, although the other work was gone."""
    changes = played(("cpu-contention", 1000, 1200), ("hung-rank", 1220, 1600))
    assert changes[1:] == [(1310, "closed", "cpu-contention"), (1310, "opened", "hung-rank")]


def test_a_cause_that_is_absent_for_a_moment_keeps_its_event() -> None:
    changes = played(("stalled-io", 1000, 1300), ("straggler", 1040, 1600), ("stalled-io", 1220, 1600))
    assert [(kind, cause) for _, kind, cause in changes] == [("opened", "stalled-io")]


def test_a_finding_that_explains_a_symptom_takes_over_its_event() -> None:
    """Ranks poll while one hangs. The time in the kernel was seen first, and it lasts as long as the hang."""
    changes = played(("kernel-time", 1000, 1600), ("hung-rank", 1200, 1600))
    assert [(kind, cause) for _, kind, cause in changes] == [
        ("opened", "kernel-time"),
        ("closed", "kernel-time"),
        ("opened", "hung-rank"),
    ]
    assert changes[1][0] <= 1290
