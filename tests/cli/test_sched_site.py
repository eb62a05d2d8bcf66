"""twin sched simulate-site, validate and compare-config, as they are called."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clustertwin.cli.sched import app
from clustertwin.core.errors import SettingsError
from clustertwin.workload.slurm.live.site_start import SiteStarts
from clustertwin.workload.slurm.site.conf_lines import SiteError

SITE = """
name = "small"
[[nodes]]
names = "n[1-2]"
cores = 4
memory = "8000"
[[partitions]]
name = "batch"
default = true
memory_per_cpu_mb = 100
"""
HEADER = "JobIDRaw|JobID|User|Account|Partition|QOS|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|ReqNodes|ReqCPUS\n"


def rows(count: int) -> str:
    return "".join(
        f"{k}|{k}|u{k % 2}|root|batch|normal|COMPLETED|{1000 + k}|{1003 + 100 * (k // 2)}|{1103 + 100 * (k // 2)}"
        "|100|5|1|4\n"
        for k in range(count)
    )


ROWS = rows(6)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    (tmp_path / "old.toml").write_text(SITE)
    (tmp_path / "new.toml").write_text(SITE.replace("n[1-2]", "n[1-6]"))
    (tmp_path / "jobs.sacct").write_text(HEADER + ROWS)
    return tmp_path / "jobs.sacct", tmp_path / "old.toml", tmp_path / "new.toml"


def call(*arguments: object) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(
        app, [str(argument) for argument in arguments], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
def test_a_log_is_scheduled_on_a_site(files):
    log, old, _ = files
    found = json.loads(call("simulate-site", log, "--site", old, "--json"))
    assert (found["jobs"], found["started"]) == (6, 6)
    assert found["partitions"][0]["name"] == "batch"
    assert "batch" in call("simulate-site", log, "--site", old)


@pytest.mark.slow
def test_recorded_waits_are_compared_with_simulated_ones(files):
    log, old, _ = files
    found = json.loads(call("validate", log, "--site", old, "--json"))
    row = found["agreement"]["all"][0]
    assert row["within_minute_ratio"] == 1.0
    assert row["spearman"] > 0.8
    assert set(found["agreement"]) == {"all", "partition", "qos", "user", "nodes"}
    assert found["rest"]["jobs"] == {"outage": 0, "held": 0, "busy": 0, "early": 0, "met": 6}
    table = call("validate", log, "--site", old)
    assert "Spearman" in table
    assert "what explains the rest" in table


@pytest.mark.slow
def test_an_outage_is_named_with_its_begin_and_its_length(files, tmp_path: Path):
    """Four jobs of two users are submitted to an idle machine and start ten hours later."""
    log = tmp_path / "out.sacct"
    rows = (
        f"{k}|{k}|u{k % 2}|root|batch|normal|COMPLETED|{1000 + k}|{37000 + k}|{37100 + k}|100|5|1|1\n" for k in range(4)
    )
    log.write_text(HEADER + "".join(rows))
    (outage,) = json.loads(call("validate", log, "--site", files[1], "--json"))["rest"]["outages"]
    assert outage["waiting"] == 4
    table = call("validate", log, "--site", files[1])
    assert "1 outages inferred" not in table
    assert "1 outage inferred" in table
    assert "1970-01-01 00:" in table
    assert "from (UTC)" in table


@pytest.mark.slow
def test_an_outage_of_a_log_in_local_time_is_named_in_local_time(files, tmp_path: Path):
    """The table said UTC, whatever the log's clock was."""
    log = tmp_path / "local.sacct"
    rows = (
        f"{k}|{k}|u{k % 2}|root|batch|normal|COMPLETED|2024-01-05T08:00:0{k}|2024-01-05T18:00:0{k}"
        f"|2024-01-05T18:01:4{k}|100|5|1|1\n"
        for k in range(4)
    )
    log.write_text(HEADER + "".join(rows))
    table = call("validate", log, "--site", files[1])
    assert "from (local time)" in table
    assert "2024-01-05 08:" in table


