"""The bundled detector gives the scores, the version and the files that it gave when it was made.

golden_scores.csv was written by commit 20ed400. The scores depend on the CPU and the matrix library: sums are ordered
differently, and near the middle of a distribution that can change a score by .002. So nearly all scores are compared
with a small tolerance, and the others with a larger one; the version and the files are compared exactly.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clustertwin.telemetry.detection import bundled as package
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.detector_store import save
from clustertwin.telemetry.moments.moment import moments

from .conftest import campaign

GOLDEN = Path(__file__).parent / "golden_scores.csv"


def scores() -> tuple[tuple[str, ...], np.ndarray]:
    """(thread, 1 + view): score and surprise of every thread in four moments of a cluster with faults."""
    traces = campaign(77, hours=0.75, anomalies=("bad-io", "hung-job", "throttled"), anomaly_ratio=0.4)
    every = [bundled().score(moment) for moment, _ in moments(traces, every_s=600)]
    return every[0].views, np.concatenate([np.column_stack([each.score, each.surprise]) for each in every])


def test_the_scores_are_those_of_the_golden_file():
    views, table = scores()
    assert GOLDEN.read_text().splitlines()[0].split(",") == ["score", *views]
    golden = np.genfromtxt(GOLDEN, delimiter=",", skip_header=1)
    assert (golden[:, 0] > bundled().threshold).sum() > 20
    np.testing.assert_allclose(table, golden, rtol=5e-3, atol=5e-3)
    assert (~np.isclose(table, golden, rtol=1e-3, atol=1e-3, equal_nan=True)).mean() < 0.01


def test_the_version_is_the_one_it_was_released_with():
    assert bundled().sha256 == "0ce394696ca45524ea3fb1027cfab1ec456421a9857e031bd383f77717414ed3"


def test_saving_it_again_gives_the_same_bytes(tmp_path: Path):
    save(tmp_path, bundled())
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (Path(package.__file__).parent / path.name).read_bytes(), path.name
    assert len(list(tmp_path.iterdir())) == 4
