"""Places of closed events in the embedding, computed from archived data with the model in service."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.service.sample_state import EVENT, WHY, snapshot
from tests.service.web.pages.test_canvas_data import spread
from tests.service.web.pages.test_event_picture import Kept

from clustertwin.service.store.event_store import Case
from clustertwin.service.web.pages import embedding
from clustertwin.service.web.pages.closed_event_places import RETRY_S, ClosedEventPlaces, event_embeddings

OVER = Case(replace(EVENT, end_s=9_995), WHY, "confirmed")


@pytest.fixture
def known(clock):
    return ClosedEventPlaces(clock)


def places(known, detector, past, cases=(OVER,)):
    """The places after the background thread has finished."""
    known.of(detector, past, cases)
    if known._worker:
        known._worker.join()
    return known.of(detector, past, cases)


def test_an_event_lies_where_its_known_threads_do(detector):
    # The second thread of the event has no valid data; the third thread does not belong to it.
    place = event_embeddings(detector, Kept(), OVER)
    assert place.shape == (1, detector.stored.model.config.latent)
    assert np.isfinite(place).all()
    # The model places a thread in iowait away from an idle thread.
    apart = replace(EVENT, places=(("n1", (2,)),))
    idle = event_embeddings(detector, Kept(), Case(apart, WHY))
    assert np.linalg.norm(place - idle) > 0.1


def test_an_event_without_archived_data_has_no_place(detector, known):
    assert len(event_embeddings(detector, Kept(known=False), OVER)) == 0
    elsewhere = Case(replace(EVENT, places=(("n9", (0,)),)), WHY, "confirmed")
    assert places(known, detector, Kept(), [elsewhere]) == []


def test_another_model_has_other_places(detector, known, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "clustertwin.service.web.pages.closed_event_places.event_embeddings",
        lambda detector, past, case: asked.append((detector.version, case.id)) or np.ones((1, 2), np.float32),
    )
    for version in ("a", "a", "b"):
        [(case, _)] = places(known, SimpleNamespace(version=version), Kept())
        assert case is OVER
    assert asked == [("a", "e1"), ("b", "e1")]


def test_an_archive_that_does_not_answer_is_queried_again_later(detector, known, clock):
    assert places(known, detector, Kept("Prometheus is down")) == []
    assert places(known, detector, Kept()) == []
    clock.now_s += RETRY_S
    assert [case for case, _ in places(known, detector, Kept())] == [OVER]


def test_without_an_archive_there_are_no_places(detector, known):
    assert places(known, detector, None) == []


def test_closed_events_are_placed_on_the_axes_of_the_threads():
    scores, z = spread(4)
    now = replace(snapshot(), scores=scores)
    picture, axes = embedding.points(now, None, None, [(OVER, z[:2])])
    assert [(event["id"], event["name"], event["verdict"]) for event in picture["judged"]] == [
        ("e1", "job 17", "confirmed")
    ]
    np.testing.assert_allclose(picture["judged"][0]["at"], axes.place(z[:2]), atol=1e-3)
