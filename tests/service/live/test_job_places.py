"""Only Slurm says where a job runs: a node that claims another node's job speaks for itself alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from tests.service.conftest import Clock

from clustertwin.core.channels import CPU, JOB
from clustertwin.core.traces import JobChannels, JobSpan, Trace
from clustertwin.service.live.feeds import job_places
from clustertwin.service.live.feeds.job_names import JobNames, NamedFeed
from clustertwin.service.live.feeds.job_places import AWAY_S, EVERY_S, SOON_S, JobPlaces, Places, places_in_slurm
from clustertwin.telemetry.ingest.rates import Faults


def trace(node: str, *jobs: str) -> Trace:
    """A second of two threads, and what the cgroups of the jobs say."""
    values, valid = np.zeros((2, 1, 4), np.float32), np.ones((2, 1), np.bool_)
    spans = tuple(JobSpan(job, node, (0, 1), 0, 1) for job in jobs)
    cgroups = JobChannels(JOB, jobs, np.arange(len(jobs) * len(JOB), dtype=np.float32).reshape(len(jobs), 1, -1))
    return Trace(node, (0, 1), 0, CPU, values, valid, spans, job_channels=cgroups)


class Slurmctld:
    """What a Slurm would answer, and how often it was asked."""

    def __init__(self, **nodes: str) -> None:
        self.answer: Places | None = Places({job.removeprefix("j"): [text] for job, text in nodes.items()})
        self.asked = 0

    def __call__(self) -> Places | None:
        self.asked += 1
        return self.answer


def jobs_after(places: JobPlaces, clock: Clock, traces: Iterable[Trace], seconds: float) -> dict[str, list[str]]:
    """The jobs that are left to each node when it has said the same for so long."""
    traces = list(traces)
    end_s = clock.now_s + seconds
    while clock.now_s < end_s:
        clock.now_s += 1
        places.ask()
        if places._asking is not None:
            places._asking[0].exception()
        left = places.checked(traces)
    assert all(tuple(span.job for span in each.spans) == each.job_channels.jobs for each in left)
    return {each.node: [span.job for span in each.spans] for each in left}


HONEST, LIAR = [trace("n1", "17"), trace("n2", "17")], trace("n9", "17", "18")


def test_a_claim_of_another_nodes_job_is_dropped_and_named():
    clock = Clock()
    places = JobPlaces(Slurmctld(j17="n[1-2]", j18="n9"), clock)
    left = jobs_after(places, clock, [LIAR, *HONEST], 2 * SOON_S)
    assert left == {"n9": ["18"], "n1": ["17"], "n2": ["17"]}
    (problem,) = places.problems
    assert problem == "node n9 claims job 17, which Slurm runs on n[1-2]; there its threads count as without a job"
    jobs_after(places, clock, HONEST, AWAY_S + 2 * EVERY_S)
    assert places.problems == ()


def test_the_channels_of_a_claim_go_with_it():
    """What is left are the values of the node's own job."""
    clock = Clock()
    places = JobPlaces(Slurmctld(j17="n1", j18="n9"), clock)
    jobs_after(places, clock, [LIAR, HONEST[0]], 2 * SOON_S)
    (left, _) = places.checked([LIAR, HONEST[0]])
    assert np.array_equal(left.job_channels.values, LIAR.job_channels.values[1:])


def test_nothing_is_dropped_before_slurm_was_asked_after_the_claim():
    """A job that is requeued has the same id on other nodes, and the last answer is older than they are."""
    clock, slurm = Clock(), Slurmctld(j17="n[1-2]")
    places = JobPlaces(slurm, clock)
    jobs_after(places, clock, HONEST, 2 * SOON_S)
    slurm.answer = Places({"17": ["n[2-3]"]})
    moved = [trace("n2", "17"), trace("n3", "17")]
    for _ in range(int(EVERY_S)):
        assert jobs_after(places, clock, moved, 1) == {"n2": ["17"], "n3": ["17"]}
    assert places.problems == ()


