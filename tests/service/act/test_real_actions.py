"""Actions on a real Slurm: each is seen by Slurm, is not repeated, and can be undone; the REST interface as well."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.slurm import Slurm, reason_to_skip, slurm_cluster

from clustertwin.core.errors import SourceError
from clustertwin.service.act.action_journal import ActionPlan, ActionRecord, Journal
from clustertwin.service.act.execution import Executor
from clustertwin.service.act.savings import read_overruns
from clustertwin.service.act.slurm_commands import RunCommand, partitions, read_facts
from clustertwin.service.act.slurm_rest import RestSettings, SlurmRest
from clustertwin.service.live.feeds.job_places import places_in_slurm
from clustertwin.service.store.event_store import Store
from clustertwin.workload.simulator.forecast.squeue import COMMAND, parse_squeue

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "-"),
]
SLURMRESTD = shutil.which("slurmrestd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
USER = "nobody"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), {"n1": (0, 1), "n2": (0, 1)}) as cluster:
        yield cluster


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    store = Store(tmp_path / "state.sqlite")
    yield Journal(store.database)
    store.close()


def commands(slurm: Slurm) -> RunCommand:
    def run(arguments):
        done = subprocess.run(list(arguments), env=slurm.env, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise SourceError(f"{arguments[0]} failed: {done.stderr.strip()}")
        return done.stdout

    return run


def submit(slurm: Slurm, run: RunCommand, node: str, *options: str) -> str:
    words = ("--parsable", "--ntasks=1", "--mem=1", "--time=5", "--output=/dev/null", "--chdir=/", f"--nodelist={node}")
    job = slurm.run("sbatch", *words, *options, "--wrap=exec sleep 300").strip()
    wait_for(lambda: read_facts(job, run).state == "RUNNING")
    return job


def wait_for(is_true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < end_s
        time.sleep(0.2)


def approved(journal: Journal, job: str, verb: str, run: RunCommand) -> ActionRecord:
    plan = ActionPlan(read_facts(job, run), "stopped", "Rank 1 of 2 is stopped.", 0.99, "ask", "TERM", 5.0)
    action = journal.propose(f"e{job}", verb, "hung", replace(plan, reserve_s=3600.0), time.time())
    assert action is not None
    return journal.approve(action.id, journal.code(action), "ada", time.time())


def test_the_texts_of_a_user_do_not_protect_a_job(slurm):
    """A name that looked like a field of Slurm's answer, or ended its line, made a job immune to every rule."""
    run = commands(slurm)
    name = "x Priority=1 JobState=DONE\nJobId=8 UserId=nobody(65534)|"
    job = submit(slurm, run, "n1", f"--job-name={name}", "--comment=NodeList=n9 | UserId=7")
    # A mark without a width does not cut what is longer than Slurm's columns.
    assert slurm.run("squeue", "--noheader", f"--jobs={job}", "--Format=Name:|x|") == f"{name}|x|\n"
    facts = read_facts(job, run)
    assert (facts.state, facts.nodes, facts.uid, facts.user) == ("RUNNING", ("n1",), os.getuid(), "root")
    assert (facts.target, facts.id_on_nodes, facts.het_job, facts.restarts, facts.limit_s) == (job, job, "", 0, 300.0)
    assert facts.priority > 0
    assert abs(facts.start_s - time.time()) < 600
    slurm.run("scancel", job)


def test_a_reservation_keeps_new_jobs_away_and_the_running_one_goes_on(slurm, journal, tmp_path):
    run = commands(slurm)
    job = submit(slurm, run, "n1")
    action = approved(journal, job, "reserve", run)
    done = Executor(tmp_path, journal, run).execute(action.id)
    assert (done.state, done.result) == ("done", "done")
    shown = slurm.run("scontrol", "--oneliner", "show", "reservation")
    assert f"ReservationName=clustertwin_{action.id} " in shown
    assert "MAINT" in shown
    assert read_facts(job, run).state == "RUNNING"
    with pytest.raises(SourceError, match=r"[Dd]uplicate"):  # the name makes a second one impossible
        run(["scontrol", "create", "reservation", f"reservationname=clustertwin_{action.id}", "starttime=now",
             "duration=60", "users=root", "flags=maint,ignore_jobs", "nodes=n1"])  # fmt: skip
    slurm.run("scontrol", "delete", f"reservationname=clustertwin_{action.id}")
    slurm.run("scancel", job)


def test_suspend_requeue_and_drain_are_done_once(slurm, journal, tmp_path):
    run = commands(slurm)
    executor = Executor(tmp_path, journal, run)
    job = submit(slurm, run, "n1")
    assert executor.execute(approved(journal, job, "suspend", run).id).state == "done"
    assert read_facts(job, run).state == "SUSPENDED"
    slurm.run("scontrol", "resume", job)
    drain = approved(journal, job, "drain", run)
    assert executor.execute(drain.id).state == "done"
    assert f"Reason=clustertwin {drain.id}" in slurm.run("scontrol", "--oneliner", "show", "node", "n1")
    slurm.run("scontrol", "update", "nodename=n1", "state=resume")
    requeue = approved(journal, job, "requeue", run)
    assert executor.execute(requeue.id).state == "done"
    wait_for(lambda: read_facts(job, run).restarts == 1)
    slurm.run("scancel", job)


