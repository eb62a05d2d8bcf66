"""The UMAP projection: fitted once; later threads are placed between the nearest fitted ones."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest

from clustertwin.service.web.pages import umap_projection
from clustertwin.service.web.pages.umap_projection import LEAST, UmapProjection, UmapProjections


def test_a_thread_is_placed_at_an_equal_fitted_thread_or_between_the_nearest():
    known = np.array([[0, 0], [2, 0], [50, 50], [60, 60], [70, 70], [80, 80]], np.float32)
    places = np.array([[0, 0], [10, 0], [100, 0], [100, 1], [100, 2], [100, 3]], np.float32)
    drawn = UmapProjection("m", known, places)
    at = drawn.place(np.array([[0, 0], [1, 0]], np.float32))
    assert at[0] == pytest.approx([0, 0], abs=1e-3)
    assert 5 < at[1, 0] < 12  # the three distant threads have a small weight


def test_too_few_threads_are_reported():
    drawn, note = UmapProjections().of("m", np.zeros((LEAST - 1, 2), np.float32))
    assert drawn is None
    assert f"there are {LEAST - 1}" in note


def test_an_unfinished_and_a_failed_fit_are_reported(monkeypatch):
    z = np.zeros((LEAST, 2), np.float32)
    coming: Future[UmapProjection] = Future()
    monkeypatch.setattr(umap_projection, "_fit_in_background", lambda model, embedding: coming)
    projections = UmapProjections()
    assert projections.of("m", z) == (None, "UMAP is being fitted; until then the axes are principal components")
    drawn = UmapProjection("m", z, z)
    coming.set_result(drawn)
    assert projections.of("m", z) == (drawn, "")
    coming = Future()
    coming.set_exception(ValueError("no"))
    assert projections.of("another", z) == (None, "UMAP: no")


@pytest.mark.slow
def test_two_kinds_of_threads_are_two_islands():
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(0, 1, (40, 8)), rng.normal(20, 1, (40, 8))]).astype(np.float32)
    at = umap_projection.fit("m", z).place(z)
    spread = max(at[:40].std(0).max(), at[40:].std(0).max())
    assert np.linalg.norm(at[:40].mean(0) - at[40:].mean(0)) > 4 * spread
