"""`twin trace forecast` on the command line: the document, the table, the plot, and what is refused."""

from __future__ import annotations

import numpy as np
import orjson
import pytest

from clustertwin.workload.formats import write
from clustertwin.workload.jobs import Jobs


@pytest.fixture
def source(tmp_path):
    rng = np.random.default_rng(0)
    nodes = 1 << rng.integers(0, 4, 600)
    jobs = Jobs.build(
        np.sort(np.round(rng.uniform(0, 28 * 86400, 600))), np.round(rng.lognormal(6, 1, 600)) + 1, nodes=nodes,
        cpus=8 * nodes, request_s=np.full(600, 90000.0), user=rng.integers(0, 5, 600), status=np.ones(600),
        epoch_s=1_700_000_000.0,
    )  # fmt: skip
    write(jobs, tmp_path / "log.csv")
    return tmp_path / "log.csv"


@pytest.mark.slow
def test_the_document_has_an_interval_of_every_measure_for_every_week(twin_here, source, tmp_path):
    done = twin_here(
        "trace", "forecast", source, "--weeks", 2, "--draws", 3, "--plot", tmp_path / "coming.html", "--json"
    )
    assert done.returncode == 0, done.stderr
    document = orjson.loads(done.stdout)
    assert len(document["weeks"]) == 2
    for measure in ("load", "jobs", "users", "wait_s"):
        interval = document["weeks"][0][measure]
        assert interval["low"] <= interval["median"] <= interval["high"]
    assert any("the seasons of the year" in reason for reason in document["not_learnt"])
    assert "<svg" in (tmp_path / "coming.html").read_text()


@pytest.mark.medium
def test_the_table_names_what_was_not_learnt_on_standard_error(twin_here, source):
    done = twin_here("trace", "forecast", source, "--weeks", 1, "--draws", 2)
    assert done.returncode == 0, done.stderr
    assert "Simulated coming weeks" in done.stdout
    assert "not learnt: how the load drifts" in done.stderr


def test_a_plot_of_another_kind_and_an_existing_file_are_refused(twin_here, source, tmp_path):
    other = twin_here("trace", "forecast", source, "--plot", tmp_path / "coming.txt")
    assert "a plot is written as .png, .svg, .pdf, .html" in other.stderr
    (tmp_path / "coming.png").write_text("mine")
    again = twin_here("trace", "forecast", source, "--plot", tmp_path / "coming.png")
    assert "already exists; use --force" in again.stderr
    assert (tmp_path / "coming.png").read_text() == "mine"
