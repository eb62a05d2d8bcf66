"""`twin trace generate` and the study of generators: files, seeds, refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from clustertwin.core.errors import SettingsError
from clustertwin.workload.fidelity import ComparedLog
from clustertwin.workload.formats import read, write
from clustertwin.workload.generators import WorkloadChange
from clustertwin.workload.generators.generate_log import GenerateSettings, generate
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.studies.generator_study import (
    GeneratorStudySettings,
    parts,
    study,
    study_page,
    synthetic_logs,
)


@pytest.fixture
def trace():
    """`twin trace …` in this process."""
    from clustertwin.cli.trace import app

    return lambda *words: CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture
def real(log, tmp_path):
    write(log, tmp_path / "real.swf")
    return tmp_path / "real.swf"


@pytest.mark.slow
def test_a_study_has_real_against_real_every_generator_and_every_published_file(log, tmp_path):
    short = log.take(slice(0, 150))
    published = ComparedLog("theirs", short.take(np.arange(150)))
    settings = GeneratorStudySettings(seeds=2)
    result = study(ComparedLog("ours", short), ["bootstrap"], [published], tmp_path / "logs", settings)
    assert [row.kind for row in result.rows] == ["yardstick"] * 3 + ["generator", "published"]
    assert result.rows[3].seeds == 2
    assert result.rows[4].scores["copies"] == [1.0]
    assert result.real["load"] == result.rows[4].scores["load"][0]
    page = study_page(result)
    assert "theirs (published)" in page
    assert page.count("<tr class=yard>") == 3 * 4  # in each of three tables: the real log and three yardsticks
    assert "of theirs (published) is nearest" in page, "the page begins with what the tables say"
    assert parts(result.measures)[0][2][0] == "EASY wait, s"


@pytest.mark.slow
def test_a_study_names_a_generator_that_refuses_the_log_and_goes_on(log, tmp_path):
    real = ComparedLog("ours", replace(log.take(slice(0, 150)), machine=Machine()))
    settings = GeneratorStudySettings(seeds=1)
    result = study(real, ["private", "bootstrap"], [], tmp_path / "logs", settings)
    assert [row.name for row in result.rows if row.kind == "generator"] == ["bootstrap"]
    assert "size of its machine" in result.refused["private"]
    assert "Without private" in study_page(result)
    with pytest.raises(SettingsError, match="size of its machine"):
        study(real, ["private"], [], tmp_path / "logs", settings)


def test_an_interrupted_study_continues_with_the_logs_it_has(log, tmp_path):
    real = ComparedLog("ours", log.take(slice(0, 150)))
    logs, cost = synthetic_logs(real, "crossover", 2, tmp_path, lambda step: None)
    again, cost_again = synthetic_logs(real, "crossover", 2, tmp_path, lambda step: None)
    assert cost.fit_s is not None
    assert cost_again == cost  # read from the file, not measured again
    assert all(np.array_equal(a.jobs.run_s, b.jobs.run_s) for a, b in zip(logs, again, strict=True))


def test_slow_generators_may_have_fewer_seeds():
    settings = GeneratorStudySettings(seeds=10, slow_seeds=1)
    assert (settings.seeds_of("crossover"), settings.seeds_of("ctgan")) == (10, 1)


def test_the_same_seed_writes_the_same_file(trace, real, tmp_path):
    command = ["generate", real, "--jobs", 300, "--seed", 3, "--json", "--out"]
    assert json.loads(trace(*command, tmp_path / "a.swf").stdout)["jobs"] == 300
    trace(*command, tmp_path / "b.swf")
    assert (tmp_path / "a.swf").read_bytes() == (tmp_path / "b.swf").read_bytes()
    assert len(read(tmp_path / "a.swf")) == 300


def test_a_saved_generator_generates_without_the_log(trace, real, tmp_path):
    trace("generate", real, "--jobs", 99, "--out", tmp_path / "a.parquet", "--save", tmp_path / "model")
    trace("generate", tmp_path / "model", "--jobs", 99, "--out", tmp_path / "b.parquet")
    a, b = read(tmp_path / "a.parquet"), read(tmp_path / "b.parquet")
    assert np.array_equal(a.run_s, b.run_s)
    with pytest.raises(SettingsError, match="give --jobs or --days"):
        trace("generate", tmp_path / "model", "--out", tmp_path / "c.parquet")


@pytest.mark.parametrize("generator", ["crossover", "bootstrap"])
def test_generate_applies_every_change_with_any_generator(trace, real, tmp_path, generator):
    out = tmp_path / "changed.parquet"
    trace("generate", real, "--generator", generator, "--load", 1.5, "--nodes", 512, "--user", "2=0", "--size",
          "17-=0", "--days", 40, "--start", "2030-01-01", "--out", out)  # fmt: skip
    jobs = read(out)
    assert jobs.epoch_s == 1_893_456_000.0
    assert jobs.submit_s[-1] < 40 * 86400
    assert 2 not in jobs.user
    assert jobs.cpus.max() <= 16


def test_an_empty_range_of_sizes_is_refused_before_any_work(trace, tmp_path):
    with pytest.raises(SettingsError, match="'8-1' is empty"):
        trace("generate", tmp_path / "missing.swf", "--size", "8-1=2", "--out", tmp_path / "out.swf")


def test_a_period_without_jobs_is_refused_and_leaves_no_file(trace, real, tmp_path):
    with pytest.raises(SettingsError, match="the period is too short"):
        trace("generate", real, "--days", 1e-9, "--out", tmp_path / "out.swf")
    assert not (tmp_path / "out.swf").exists()


@pytest.mark.slow
def test_days_of_a_log_with_one_submit_time_are_refused(tmp_path):
    """A pass through such a log takes no time, so half a day had millions of jobs."""
    write(Jobs.build([0] * 50, range(1, 51), cpus=[1] * 50), tmp_path / "once.swf")
    settings = GenerateSettings(change=WorkloadChange(days=0.5))
    with pytest.raises(SettingsError, match="one submit time"):
        next(generate(tmp_path / "once.swf", settings).blocks)


def test_with_feedback_the_same_jobs_are_submitted_at_other_times(trace, real, tmp_path):
    made = trace("generate", real, "--jobs", "300", "--out", tmp_path / "open.swf")
    reacting = trace("generate", real, "--jobs", "300", "--feedback", "200", "--out", tmp_path / "closed.swf", "--json")
    assert (made.exit_code, reacting.exit_code) == (0, 0)
    assert json.loads(reacting.stdout)["feedback"]["procs"] == 200
    opened, closed = read(tmp_path / "open.swf"), read(tmp_path / "closed.swf")
    assert sorted(closed.run_s.tolist()) == sorted(opened.run_s.tolist())


def test_feedback_and_another_number_of_jobs_contradict_each_other(trace, real, tmp_path):
    with pytest.raises(SettingsError, match="give one of the two"):
        trace("generate", real, "--feedback", "128", "--nodes", "128", "--out", tmp_path / "never.swf")


def test_a_training_budget_is_refused_by_a_generator_that_has_none(tmp_path, log):
    write(log, tmp_path / "log.swf")
    settings = GenerateSettings("crossover", budget_minutes=5)
    with pytest.raises(SettingsError, match="crossover has no budget of training time"):
        generate(tmp_path / "log.swf", settings)


def test_a_log_of_start_times_gives_a_log_of_start_times(tmp_path, trace):
    """Each job starts when the last one ends. A synthetic job that overlapped another would have had to wait."""
    rng = np.random.default_rng(0)
    run_s = rng.integers(50, 3000, 400).astype(float)
    start_s = np.append(0.0, np.cumsum(run_s + rng.integers(0, 900, 400))[:-1])
    log = Jobs.build(start_s, run_s, cpus=np.full(400, 4), wait_s=np.zeros(400), user=rng.integers(1, 6, 400))
    write(log, tmp_path / "starts.swf")
    result = trace("generate", tmp_path / "starts.swf", "--out", tmp_path / "made.swf")
    made = read(tmp_path / "made.swf")
    assert "synthetic jobs also carry start times" in " ".join(result.output.split())
    assert np.all(np.diff(made.submit_s) >= made.run_s[:-1])


@pytest.mark.slow
def test_generate_says_how_a_training_went(real, tmp_path, trace):
    options = ("--generator", "findiff", "--budget-minutes", 0.01, "--jobs", 10, "--out", tmp_path / "made.swf")
    document = json.loads(trace("generate", real, *options, "--json").stdout)
    assert document["losses"][0][0] == 1.0
    assert f"trained for {document['losses'][-1][0]:.3g} epochs" in trace("generate", real, *options, "--force").output


@pytest.mark.slow
def test_generate_says_what_site_model_could_not_learn(log, tmp_path, trace):
    write(log.take(slice(0, 300)), tmp_path / "short.swf")
    result = trace("generate", tmp_path / "short.swf", "--generator", "site-model", "--out", tmp_path / "made.swf")
    assert "not learnt: the seasons of the year" in result.output