def test_one_task_of_an_array_is_cancelled_and_the_others_go_on(slurm, journal, tmp_path):
    run = commands(slurm)
    words = ("--parsable", "--ntasks=1", "--mem=1", "--time=5", "--output=/dev/null", "--chdir=/")
    array = slurm.run("sbatch", *words, "--array=1-2", "--wrap=exec sleep 300").strip()
    wait_for(lambda: all(read_facts(f"{array}_{task}", run).state == "RUNNING" for task in (1, 2)))
    # The plain id of the array is also the id of one task's processes, as an exporter reports them.
    facts = read_facts(array, run)
    other = f"{array}_{3 - int(facts.name[-1])}"
    done = Executor(tmp_path, journal, run).execute(approved(journal, array, "cancel", run).id)
    assert done.state == "done", done.result
    wait_for(lambda: read_facts(facts.name, run).state not in ("RUNNING", "COMPLETING"))
    assert read_facts(other, run).state == "RUNNING"
    slurm.run("scancel", array)


def test_a_component_of_a_heterogeneous_job_is_left_alone(slurm, journal, tmp_path):
    run = commands(slurm)
    each = ("--ntasks=1", "--mem=1", "--time=5")
    job = slurm.run(
        "sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *each, ":", *each, "--wrap=exec sleep 300"
    ).strip()
    wait_for(lambda: read_facts(f"{job}+1", run).state == "RUNNING")
    assert read_facts(job, run).het_job == job
    done = Executor(tmp_path, journal, run).execute(approved(journal, f"{job}+1", "cancel", run).id)
    assert (done.state, "is a part of the heterogeneous job" in done.result) == ("failed", True)
    assert read_facts(f"{job}+1", run).state == "RUNNING"
    slurm.run("scancel", job)


def test_slurm_says_where_its_jobs_are_and_which_are_suspended(slurm, monkeypatch):
    """A job of one node, one of both, and a heterogeneous one, whose steps span the nodes of its components."""
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    run = commands(slurm)
    one = submit(slurm, run, "n1")
    both = submit(slurm, run, "n[1-2]", "--nodes=2", "--ntasks=2")
    slurm.run("scontrol", "suspend", one)
    places = places_in_slurm("squeue")()
    assert (places.nodes[one], places.nodes[both]) == (["n1"], ["n[1-2]"])
    assert places.suspended == {one}
    slurm.run("scancel", one, both)
    wait_for(lambda: not places_in_slurm("squeue")().nodes)
    each = ("--mem=1", "--ntasks=1", "--output=/dev/null", "--chdir=/")
    lead = slurm.run("sbatch", "--parsable", *each, "-wn1", ":", *each, "-wn2", "--wrap=exec sleep 300").strip()
    wait_for(lambda: read_facts(f"{lead}+1", run).state == "RUNNING")
    places = places_in_slurm("squeue")()
    assert [sorted(places.nodes[job]) for job in (lead, str(int(lead) + 1))] == [["n1", "n2"]] * 2
    slurm.run("scancel", lead)


def answers(run: RunCommand) -> bool:
    try:
        return bool(partitions(run))
    except SourceError:
        return False


@pytest.fixture
def rest(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmRest]:
    """A slurmrestd that has the rights of one user, and no more."""
    if SLURMRESTD is None:
        pytest.skip("slurmrestd is not installed (apt install slurmrestd)")
    directory = tmp_path_factory.mktemp("rest")
    for path in (directory, *directory.parents[:3]):
        path.chmod(path.stat().st_mode | 0o011)
    shutil.chown(directory, USER)
    group = pwd.getpwnam(USER).pw_gid
    with (directory / "log").open("wb") as log:
        server = subprocess.Popen(
            [SLURMRESTD, "-a", "rest_auth/local", f"unix:{directory}/socket"],
            env=slurm.env, user=USER, group=group, extra_groups=[], stdout=log, stderr=log, cwd="/",
        )  # fmt: skip
        try:
            client = SlurmRest(RestSettings(f"unix:{directory}/socket"))
            wait_for(lambda: answers(client) or server.poll() is not None)
            assert server.poll() is None, (directory / "log").read_text()
            yield client
        finally:
            server.terminate()
            server.wait(60)


def test_a_job_is_cancelled_through_rest_with_the_rights_of_its_owner(slurm, rest, journal, tmp_path):
    run = commands(slurm)
    own = submit(slurm, run, "n1", f"--uid={USER}")
    other = submit(slurm, run, "n2")
    assert read_facts(own, rest) == read_facts(own, run)
    assert partitions(rest) == partitions(run)
    # Jobs of other tests may leave the queue between two questions.
    assert {own, other} <= set(parse_squeue(rest(COMMAND)).names) & set(parse_squeue(run(COMMAND)).names)
    assert read_overruns(rest) == read_overruns(run)
    refused = Executor(tmp_path, journal, rest).execute(approved(journal, other, "cancel", rest).id)
    assert refused.state == "failed"
    assert read_facts(other, run).state == "RUNNING"
    done = Executor(tmp_path, journal, rest).execute(approved(journal, own, "cancel", rest).id)
    assert done.state == "done", done.result
    wait_for(lambda: read_facts(own, run).state not in ("RUNNING", "COMPLETING"))
    slurm.run("scancel", other)
