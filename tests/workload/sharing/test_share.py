"""`twin trace share`: from the accounting of a cluster to a directory that may be published."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests.workload.generators.conftest import office_log

from clustertwin.cli.trace_share import _print_shared
from clustertwin.core.errors import OutputError, TraceError
from clustertwin.workload.formats import read
from clustertwin.workload.generators import load
from clustertwin.workload.sharing.share_card import card_document, card_text
from clustertwin.workload.sharing.share_directory import refuse_used, write_shared
from clustertwin.workload.sharing.share_log import SharedLog, ShareSettings, share
from clustertwin.workload.simulator import simulate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed"),
]

HEADER = "JobIDRaw|JobID|JobName|User|Account|Partition|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|ReqCPUS|AllocCPUS|AllocNodes\n"  # fmt: skip  # noqa: E501


def sacct_text(users: int = 30) -> str:
    """Four weeks of sacct --parsable2, with names, a job that never started and one that failed."""
    jobs = office_log(days=28, users=users)
    lines = [HEADER]
    for i in range(len(jobs)):
        submit_s = float(jobs.epoch_s + jobs.submit_s[i])
        start_s, end_s = submit_s + 5, submit_s + 5 + float(jobs.run_s[i])
        times = "|".join(
            datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%S") for t in (submit_s, start_s, end_s)
        )
        state = "FAILED" if i == 3 else "COMPLETED"
        name = f"alice-{jobs.user[i]}"
        lines.append(
            f"{i + 1}|{i + 1}|train|{name}|physics-{jobs.user[i] % 3}|batch|{state}|{times}|{int(jobs.run_s[i])}|"
            f"{int(jobs.request_s[i] // 60)}|{jobs.cpus[i]}|{jobs.cpus[i]}|{jobs.nodes[i]}\n"
        )
    late = datetime.fromtimestamp(jobs.epoch_s + 27 * 86400, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    lines.append(f"99999|99999|gone|alice-1|physics-1|batch|CANCELLED|{late}|Unknown|{late}|0|60|16|0|0\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def accounting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accounting") / "jobs.sacct"
    path.write_text(sacct_text())
    return path


@pytest.fixture(scope="module")
def shared(accounting: Path) -> SharedLog:
    pytest.importorskip("opacus")
    return share(read(accounting, timezone="UTC"), ShareSettings(procs=64, noise_seed=1))


@pytest.fixture(scope="module")
def directory(shared: SharedLog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("shared") / "out"
    write_shared(shared, out)
    return out


def test_both_logs_open_and_hold_the_same_jobs(directory: Path) -> None:
    swf, parquet = read(directory / "log.swf"), read(directory / "log.parquet")
    assert len(swf) == len(parquet) > 32
    assert np.array_equal(swf.run_s, parquet.run_s)
    assert np.all(swf.run_s > 0)
    assert len(simulate(parquet, 64, "fcfs", "easy", unit="nodes")) == len(parquet)


def test_the_parquet_file_opens_in_pandas(directory: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(directory / "log.parquet")
    assert {"submit_s", "run_s", "nodes", "user"} <= set(frame.columns)
    assert frame["run_s"].min() > 0


def test_no_name_of_the_real_log_is_in_any_file(directory: Path, accounting: Path) -> None:
    assert b"alice" in accounting.read_bytes()
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"log.swf", "log.parquet", "card.md", "card.json", "generator.json"}
    for path in files:
        assert b"alice" not in path.read_bytes(), path
        assert b"physics" not in path.read_bytes(), path


def test_the_card_states_promise_fidelity_attacks_and_what_was_held_out(directory: Path) -> None:
    card, text = json.loads((directory / "card.json").read_text()), (directory / "card.md").read_text()
    assert card["guarantee"]["epsilon"] == pytest.approx(8, rel=0.01)
    assert card["guarantee"]["delta"] == 1e-6
    assert card["held_out"]["users"] == 15
    assert card["attacks"]["user_days"]["synthetic"]["auc"] <= 0.55
    assert card["attacks"]["names_published"] == 0
    assert card["fidelity"]["scheduler"]["EASY"]["real"]["wait_s"] >= 0
    assert card["left_out_jobs"] == {"never ran (run time 0)": 1}
    assert "ε = 8 and δ = 1e-06" in text
    assert "Held out: every second user" in text
    assert "The guarantee does not cover them" in text


def test_a_card_without_figures_says_nothing_about_the_real_log(shared: SharedLog) -> None:
    text, card = card_text(shared, with_figures=False), card_document(shared, with_figures=False)
    assert "How close" not in text
    assert not {"fidelity", "attacks", "held_out", "left_out_jobs"} & set(card)


def test_the_model_can_be_used_again_and_is_small(directory: Path) -> None:
    assert len(load(directory / "model").sample(40, np.random.default_rng(0))) == 40
    assert sum(path.stat().st_size for path in (directory / "model").iterdir()) < 20_000


def test_a_directory_that_holds_something_is_not_written_to(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="already exists and is not empty"):
        refuse_used(directory)
    refuse_used(tmp_path)  # an empty one is fine


def test_without_noise_the_card_promises_nothing(accounting: Path) -> None:
    result = share(read(accounting, timezone="UTC"), ShareSettings(epsilon=float("inf"), procs=64))
    assert "**None.**" in card_text(result)
    assert card_document(result)["guarantee"]["epsilon"] is None


def test_the_card_of_a_log_with_few_users_says_that_it_is_mostly_noise() -> None:
    pytest.importorskip("opacus")
    few = share(office_log(days=28, users=6), ShareSettings(procs=64, noise_seed=1))
    many = share(office_log(days=28, users=6), ShareSettings(epsilon=1000.0, procs=64, noise_seed=1))
    assert "most counts behind the synthetic log are noise" in card_text(few)
    assert card_document(few)["guarantee"]["mostly_noise"] is True
    assert card_document(many)["guarantee"]["mostly_noise"] is False


def test_ten_jobs_are_refused(accounting: Path) -> None:
    with pytest.raises(TraceError, match="10 jobs that ran are too few"):
        share(read(accounting, timezone="UTC").take(slice(0, 10)), ShareSettings(epsilon=float("inf"), procs=64))


def test_one_user_is_refused_with_an_offer(accounting: Path) -> None:
    log = read(accounting, timezone="UTC")
    with pytest.raises(TraceError, match="anonymise"):
        share(log.take(log.user == log.user[0]), ShareSettings(epsilon=float("inf"), procs=64))


@pytest.mark.slow
def test_the_command_writes_a_directory_that_the_other_commands_open(accounting: Path, tmp_path: Path, twin) -> None:
    pytest.importorskip("opacus")
    out = tmp_path / "shared"
    done = twin("trace", "share", accounting, "--out", out, "--procs", "64", "--timezone", "UTC")
    assert done.returncode == 0, done.stderr
    assert "ε = 8" in done.stdout
    assert twin("trace", "describe", out / "log.swf").returncode == 0
    assert twin("sched", "simulate", out / "log.swf").returncode == 0
    again = twin("trace", "share", accounting, "--out", out, "--procs", "64")
    assert again.returncode != 0
    assert "already exists" in again.stderr


def test_a_shared_log_of_another_order_says_so(shared: SharedLog) -> None:
    assert "times the jobs" not in card_text(replace(shared, real_jobs=len(shared.jobs)))
    text = card_text(replace(shared, real_jobs=len(shared.jobs) // 10))
    assert text.index("Do not draw conclusions") < text.index("## The promise"), "a reader sees the warning first"
    assert "This log has 10 times the jobs" in text
    assert "times the jobs" not in card_text(replace(shared, real_jobs=len(shared.jobs) // 10), with_figures=False)


def test_held_out_users_are_not_called_days(shared: SharedLog, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a log in which some jobs have no user, all units were called days."""
    guarantee = replace(shared.model.guarantee, protects_days=True)
    _print_shared(Path("shared"), replace(shared, model=replace(shared.model, guarantee=guarantee)))
    assert "(15 users, or days of jobs without a user, held out)" in " ".join(capsys.readouterr().out.split())