@pytest.mark.parametrize(
    ("lists", "nodes"),
    [
        ("c[01-02]", ("n1", "n2")),  # Slurm's names are others
        ("n[1-2", ("n1", "n2")),  # a list that cannot be read
        ("n1,n2", ("n1.cluster", "n2.cluster")),
        ("n1.cluster,n2.cluster", ("n1", "n2")),
        ("n[001-002,7]", ("n002", "n7")),
    ],
)
def test_nothing_is_dropped_where_names_differ(lists, nodes):
    clock = Clock()
    places = JobPlaces(Slurmctld(j17=lists), clock)
    left = jobs_after(places, clock, [trace(node, "17") for node in nodes], 3 * EVERY_S)
    assert left == {node: ["17"] for node in nodes}
    assert places.problems == ()


def test_a_node_does_not_become_another_by_its_domain():
    clock = Clock()
    places = JobPlaces(Slurmctld(j17="n1"), clock)
    left = jobs_after(places, clock, [trace("n1", "17"), trace("n1.evil", "17")], 2 * SOON_S)
    assert left == {"n1": ["17"], "n1.evil": []}


def test_a_slurm_that_does_not_answer_drops_nothing():
    clock, slurm = Clock(), Slurmctld(j17="n[1-2]")
    slurm.answer = None
    places = JobPlaces(slurm, clock)
    assert jobs_after(places, clock, [LIAR, *HONEST], EVERY_S)["n9"] == ["17", "18"]

    def broken() -> Places | None:
        raise OSError

    assert jobs_after(JobPlaces(broken, clock), clock, [LIAR, *HONEST], EVERY_S)["n9"] == ["17", "18"]


def test_slurm_is_asked_once_a_minute_and_soon_after_a_strange_claim():
    clock, slurm = Clock(), Slurmctld(j17="n[1-2]")
    places = JobPlaces(slurm, clock)
    jobs_after(places, clock, HONEST, 9.5 * EVERY_S)
    assert slurm.asked == 10
    jobs_after(places, clock, [LIAR, *HONEST], 2 * SOON_S)
    assert slurm.asked == 11
    jobs_after(places, clock, [LIAR, *HONEST], 9.5 * EVERY_S)
    assert slurm.asked == 20


def test_what_is_remembered_is_bounded(monkeypatch):
    """A node with many claims makes no other's hold: at the limit, a claim is dropped at once."""
    monkeypatch.setattr(job_places, "MOST_CLAIMS", 50)
    clock = Clock()
    places = JobPlaces(Slurmctld(**{f"j{i}": "n1" for i in range(100)}), clock)
    every = [str(i) for i in range(100)]
    left = jobs_after(places, clock, [trace("n1", *every), trace("n9", *every)], EVERY_S)
    assert left == {"n1": every, "n9": []}
    jobs_after(places, clock, [trace(f"m{i}", "1") for i in range(200)], EVERY_S)
    assert max(len(places._strange), len(places._heard)) <= 50
    assert len(places.problems) <= 11


def test_suspended_jobs_stay_so_while_slurm_does_not_answer():
    clock, slurm = Clock(), Slurmctld()
    places, known = JobPlaces(slurm, clock), []
    for slurm.answer in (Places(), Places(suspended=frozenset({"17"})), None, Places()):
        jobs_after(places, clock, HONEST, EVERY_S)
        known.append(places.suspended)
    assert known == [frozenset(), {"17"}, {"17"}, frozenset()]


def test_slurm_is_asked_with_one_command(squeue):
    script = '[ "$2" = --states=RUNNING,SUSPENDED,STOPPED ] || exit 1; echo "$mark|17|17|STOPPED|n[1-2]"; echo damaged'
    places = places_in_slurm(squeue(script))()
    assert (places.nodes, places.suspended) == ({"17": ["n[1-2]"]}, {"17"})
    assert places_in_slurm(squeue("exit 1"))() is None


def test_a_feed_takes_only_what_slurm_knows():
    class Feed:
        source, pace, patient, problems, faults = "test", 1.0, False, ("disk",), Faults()

        def take(self):
            return [LIAR, *HONEST]

        def close(self):
            pass

    clock = Clock()
    places = JobPlaces(Slurmctld(j17="n[1-2]"), clock)
    feed = NamedFeed(Feed(), JobNames([]), places)
    jobs_after(places, clock, feed.take(), 2 * SOON_S)
    assert [span.job for span in feed.take()[0].spans] == ["18"]
    assert (feed.problems[0], len(feed.problems)) == ("disk", 2)
    feed.close()