@pytest.mark.slow
def test_two_configurations_are_compared(files):
    log, old, new = files
    found = json.loads(call("compare-config", log, "--site", old, "--site", new, "--json"))
    assert found["changes"]["all"][0]["new_wait_s"] < found["changes"]["all"][0]["old_wait_s"]
    assert "new / old" in call("compare-config", log, "--site", old, "--site", new)


def test_one_site_cannot_be_compared(files):
    log, old, _ = files
    with pytest.raises(SettingsError, match="--site twice"):
        call("compare-config", log, "--site", old)


def test_a_directory_without_a_configuration_is_refused(files, tmp_path):
    with pytest.raises(SiteError, match=r"no slurm\.conf here"):
        call("simulate-site", files[0], "--site", tmp_path)


def test_gpus_in_like_need_a_site_and_a_site_that_has_them(files, tmp_path: Path):
    queue = tmp_path / "queue.txt"
    queue.write_text("")
    like = ("start", "--squeue", queue, "--like", "1 node, 2 h, gpu")
    with pytest.raises(SettingsError, match="set --site to the directory"):
        call(*like, "--procs", 8, "--unit", "nodes")
    with pytest.raises(SettingsError, match="no node of small has GPUs"):
        call(*like, "--site", files[1])


@pytest.mark.parametrize(
    ("hangs", "reason"),
    [
        ("1=often", "--hangs takes JOB or JOB=SURE, such as 4711=0.9, not '1=often'"),
        ("1=2", "SURE from 0 to 1"),
        ("=0.5", "SURE from 0 to 1"),
        ("1", "--hangs needs --past"),
    ],
)
def test_a_job_that_hangs_is_named_with_how_sure_that_is(tmp_path: Path, hangs: str, reason: str):
    queue = tmp_path / "queue.txt"
    queue.write_text("1|ann|RUNNING|8|1|1:00:00|10:00|None\n2|bo|PENDING|8|1|30:00|0:00|Resources\n")
    with pytest.raises(SettingsError, match=reason):
        call("start", "--squeue", queue, "--procs", 8, "--hangs", hangs)
    call("start", "--squeue", queue, "--procs", 8, "--hangs", "9=0.9")  # it has ended meanwhile


@pytest.mark.slow
def test_starts_on_a_site_come_with_what_had_no_part_in_them(files, tmp_path: Path):
    queue = tmp_path / "queue.txt"
    running = "|RUNNING|4|1|1:00:00|30:00|None|batch|normal|root|90|100M|N/A|"
    queue.write_text(f"1|ann{running}n1|OK|(null)\n2|ann{running}n2|OK|(null)\n")
    log, old, _ = files
    question = ("start", "--squeue", queue, "--like", "1 node, 2 h, user u1", "--site", old)
    (answer,) = json.loads(call(*question, "--json"))["starts"]
    assert (answer["job"], answer["user"]) == ("like", "u1")
    assert 1800 <= answer["p50_s"] <= 1860
    document = json.loads(call(*question, "--past", log, "--hours", 0, "--futures", 2, "--json"))
    assert document["starts"][0]["futures"] == 2
    assert any("memory that squeue prints is per CPU in batch" in note for note in document["not_used"])


@pytest.mark.slow
def test_a_search_prints_the_front_and_writes_lines_for_slurm_conf(files, tmp_path: Path):
    from clustertwin.core.errors import OutputError

    log, old, _ = files
    rows = "".join(
        f"{k}|{k}|u{k % 3}|root|batch|normal|COMPLETED|{1000 + 20 * k}|{2000 + 20 * k}|{2300 + 20 * k}|300|10"
        f"|{1 + (k % 3 == 0)}|{8 if k % 3 == 0 else 1}\n"
        for k in range(40)
    )
    log.write_text(HEADER + rows)
    old.write_text(f"{SITE}[priority]\njob_size = 1000\n")
    out = tmp_path / "weights.conf"
    command = ("search", log, "--site", old, "--candidates", 8, "--out", out)
    found = json.loads(call(*command, "--seed", 3, "--json"))
    assert found["points"][0]["present"]
    (chosen,) = [point for point in found["points"] if point["chosen"]]
    assert f"PriorityWeightAge={chosen['weights']['age']:.0f}\n" in out.read_text()
    with pytest.raises(OutputError, match="already exists"):
        call(*command)
    assert "present" in call(*command, "--force")


