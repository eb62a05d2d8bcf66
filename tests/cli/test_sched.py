"""The commands of `twin sched`."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from clustertwin.cli.sched import app
from clustertwin.core.errors import SettingsError
from clustertwin.workload.formats import read, write
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.policies import find_policy


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    n = 300
    run_s = rng.integers(1, 500, n)
    jobs = Jobs.build(
        np.cumsum(rng.integers(0, 60, n)), run_s, request_s=run_s * 2, cpus=rng.integers(1, 9, n),
        user=rng.integers(1, 5, n), machine=Machine(nodes=16, cpus_per_node=1),
    )  # fmt: skip
    path = tmp_path / "log.swf"
    write(jobs, path)
    return path


def call(*arguments: object) -> dict:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_simulate_prints_a_document_and_writes_the_schedule(log: Path, tmp_path: Path):
    out = tmp_path / "schedule.swf"
    document = call(
        "simulate", log, "--policy", "fcfs", "--policy", "sjf", "--backfill", "easy", "--out", out, "--json"
    )
    assert document["procs"] == 16
    assert [row["policy"] for row in document["schedules"]] == ["fcfs", "sjf"]
    written = read(out)
    assert len(written) == 300
    assert written.wait_s.mean() == pytest.approx(document["schedules"][0]["wait_s"]["mean"], abs=1)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".html"])
def test_simulate_draws_a_chart(log: Path, tmp_path: Path, suffix: str):
    chart = tmp_path / f"chart{suffix}"
    call("simulate", log, "--gantt", chart, "--json")
    start = chart.read_bytes()[:15]
    assert start.startswith(b"\x89PNG" if suffix == ".png" else b"<!doctype html>")


@pytest.mark.parametrize("option", ["--out", "--gantt"])
def test_simulate_overwrites_no_file_without_force(log: Path, tmp_path: Path, option: str):
    target = tmp_path / ("kept.swf" if option == "--out" else "kept.html")
    target.write_text("earlier")
    refused = CliRunner().invoke(app, ["simulate", str(log), option, str(target)])
    assert "already exists; use --force" in str(refused.exception)
    assert target.read_text() == "earlier"


def test_simulate_refuses_hours_that_end_before_they_start(log: Path):
    with pytest.raises(SettingsError, match="--hours 5 1: the end must be after the start"):
        call("simulate", log, "--hours", 5, 1)


@pytest.mark.parametrize("window", ["300:400", "100:100", "200:100"])
def test_evaluate_names_a_window_without_jobs(log: Path, window: str):
    with pytest.raises(SettingsError, match=f"--window {window} has no job; the log has jobs 0:300"):
        call("evaluate", log, "--policy", "sjf", "--window", window)


def test_evaluate_says_that_a_window_is_cut_by_the_end_of_the_log(log: Path, twin_here):
    done = twin_here("sched", "evaluate", log, "--window", "200:800", "--policy", "sjf", "--json")
    assert "--window 200:800: the log ends with job 300" in done.stderr


def test_evaluate_prints_the_mean_over_windows(log: Path):
    (row,) = call("evaluate", log, "--policy", "sjf", "--window", "0:100", "--window", "100:200", "--json")
    assert row["bounded_slowdown"] == pytest.approx(np.mean(row["windows"]))
    assert len(row["windows"]) == 2


def test_choose_takes_the_best_policy_of_the_first_part(log: Path):
    document = call("choose", log, "--policy", "fcfs", "--policy", "sjf", "--first-part", 0.5, "--json")
    slowdowns = {row["policy"]: row["first"]["slowdown"] for row in document["policies"]}
    assert document["chosen"] == min(slowdowns, key=lambda name: slowdowns[name])
    assert document["ratio_to_best"] >= 1.0
    assert [row["rest"]["policy"] for row in document["policies"]] == ["fcfs", "sjf"]
    patient = call("choose", log, "--policy", "sjf", "--patience-h", 2, "--json")
    assert patient["policies"][0]["rest"]["policy"] == "sjf, patience 2 h"


@pytest.mark.slow
def test_train_writes_a_policy_that_simulate_accepts(log: Path, tmp_path: Path):
    out = tmp_path / "mine.safetensors"
    rounds = ("--ppo-rounds", 0, "--evolve-rounds", 1, "--sequences", 2)
    synthetic = ("--generator", "bootstrap", "--generated", 200)
    trained = call("train", log, "--out", out, *rounds, *synthetic, "--hold-out", "0:50", "--json")
    assert trained["rounds"][0]["stage"] == "evolve"
    assert call("simulate", log, "--policy", out, "--json")["schedules"][0]["policy"] == "mine"


@pytest.mark.slow
def test_train_refuses_the_policy_of_another_log_and_force_starts_anew(log: Path, tmp_path: Path):
    jobs, other, out = read(log), tmp_path / "other.swf", tmp_path / "mine.safetensors"
    write(jobs.take(slice(0, 250)), other)
    arguments = ("--out", out, "--ppo-rounds", 0, "--evolve-rounds", 1, "--sequences", 1, "--json")
    call("train", log, *arguments)
    refused = CliRunner().invoke(app, ["train", str(other), *map(str, arguments), "--procs", "16"])
    assert refused.exit_code != 0
    assert "300 jobs" in str(refused.exception)
    assert "now 250 jobs" in str(refused.exception)
    assert call("train", other, *arguments, "--procs", 16, "--force")["rounds"][0]["number"] == 1
    assert call("train", other, *arguments, "--procs", 16)["rounds"][0]["number"] == 1  # resumed: the same log


@pytest.mark.medium
def test_train_across_logs_takes_each_machine_from_its_log_or_from_the_option(log: Path, tmp_path: Path):
    jobs = read(log)
    larger, unknown = tmp_path / "larger.swf", tmp_path / "unknown.swf"
    write(replace(jobs, machine=Machine(nodes=64, cpus_per_node=1)), larger)
    write(replace(jobs, machine=Machine()), unknown)
    arguments = ("--ppo-rounds", 0, "--evolve-rounds", 1, "--sequences", 1, "--json")
    call(
        "train", log, "--across", larger, "--across", f"{unknown}=256", "--out", tmp_path / "m.safetensors", *arguments
    )
    trained = find_policy(str(tmp_path / "m.safetensors")).trained
    assert (trained.procs, trained.most_procs) == (16, 256)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("unknown.swf", "use --across .*unknown.swf=PROCS"), ("unknown.swf=0", "LOG or LOG=PROCS"), ("x=many", "=PROCS")],
)
def test_train_across_refuses_a_log_without_the_size_of_its_machine(log: Path, tmp_path: Path, text: str, reason: str):
    write(replace(read(log), machine=Machine()), tmp_path / "unknown.swf")
    with pytest.raises(SettingsError, match=reason):
        call("train", log, "--across", tmp_path / text, "--out", tmp_path / "m.safetensors")


def test_whatif_reads_the_output_of_squeue_from_a_file(tmp_path: Path):
    queue = tmp_path / "queue.txt"
    queue.write_text("1|a|RUNNING|4|1|10:00|0:00|None\n2|b|PENDING|4|1|10:00|0:00|Resources\n")
    document = call("whatif", "--squeue", queue, "--procs", 4, "--procs", 8, "--json")
    assert [scenario["start_s"] for scenario in document["scenarios"]] == [[600.0], [0.0]]
    assert document["asked_s"] is None  # the time at which the file was written is unknown


def test_whatif_names_the_jobs_in_its_table(tmp_path: Path):
    queue = tmp_path / "queue.txt"
    lines = [f"4711_{i}|{'ab'[i % 2]}da|PENDING|4|1|10:00|0:00|Resources" for i in range(60)]
    queue.write_text("\n".join(["1|root|RUNNING|4|1|10:00|0:00|None", *lines, ""]))
    shown = CliRunner().invoke(app, ["whatif", "--squeue", str(queue), "--procs", "4"], catch_exceptions=False).stdout
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "4711_" in line]
    assert rows[:2] == [["4711_0", "ada", "600"], ["4711_1", "bda", "1200"]]
    assert len(rows) == 50
    assert "10 later jobs: use --json" in shown


def test_whatif_draws_new_jobs_from_the_past(tmp_path: Path, log: Path):
    queue = tmp_path / "queue.txt"
    queue.write_text("1|a|RUNNING|16|1|10:00|0:00|None\n2|b|PENDING|16|1|10:00|0:00|Resources\n")
    document = call("whatif", "--squeue", queue, "--procs", 16, "--past", log, "--futures", 5, "--hours", 1, "--json")
    assert 0 < document["scenarios"][0]["start_s"][0] <= 600


@pytest.mark.slow
def test_study_writes_a_report(log: Path, tmp_path: Path):
    jobs = read(log)
    long_log = tmp_path / "long.swf"
    parts = [replace(jobs, submit_s=4 * jobs.submit_s + i * 50_000, id=jobs.id + i * len(jobs)) for i in range(12)]
    write(parts, long_log)
    out = tmp_path / "study"
    budget = ("--ppo-rounds", 0, "--evolve-rounds", 1, "--sequences", 1, "--seeds", 1, "--windows", 2)
    results = call("study", long_log, "--out", out, "--generator", "bootstrap", "--no-both", *budget, "--json")
    assert [result["name"] for result in results[:2]] == ["real", "bootstrap"]
    assert json.loads((out / "study.json").read_text()) == results
    assert "held-out jobs" in (out / "study.html").read_text()


def test_simulate_prints_a_table_and_its_remarks(log: Path):
    done = CliRunner().invoke(app, ["simulate", str(log), "--procs", "7"], catch_exceptions=False)
    assert "backfilling: none" in done.stdout
    assert "jobs: refused, larger than the machine" in done.stderr


def test_start_answers_for_a_job_of_a_queue_in_a_file(tmp_path: Path):
    queue = tmp_path / "queue.txt"
    queue.write_text("11|anna|RUNNING|8|1|1:00:00|10:00|None\n12|bo|PENDING|8|1|30:00|0:00|Resources\n")
    document = call("start", "--squeue", queue, "--procs", 8, "--job", "12", "--json")
    (answer,) = document["starts"]
    assert (answer["job"], answer["p50_s"], answer["by_limits_s"]) == ("12", 3000.0, 3000.0)


def test_start_draws_run_times_and_new_jobs_from_a_log(log: Path, tmp_path: Path):
    queue = tmp_path / "queue.txt"
    queue.write_text("11|anna|RUNNING|16|1|1:00:00|1:00|None\n12|bo|PENDING|8|1|30:00|0:00|Resources\n")
    question = ("--like", "4 cpus, 10 min", "--futures", 10, "--hours", 1)
    document = call("start", "--squeue", queue, "--procs", 16, "--past", log, *question, "--json")
    (answer,) = document["starts"]
    assert (answer["job"], answer["futures"]) == ("like", 10)
    assert answer["p10_s"] <= answer["p50_s"] <= answer["p90_s"]


def test_predicted_estimates_refuse_another_policy(log: Path):
    command = ("simulate", log, "--backfill", "easy", "--estimates", "predicted", "--json")
    assert call(*command)["schedules"][0]["policy"] == "fcfs, predicted times"
    with pytest.raises(SettingsError, match="--policy fcfs"):
        call(*command, "--policy", "sjf")


def test_start_judges_itself_on_a_log(log: Path):
    score = call("start", "--replay", log, "--asked", 5, "--futures", 5, "--json")
    assert (score["procs"], score["jobs"]) == (16, 5)
    assert 0.0 <= score["coverage"] <= 1.0
    with pytest.raises(SettingsError, match="--replay"):
        call("start", "--replay", log, "--job", "1")


def test_evaluate_names_the_jobs_that_it_leaves_out(log: Path):
    """The means were of the other jobs, without a word."""
    words = ["evaluate", str(log), "--window", "0:100", "--procs", "4", "--policy", "fcfs"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "jobs: refused, larger than the machine" in " ".join(done.output.split())
