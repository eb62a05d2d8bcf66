import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Windows
from clustertwin.telemetry.studies.reference.embedding_quality import KindPca, Pca, drawn_rows, silhouette


def windows(rng: np.random.Generator, n: int = 60) -> Windows:
    """Two kinds that each move in a plane of their own: four directions in all."""
    steps = rng.normal(0, 0.02, (n, 2))
    kind = np.arange(n) % 2
    values = np.zeros((n, 100, 4), np.float32)
    values[..., 0] = 0.5
    for i, k in enumerate(kind):
        values[i, 10 * k : 10 * k + 5, 0] += steps[i, 0]
        values[i, 50 + 10 * k : 55 + 10 * k, 1] += steps[i, 1]
    values[..., 3] = 1 - values[..., :3].sum(-1)
    names, empty = np.array(["np", "mpi-2"])[kind], np.full(n, "")
    return Windows(
        CPU, values, np.ones((n, 100), bool), np.arange(n) * 100, empty, np.zeros(n, np.int32), names, names, empty,
        empty, empty,
    )  # fmt: skip


def test_who_is_told_the_kind_needs_the_numbers_of_one_kind_only():
    train, test = windows(np.random.default_rng(0)), windows(np.random.default_rng(1))
    assert Pca(train, 2).embed(test)[1].mean() > 1e-6
    assert KindPca(train, 2).error(test).mean() < 1e-9
    assert Pca(train, 4).embed(test)[1].mean() < 1e-9


def test_a_kind_that_was_never_seen_has_no_error():
    train, test = windows(np.random.default_rng(0)), windows(np.random.default_rng(1))
    error = KindPca(train.take(train.job_type == "np"), 2).error(test)
    assert (np.isnan(error) == (test.job_type != "np")).all()


def test_a_few_windows_give_no_more_components_than_they_are():
    few = windows(np.random.default_rng(0), n=6)
    assert Pca(few, 16).embed(few)[0].shape == (6, 6)


def test_the_silhouette_of_one_kind_is_unknown():
    z = np.array([[0], [1], [10], [11]], np.float32)
    assert np.isnan(silhouette(z, np.full(4, "np")))
    # Each is 1 from its own, and 10.5 or 9.5 from the two others on average.
    assert silhouette(z, np.array(["a", "a", "b", "b"])) == pytest.approx((1 - 1 / 10.5 + 1 - 1 / 9.5) / 2)


def test_as_many_windows_of_each_kind_are_looked_at():
    some = windows(np.random.default_rng(0)).take(np.arange(0, 59))
    rows = drawn_rows(some, np.random.default_rng(0), each=10)
    assert np.unique(some.job_type[rows], return_counts=True)[1].tolist() == [10, 10]
    assert (np.diff(rows) > 0).all()