@pytest.mark.slow
def test_a_change_is_tried_on_a_queue_in_a_file(files, tmp_path: Path):
    queue, sprio = tmp_path / "queue.txt", tmp_path / "sprio.txt"
    running = "|RUNNING|4|1|1:00:00|30:00|None|batch|normal|root|90|100M|N/A|"
    waiting = "3|bo|PENDING|4|1|1:00:00|0:00|Resources|batch|normal|root|9|100M|N/A||OK|(null)"
    queue.write_text(f"1|ann{running}n1|OK|(null)\n2|ann{running}n2|OK|(null)\n{waiting}\n")
    sprio.write_text("3|0.5|0|0|0|0\n")
    command = ("try", "--site", files[1], "--squeue", queue, "--sprio", sprio, "--weight", "age=10")
    found = json.loads(call(*command, "--add-nodes", 1, "--json"))
    (job,) = found["jobs"]
    assert job["old_s"] >= 1800
    assert job["new_s"] == 0
    assert found["new_weights"]["age"] == 10
    assert "changed / present" in call(*command, "--drain", "n1")
    with pytest.raises(SettingsError, match="age=1000"):
        call("try", "--site", files[1], "--squeue", queue, "--weight", "age")


#: squeue with one job of an account.
SQUEUE = """\
#!/bin/sh
for word; do case $word in --format=*) form=${word#--format=};; esac; done
printf '%s\\n' "$form" | awk '{
  told = "i 7 u ann T PENDING C 4 D 1 l 1:00:00 M 0:00 r Resources P batch"
  split(told " q normal Q 5 m 100M b N/A h OK f (null)", word, " ")
  for (k = 1; k in word; k += 2) gsub("%" word[k], word[k + 1])
  gsub("%N", ""); gsub("%a", ENVIRON["ACCOUNT"])
  print
}'
"""


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What `twin sched start --site` asks the forecast."""
    (tmp_path / "squeue").write_text(SQUEUE)
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("ACCOUNT", "root")
    questions = []

    def forecast(site, queue, past, question, future):
        questions.append((queue, future))
        return SiteStarts((), ())

    monkeypatch.setattr("clustertwin.workload.slurm.live.site_start.forecast_site", forecast)
    return questions


def test_an_account_that_looks_like_other_jobs_is_an_account(files, asked, monkeypatch):
    """One user left the whole site without a forecast, or added jobs to it."""
    monkeypatch.setenv("ACCOUNT", hostile := "x|y\n8|root|RUNNING|4")
    call("start", "--site", files[1], "--json")
    ((queue, _),) = asked
    assert [(live.name, live.job.account, live.priority) for live in queue.jobs] == [("7", hostile, 5)]


@pytest.fixture
def tokyo(monkeypatch):
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("tokyo")
@pytest.mark.parametrize(("zone", "ahead_s"), [("", 9 * 3600), ("+0900", 0)])
def test_new_jobs_are_drawn_from_the_same_hours_of_the_week_at_the_site(files, asked, zone, ahead_s):
    """sacct prints local times: at nine in the morning, the jobs of midnight were drawn in Tokyo."""
    log, site, _ = files
    log.write_text(f"JobIDRaw|Submit|Start|End\n1|2024-06-03T08:00:00{zone}|Unknown|Unknown\n")
    call("start", "--site", site, "--past", log, "--json")
    ((_, future),) = asked
    assert future.now_s - time.time() == pytest.approx(ahead_s, abs=600)
