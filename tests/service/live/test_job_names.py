"""Owners and names of jobs: from user ids and from Slurm, in the background, bounded, and never a reason to fail."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.service.conftest import Clock
from tests.service.sample_state import state as sample_state

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SourceError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.application import create_app
from clustertwin.service.live.feeds import job_names, squeue_lines
from clustertwin.service.live.feeds.job_names import (
    AWAY_S,
    JobName,
    JobNames,
    NamedFeed,
    names_in_slurm,
    owners_in_prometheus,
    user_of,
)
from clustertwin.telemetry.ingest.rates import Faults
from clustertwin.telemetry.ingest.sources.query_answer import Series
from clustertwin.telemetry.recording.logs import label_log

SPAN = JobSpan("17", "n1", (0,), 0, 100)


def asked(names: JobNames, *jobs: str) -> None:
    """Ask, and wait for the answer."""
    names.look_for(jobs)
    while names._asking is not None:
        time.sleep(0.001)
        names.look_for(())


def test_the_user_comes_from_the_exporter_and_the_name_from_slurm():
    names = JobNames([lambda: {"17": JobName("", "solver", "phys")}, lambda: {"17": JobName("ada")}], Clock())
    assert names.named(SPAN) == SPAN
    asked(names, "17")
    named = names.named(SPAN)
    assert (named.user, named.owner, named.name, named.account) == ("ada", "ada", "solver", "phys")


def test_what_the_source_of_the_span_knows_is_kept():
    names = JobNames([lambda: {"17": JobName("ada", "solver")}], Clock())
    asked(names, "17")
    named = names.named(JobSpan("17", "n1", (0,), 0, 100, owner="bob", name="own", user="bob"))
    assert (named.owner, named.name) == ("bob", "own")


def test_sources_are_asked_once_a_minute_and_only_for_unknown_jobs():
    clock, calls = Clock(), []

    def source():
        calls.append(clock.now_s)
        return {"17": JobName("ada")}

    names = JobNames([source], clock)
    for clock.now_s in range(0, 300, 10):
        asked(names, "17")
    assert calls == [0]
    for clock.now_s in range(300, 420, 10):
        asked(names, "17", "unknown")
    assert calls == [0, 300, 360]


def test_a_job_that_was_away_for_long_is_asked_for_again():
    """Its id may be that of another job, which had the name and the owner of the first."""
    clock, owner = Clock(), ["ada"]
    names = JobNames([lambda: {"17": JobName(owner[0])}], clock)
    asked(names, "17")
    clock.now_s += AWAY_S
    names.look_for(["17"])
    owner[0] = "bob"
    clock.now_s += AWAY_S
    names.look_for(["17"])
    assert names.named(SPAN).user == "ada"  # it was there all the time
    clock.now_s += AWAY_S + 1
    asked(names, "17")
    assert names.named(SPAN).user == "bob"


def test_a_source_that_fails_leaves_the_others():
    def broken():
        raise SourceError("down")

    names = JobNames([broken, lambda: {"17": JobName("ada")}], Clock())
    asked(names, "17")
    assert names.named(SPAN).user == "ada"


def test_the_number_of_remembered_jobs_is_bounded(monkeypatch):
    monkeypatch.setattr(job_names, "MOST_JOBS", 10)
    names = JobNames([lambda: {str(i): JobName("ada") for i in range(100)}], Clock())
    asked(names, "x")
    assert len(names._known) == 10
    assert names.named(JobSpan("99", "n1", (0,), 0, 1)).user == "ada"


def test_slurm_is_asked_with_one_command(squeue):
    answer = names_in_slurm(squeue('echo "$mark|17|ada|phys|my|job"; echo "$mark|damaged"; echo damaged'))()
    assert answer == {"17": JobName("ada", "my|job", "phys")}


@pytest.mark.parametrize("end", [r"\n", r"\302\205", r"\342\200\250"])
def test_a_job_whose_name_ends_the_line_speaks_for_no_other_job(squeue, end):
    """Its user could have given any job another owner."""
    script = f"printf '%s|17|ada|phys|x{end}18|root|adm|mine\\n%s|18|bob|chem|y\\n' $mark $mark"
    assert names_in_slurm(squeue(script))()["18"] == JobName("bob", "y", "chem")
    assert names_in_slurm(squeue(script.replace("|18|bob|chem|y", "|19|bob|chem|y")))().keys() == {"17", "19"}


def test_a_slurm_that_hangs_is_given_up(squeue, monkeypatch):
    monkeypatch.setattr(squeue_lines, "ANSWER_S", 0.2)
    assert names_in_slurm(squeue("exec sleep 60"))() == {}


def test_user_ids_become_logins_and_unknown_ones_stay_numbers():
    assert user_of(os.getuid()) != str(os.getuid())
    assert user_of(4_000_000_000) == "4000000000"

    class Server:
        def raw(self, metric, start_s, end_s):
            assert (metric, start_s, end_s) == ("twin_job_owner_uid", 40.0, 100.0)
            return [Series({"jobid": "17"}, np.array([99.0]), np.array([4e9]))]

    assert owners_in_prometheus(Server(), lambda: 100.0)() == {"17": JobName("4000000000")}


@pytest.mark.parametrize("uid", [np.inf, -np.inf, np.nan, -1.0, 1e300])
def test_a_user_id_that_is_none_ends_neither_the_names_nor_the_loop(uid):
    """Its OverflowError was raised again in every turn of the loop, until the service gave up."""

    class Server:
        def raw(self, metric, start_s, end_s):
            return [
                Series({"jobid": job}, np.array([99.0]), np.array([value])) for job, value in (("16", uid), ("17", 4e9))
            ]

    names = JobNames([owners_in_prometheus(Server(), lambda: 100.0)], Clock())
    asked(names, "17")
    assert names.named(SPAN).user == "4000000000"


def test_a_login_that_is_not_utf_8_can_be_stored(monkeypatch):
    """SQLite refused the event of its job, and with it all others."""
    monkeypatch.setattr(job_names.pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="m\udcfcller"))
    assert user_of(1000) == r"m\udcfcller"


def test_a_source_that_raises_anything_leaves_the_names_empty():
    def broken():
        raise ZeroDivisionError

    names = JobNames([broken], Clock())
    asked(names, "17")
    assert names.named(SPAN) == SPAN


def test_a_feed_gives_its_jobs_their_names():
    class Feed:
        source, pace, patient, problems, faults = "test", 1.0, False, (), Faults()

        def now_s(self):
            return 0.0

        def take(self):
            values = np.zeros((1, 1, 4), np.float32)
            return [Trace("n1", (0,), 0, CPU, values, np.ones((1, 1), np.bool_), (SPAN,))]

        def close(self):
            self.closed = True

    names = JobNames([lambda: {"17": JobName("ada", "solver")}], Clock())
    feed = NamedFeed(Feed(), names)
    feed.take()
    while names._asking is not None:
        names.look_for(())
    (trace,) = feed.take()
    assert (trace.spans[0].owner, trace.spans[0].name) == ("ada", "solver")
    assert (feed.suspended, feed.problems) == (frozenset(), ())  # no Slurm is here
    feed.close()


def test_the_account_is_on_the_pages_of_the_job_and_its_event(tmp_path: Path):
    state = sample_state(tmp_path)
    (job,) = state.snapshot.jobs
    state.publish(replace(state.snapshot, jobs=(replace(job, account="<phys>"),)), None)
    client = TestClient(create_app(state), base_url="http://127.0.0.1")
    for path in ("/jobs", "/jobs/17", "/events/e1"):
        assert "&lt;phys&gt;" in client.get(path).text, path
    assert client.get("/api/v1/jobs").json()[0]["account"] == "<phys>"
    assert "&lt;phys&gt;" in client.get("/jobs?q=phys").text
    state.store.close()


def test_a_label_without_an_account_is_written_as_before(tmp_path: Path):
    labels = tmp_path / "labels.jsonl"
    label_log.rewrite(labels, [SPAN, replace(SPAN, job="18", account="phys")])
    first, second = labels.read_text().splitlines()
    assert "account" not in first
    assert '"account":"phys"' in second
    assert [span.account for span in label_log.read(labels)] == ["", "phys"]
