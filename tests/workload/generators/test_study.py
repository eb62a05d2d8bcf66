import json

import numpy as np
import pytest
from typer.testing import CliRunner

from clustertwin.workload.fidelity import Sample
from clustertwin.workload.formats import read, write
from clustertwin.workload.study import imagine, page, study


@pytest.mark.slow
def test_a_study_has_real_against_real_every_generator_and_every_published_file(log, tmp_path):
    short = log.take(slice(0, 400))
    other = Sample("theirs", short.take(np.arange(400)))
    found = study(Sample("mine", short), ["bootstrap"], [other], tmp_path / "logs", seeds=2)
    assert [row.kind for row in found.rows] == ["yardstick"] * 3 + ["generator", "published"]
    assert found.rows[3].seeds == 2
    assert found.rows[4].scores["copies"] == [1.0]
    assert "theirs (published)" in page(found)


def test_a_study_that_was_stopped_goes_on_with_the_logs_it_has(log, tmp_path):
    real = Sample("mine", log.take(slice(0, 400)))
    logs, fit_s, _ = imagine(real, "crossover", 2, tmp_path, lambda what: None)
    again, fit_again_s, _ = imagine(real, "crossover", 2, tmp_path, lambda what: None)
    assert fit_s is not None
    assert fit_again_s == fit_s  # not fitted again: what it took the first time
    assert all(np.array_equal(a.jobs.run_s, b.jobs.run_s) for a, b in zip(logs, again, strict=True))


def test_generate_writes_a_log_that_can_be_read_and_the_same_seed_writes_it_again(log, tmp_path):
    from clustertwin.cli.trace import app

    write(log, tmp_path / "real.swf")
    command = ["generate", str(tmp_path / "real.swf"), "--jobs", "300", "--seed", "3", "--json", "--out"]
    done = CliRunner().invoke(app, [*command, str(tmp_path / "a.swf")], catch_exceptions=False)
    assert json.loads(done.stdout)["jobs"] == 300
    CliRunner().invoke(app, [*command, str(tmp_path / "b.swf")], catch_exceptions=False)
    assert (tmp_path / "a.swf").read_bytes() == (tmp_path / "b.swf").read_bytes()
    assert len(read(tmp_path / "a.swf")) == 300


def test_a_saved_generator_generates_without_the_log(log, tmp_path):
    from clustertwin.cli.trace import app

    write(log, tmp_path / "real.parquet")
    model, out = str(tmp_path / "model"), str(tmp_path / "a.parquet")
    first = ["generate", str(tmp_path / "real.parquet"), "--jobs", "99", "--out", out, "--save", model]
    CliRunner().invoke(app, first, catch_exceptions=False)
    CliRunner().invoke(app, ["generate", model, "--jobs", "99", "--out", str(tmp_path / "b.parquet")])
    a, b = read(tmp_path / "a.parquet"), read(tmp_path / "b.parquet")
    assert np.array_equal(a.run_s, b.run_s)
