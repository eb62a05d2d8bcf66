"""`twin trace` on the command line: exit codes, standard output, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest

from clustertwin.workload.formats import read, write
from clustertwin.workload.jobs import Jobs


@pytest.fixture
def twin(twin_here):
    """`twin trace` in this process."""
    return lambda *words: twin_here("trace", *words)


def log(n: int = 400, seed: int = 0) -> Jobs:
    rng = np.random.default_rng(seed)
    user, nodes = rng.integers(0, 3, n), 1 << rng.integers(0, 4, n)
    return Jobs.build(
        np.cumsum(rng.exponential(300, n)), np.round(rng.lognormal(6, 1, n)), request_s=np.full(n, 7200.0),
        wait_s=np.zeros(n), nodes=nodes, cpus=nodes * 8, user=user, status=np.ones(n), epoch_s=1_700_000_000.0,
        names={"user": ("ann", "bob", "eve")},
    )  # fmt: skip


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write(log(), tmp_path / "log.csv")
    return tmp_path / "log.csv"


def test_convert_writes_a_log_and_reports_what_it_read(twin, source, tmp_path):
    done = twin("convert", source, tmp_path / "log.swf", "--json")
    assert done.returncode == 0, done.stderr
    document = orjson.loads(done.stdout)
    assert (document["jobs"], document["format"], document["read"]["format"]) == (400, "swf", "alcf")
    assert len(read(tmp_path / "log.swf")) == 400


def test_convert_refuses_faults_and_overwriting_with_one_line(twin, source, tmp_path):
    bad = tmp_path / "bad.swf"
    bad.write_text("1 2 3\n")
    refused = twin("convert", bad, tmp_path / "out.swf")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"twin: {bad}:1: 3 fields, SWF has 18\n"
    again = twin("convert", source, bad)
    assert again.returncode == 1
    assert f"{bad} already exists; use --force to overwrite it" in again.stderr
    assert bad.read_text() == "1 2 3\n"


def test_lenient_lists_every_line_it_changed(twin, tmp_path):
    good = "{} {} 0 60 4 -1 -1 4 3600 -1 1 7 2 -1 3 -1 -1 -1\n"
    (tmp_path / "log.swf").write_text(good.format(1, 5) + "1 2 3\n" + good.format(2, 3))
    done = twin("convert", tmp_path / "log.swf", tmp_path / "out.parquet", "--lenient", "--json")
    findings = orjson.loads(done.stdout)["read"]["findings"]
    assert [(finding["line"], finding["fate"]) for finding in findings] == [(2, "dropped"), (3, "repaired")]


def test_anonymise_removes_names_and_is_consistent_for_one_secret(twin, source, tmp_path):
    (tmp_path / "secret").write_text("a secret of many letters")
    for out in ("a.csv", "b.csv"):
        assert twin("anonymise", source, tmp_path / out, "--secret-file", tmp_path / "secret").returncode == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert twin("anonymise", source, tmp_path / "c.csv").returncode == 0
    assert (tmp_path / "a.csv").read_bytes() != (tmp_path / "c.csv").read_bytes()
    for out in ("a.csv", "c.csv"):
        assert not {"ann", "bob", "eve"} & set(
            (tmp_path / out).read_text().replace('"', "").replace("\n", ",").split(",")
        )


@pytest.mark.slow
def test_describe_prints_and_plots(twin, source, tmp_path):
    pytest.importorskip("matplotlib")
    done = twin("describe", source, "--procs", 16, "--out", tmp_path / "log.png")
    assert "400 jobs in" in done.stdout, done.stderr
    assert (tmp_path / "log.png").read_bytes()[:4] == b"\x89PNG"
    document = orjson.loads(twin("describe", source, "--procs", 16, "--json").stdout)
    assert document["columns"]["nodes"]["most"] == 8
    assert sum(document["by_hour"]) == pytest.approx(1)


def test_a_plot_in_an_unknown_format_is_refused(twin, source, tmp_path):
    refused = twin("describe", source, "--out", tmp_path / "log.doc")
    assert refused.returncode == 2
    assert ".png, .svg, .pdf, .html" in refused.stderr


def test_compare_and_study_refuse_an_out_that_is_a_file_before_the_work(twin_here, source, tmp_path, monkeypatch):
    for work in ("clustertwin.workload.fidelity.compare", "clustertwin.workload.studies.generator_study.study"):
        monkeypatch.setattr(work, lambda *arguments, **options: pytest.fail("the work began"))
    for words in (("compare", source, source), ("study", source)):
        refused = twin_here("trace", *words, "--out", source)
        assert refused.returncode == 1
        assert f"{source}: cannot write: File exists" in refused.stderr


@pytest.mark.slow
def test_compare_writes_a_scorecard_and_one_self_contained_page(twin, source, tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    write(log(seed=1), tmp_path / "twin.csv")
    done = twin("compare", source, tmp_path / "twin.csv", "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    cards = orjson.loads(done.stdout)
    names = ["real, interleaved blocks of 100", "real, first half against second half", "IID bootstrap", "twin"]
    assert [card["name"] for card in cards] == names
    assert orjson.loads((tmp_path / "out/scorecard.json").read_bytes()) == cards
    page = (tmp_path / "out/report.html").read_text()
    assert page.count("<svg ") == 3
    assert "prefers-color-scheme: dark" in page
    for outside in ("<script", "<link", "src=", "@import", "url(http"):
        assert outside not in page
    waits = cards[-1]["scheduler"]["EASY"]["synthetic"]["wait_s"]
    assert f"Its jobs wait {waits:,.0f} s on average under EASY" in page
    assert page.index("in short") < page.index("<table"), "what the tables say comes before them"
    assert twin("compare", source, tmp_path / "twin.csv", "--out", tmp_path / "out").returncode == 1
