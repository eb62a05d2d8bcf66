import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Windows
from clustertwin.telemetry.studies.reference.embedding_quality import (
    Pca,
    PcaPerKind,
    balanced_sample,
    separation,
    silhouette,
)
from clustertwin.telemetry.studies.reference.separability_section import drift


def windows(rng: np.random.Generator, n: int = 60) -> Windows:
    """Two kinds that vary in a plane each: four directions in total."""
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


def test_pca_per_kind_needs_only_the_components_of_one_kind():
    train, test = windows(np.random.default_rng(0)), windows(np.random.default_rng(1))
    assert Pca(train, 2).embed(test)[1].mean() > 1e-6
    assert PcaPerKind(train, 2).error(test).mean() < 1e-9
    assert Pca(train, 4).embed(test)[1].mean() < 1e-9


def test_a_kind_without_training_windows_has_no_error():
    train, test = windows(np.random.default_rng(0)), windows(np.random.default_rng(1))
    error = PcaPerKind(train.take(train.job_type == "np"), 2).error(test)
    assert (np.isnan(error) == (test.job_type != "np")).all()


def test_there_are_at_most_as_many_components_as_windows():
    few = windows(np.random.default_rng(0), n=6)
    assert Pca(few, 16).embed(few)[0].shape == (6, 6)


def test_the_silhouette_of_one_kind_is_undefined():
    z = np.array([[0], [1], [10], [11]], np.float32)
    assert np.isnan(silhouette(z, np.full(4, "np")))
    # Each point is 1 from its own kind, and 10.5 or 9.5 from the other kind on average.
    assert silhouette(z, np.array(["a", "a", "b", "b"])) == pytest.approx((1 - 1 / 10.5 + 1 - 1 / 9.5) / 2)


def test_the_sample_has_equally_many_windows_of_each_kind():
    unbalanced = windows(np.random.default_rng(0)).take(np.arange(0, 59))
    rows = balanced_sample(unbalanced, np.random.default_rng(0), count=10)
    assert np.unique(unbalanced.job_type[rows], return_counts=True)[1].tolist() == [10, 10]
    assert (np.diff(rows) > 0).all()


def test_a_classifier_of_one_kind_has_no_accuracy():
    z = np.array([[0], [1], [10], [11]], np.float32)
    label = np.array(["a", "a", "b", "b"])
    row = separation(z, label, z[:2], label[:2])
    assert np.isnan(row.linear_probe)
    assert np.isnan(row.nearest_neighbours)
    assert row.silhouette > 0.8


def test_a_correlation_of_kinds_is_told_from_one_within_a_kind():
    """One kind waits more and lies nearer; within each kind distance and iowait are independent."""
    rng = np.random.default_rng(0)
    some = windows(rng, n=120)
    label = np.array(["np", "good-io", "bad-io"])[np.arange(120) % 3]
    place = np.select([label == "np", label == "good-io"], [9.0, 4.0], 0.0)
    some.values[:, :, 2] = (np.select([label == "np", label == "good-io"], [0.1, 0.5], 0.9) + rng.normal(0, 0.01, 120))[
        :, None
    ]
    measured = drift((place + rng.normal(0, 0.1, 120))[:, None].astype(np.float32), some, label)
    assert measured.correlation < -0.7
    assert abs(measured.within_kinds) < 0.3
