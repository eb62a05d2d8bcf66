"""The /metrics page, read back with Prometheus' own parser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.service.sample_state import EVENT, NOW_S, moment, scores
from tests.service.sample_state import state as sample_state

from clustertwin import __version__
from clustertwin.core.errors import InputError
from clustertwin.service.act.action_journal import ActionPlan, Journal
from clustertwin.service.act.slurm_commands import JobFacts
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.outgoing.service_metrics import MetricFamily, SeriesLimits, _lines, render
from clustertwin.service.store.quiet_periods import Silence
from clustertwin.telemetry.learning.champions import learning_state
from clustertwin.telemetry.learning.champions.learning_state import freeze

GOLDEN = Path(__file__).with_name("golden.prom")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[ServiceState]:
    published = sample_state(tmp_path)
    yield published
    published.store.close()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """(name, label values …) -> value. Prometheus would refuse a duplicate series."""
    values: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, *sample.labels.values())
            assert key not in values, f"{key} twice"
            values[key] = sample.value
    return values


def test_the_whole_page(state):
    """To update the golden file, delete it and run the test twice."""
    text = render(state, threads=True).replace(f'version="{__version__}"', 'version="…"')
    if not GOLDEN.exists():
        GOLDEN.write_text(text)
        pytest.fail(f"{GOLDEN.name} was not there and is written anew: look at it")
    assert text == GOLDEN.read_text()


def test_an_unknown_value_is_absent(state):
    values = samples(render(state))
    assert values["twin_node_score", "n1"] == 4.5
    assert ("twin_node_score", "n2") not in values
    assert values["twin_node_threads", "n2", "unknown"] == 1
    assert values["twin_node_staleness_seconds", "n2"] == 40


def test_threads_are_included_only_on_request(state):
    assert not any(key[0].startswith("twin_thread") for key in samples(render(state)))
    values = samples(render(state, threads=True))
    assert values["twin_thread_score", "n1", "1"] == 4.0
    assert ("twin_thread_score", "n2", "1") not in values


def test_an_event_is_exported_until_it_is_dismissed_or_silenced(state):
    def is_exported() -> bool:
        return ("twin_event_score", "e1", "n1", "17", "", "reconstruction", "iowait") in samples(render(state))

    assert is_exported()
    state.store.vet(["e1"], "confirmed", who="ada", now_s=NOW_S)
    assert is_exported()
    state.store.vet(["e1"], "dismissed", who="ada", now_s=NOW_S)
    assert not is_exported()
    state.store.undo("e1", who="ada", now_s=NOW_S)
    assert is_exported()
    state.store.quiet_periods.add_silence(Silence(NOW_S + 60, node="n*"), NOW_S)
    assert not is_exported()
    assert samples(render(state))["twin_events_open", "reconstruction"] == 1


def test_in_shadow_no_event_is_exported_and_the_shadow_is(state):
    event = "twin_event_score", "e1", "n1", "17", "", "reconstruction", "iowait"
    assert samples(render(state))[("twin_shadow",)] == 0
    state.may_be_in_shadow = True
    values = samples(render(state))
    assert values[("twin_shadow",)] == 1
    assert event not in values
    assert values["twin_events_open", "reconstruction"] == 1  # it is counted and shown
    learning_state.end_shadow(state.home, "learned", NOW_S - 5.0)  # the event was last seen before that
    assert event not in samples(render(state))
    state.store.write([(replace(EVENT, seen_s=NOW_S), None)])  # and is seen again
    values = samples(render(state))
    assert event in values
    assert values[("twin_shadow",)] == 0


def test_verdicts_of_the_week_are_counted(state):
    state.store.vet(["e1"], "confirmed", who="ada", now_s=NOW_S)
    values = samples(render(state))
    assert values["twin_events_week", "confirmed"] == 1
    assert values["twin_events_week", "none"] == 0


def test_the_state_of_learning_is_exported_and_a_damaged_file_does_not_fail_the_page(state, tmp_path):
    assert samples(render(state))["twin_learning_state", "learning"] == 1
    freeze(tmp_path, "audit")
    assert samples(render(state))["twin_learning_state", "frozen"] == 1
    assert 'twin_learning_stopped_info{state="frozen",reason="audit"} 1' in render(state)
    (tmp_path / "learning.json").write_text("{")
    assert samples(render(state))["twin_learning_state", "unreadable"] == 1


def test_the_page_works_if_the_store_cannot_be_read(state, monkeypatch):
    from clustertwin.core.errors import OutputError

    def broken(*_: object, **__: object) -> None:
        raise OutputError("disk I/O error")

    monkeypatch.setattr(state.store, "events", broken)
    values = samples(render(state))
    assert values[("twin_store_readable",)] == 0
    assert values[("twin_loop_lag_seconds",)] == 1.5


def test_the_number_of_series_is_limited(state):
    node, job = state.snapshot.nodes[0], state.snapshot.jobs[0]
    many = replace(
        state.snapshot,
        nodes=tuple(replace(node, node=f"n{i}") for i in range(50)),
        jobs=tuple(replace(job, job=str(i)) for i in range(50)),
        scored=moment(tuple(f"n{i}" for i in range(50))),
        scores=scores([1.0] * 100),
    )
    state.publish(many, None)
    state.store.write((replace(EVENT, id=f"e{i}"), None) for i in range(50))
    values = samples(render(state, threads=True, limits=SeriesLimits(nodes=10, jobs=10, events=10, threads=10)))
    for name in ("twin_node_score", "twin_job_score", "twin_event_score", "twin_thread_score"):
        assert sum(key[0] == name for key in values) == 10, name
    assert values["twin_metrics_left_out", "node"] == 40
    assert values["twin_metrics_left_out", "thread"] == 90


@given(st.text(max_size=400), st.text(max_size=400))
def test_any_name_can_be_read_back_from_a_label(first, second):
    text = "".join(_lines(MetricFamily("twin_x", "x", [({"a": first, "b": second}, 1.0)])))
    ((labels,),) = [[s.labels for s in family.samples] for family in text_string_to_metric_families(text)]
    for name, value in (("a", first), ("b", second)):
        assert labels[name] == value if len(value) <= 200 else len(labels[name]) == 200


def test_long_names_with_the_same_beginning_stay_different():
    names = ["x" * 300 + end for end in "ab"]
    text = "".join(_lines(MetricFamily("twin_x", "x", [({"a": name}, 1.0) for name in names])))
    assert len(samples(text)) == 2


def test_an_alert_can_say_the_title_the_reason_and_the_owner(state):
    (labels,) = [
        sample.labels
        for family in text_string_to_metric_families(render(state))
        for sample in family.samples
        if sample.name == "twin_event_info"
    ]
    assert labels["title"] == "Job 17 is unusual: iowait 70 % on 2 threads for 3 min, more than the 2 % expected"
    assert labels["reason"].startswith("2 threads: iowait was 70 % over 100 s; 2 % was expected.")
    assert labels["owner"] == "ada"
    assert labels["next_step"]


def test_the_labels_of_an_event_that_identify_its_alert_stay_when_a_job_and_a_node_join(state):
    def identity() -> tuple[str, ...]:
        (key,) = [key for key in samples(render(state)) if key[0] == "twin_event_score"]
        return key[1:5]

    before = identity()
    grown = replace(EVENT, jobs=("17", "16"), places=(*EVENT.places, ("n0", (0,))), view="density", score=9.0)
    state.store.write([(grown, None)])
    assert identity() == before == ("e1", "n1", "17", "")


def test_a_damaged_action_does_not_hide_the_others_or_the_page(state):
    journal = Journal(state.store.database)
    facts = JobFacts("42", "ada", 1000, "a", "p", "RUNNING", 1.0, ("n1",), None, 1, 0)
    plan = ActionPlan(facts, "stopped", "It is stopped.", 0.99, "ask", "TERM", 0.0, promised_node_hours=3.0)
    actions = [journal.propose(event, "cancel", "hung", plan, 1.0) for event in ("a", "b", "c")]
    for action, hours in zip(actions, (2.0, 5.0, None), strict=True):
        if hours is not None:
            journal.measure(action.id, hours)
    with state.store.database.transaction() as connection:
        for action, damaged in zip(actions[1:], ("{", '{"facts": {}}'), strict=True):
            connection.execute("UPDATE actions SET plan = ? WHERE id = ?", (damaged, action.id))
    values = samples(render(state))
    assert values["twin_actions", "proposed"] == 3
    assert values["twin_savings_node_hours", "promised"] == 3.0
    assert values["twin_savings_node_hours", "measured"] == 2.0
    assert [action.event for action in journal.actions()] == ["a"]
    with pytest.raises(InputError, match=f"action {actions[1].id} is damaged"):
        journal.action(actions[1].id)
