"""Clean, anonymise and describe a log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.anonymise import anonymise, pseudonym
from clustertwin.workload.clean import clean
from clustertwin.workload.description.log_description import describe, running, short
from clustertwin.workload.description.log_plots import draw
from clustertwin.workload.fidelity.measures.offered_load import Capacity
from clustertwin.workload.jobs import Jobs, Machine

SECRET = b"sixteen bytes or more"


def test_every_removed_job_has_a_reason():
    jobs = Jobs.build(np.arange(5.0), [10, 0, -1, 5, 5], cpus=[1, 1, 1, -1, 99], machine=Machine(8, 1))
    cleaned = clean(jobs)
    assert cleaned.jobs.id.tolist() == [1]
    assert {reason.split(" (")[0]: ids.tolist() for reason, ids in cleaned.removed.items()} == {
        "run time unknown": [3],
        "never ran": [2],
        "no size": [4],
        "larger than the machine": [5],
    }


def people(words: tuple[str, ...], codes: list[int]) -> Jobs:
    n = len(codes)
    return Jobs.build(np.arange(float(n)), np.ones(n), user=codes, names={"user": words}, id=np.arange(n) + 7000,
                      header=("; Installation: here",), machine=Machine(4, 2, name="Theta"))  # fmt: skip


def test_the_same_person_has_the_same_pseudonym_in_every_log_of_one_secret():
    first, second = anonymise(people(("ann", "bob"), [0, 1]), SECRET), anonymise(people(("eve", "ann"), [1, 0]), SECRET)
    assert (
        first.names["user"][first.user[0]] == second.names["user"][second.user[0]] == pseudonym("ann", "user", SECRET)
    )
    other = anonymise(people(("ann", "bob"), [0, 1]), b"another secret of bytes")
    assert set(other.names["user"]).isdisjoint(first.names["user"])


def test_names_are_removed_and_the_behaviour_of_users_stays():
    hidden = anonymise(people(("ann", "bob"), [0, 1, 0, -1]), SECRET)
    assert hidden.user[0] == hidden.user[2] != hidden.user[1]
    assert hidden.user[3] == -1
    assert (hidden.header, hidden.machine.name, hidden.id.tolist()) == ((), "", [1, 2, 3, 4])
    assert not {"ann", "bob"} & set(hidden.names["user"])


def test_a_secret_that_can_be_guessed_is_refused():
    with pytest.raises(SettingsError, match="can be guessed"):
        anonymise(people(("ann",), [0]), b"1234")


def test_a_small_log_is_described_exactly():
    jobs = Jobs.build([0.0, 3600.0], [1800.0, 3600.0], nodes=[2, 4], user=[5, 5], status=[1, 0])
    description = describe(jobs, procs=4)
    assert (description.jobs, description.span_s, description.machine) == (2, 3600, Capacity(4, "nodes"))
    assert description.offered_load == (2 * 1800 + 4 * 3600) / (4 * 3600)
    assert description.columns["nodes"].mean == 3
    assert (description.status, description.top_users) == ({"failed": 0.5, "completed": 0.5}, {"5": 1.0})
    assert description.first == ""


def test_the_load_over_time_is_the_work_in_each_bin():
    jobs = Jobs.build([0.0, 50.0], [100.0, 50.0], nodes=[2, 2])
    at, share = running(jobs, Capacity(4, "nodes"), bins=4)
    assert np.allclose(at, [12.5, 37.5, 62.5, 87.5])
    assert np.allclose(share, [0.5, 0.5, 1, 1])


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [(90, "run_s", "90 s"), (7200, "run_s", "2 h"), (4392, "nodes", "4,392"), (2**34, "memory_bytes", "16 GB")],
)
def test_numbers_for_a_narrow_table(value, column, text):
    assert short(value, column) == text


def test_a_description_says_where_the_size_of_the_machine_comes_from():
    jobs = Jobs.build([0.0, 60.0], [60.0, 60.0], cpus=[4, 8])
    assert describe(jobs).machine_source == "its largest job"
    assert describe(jobs, procs=64).machine_source == "given"
    assert describe(replace(jobs, machine=Machine(16, 1))).machine_source == "stated by the log"


def test_a_description_offers_gpus():
    jobs = Jobs.build([0.0, 100.0], [50.0, 100.0], nodes=[1, 1], gpus=[2, 0])
    assert describe(jobs).gpus.load is None
    found = describe(jobs, gpus=4).gpus
    assert (found.job_share, found.largest_job, found.machine) == (0.5, 2, 4)
    assert found.load == 2 * 50 / (4 * 100)
    assert describe(replace(jobs, machine=Machine(3, 8, 4))).gpus.machine == 12
    assert describe(replace(jobs, gpus=np.zeros(2, int))).gpus is None


def test_a_log_that_knows_no_sizes_and_no_times_is_drawn():
    jobs = Jobs.build([0, 5], [-1, -1])
    assert len(draw(jobs, describe(jobs)).axes) == 6


def test_the_interval_of_two_jobs_is_one_interval():
    """The 0 of the first job counted: the shortest interval of every log was 0 s, and of two jobs the mean half."""
    spread = describe(Jobs.build([0.0, 100.0], [1.0, 1.0], cpus=[1, 1])).columns["interval_s"]
    assert (spread.known, spread.least, spread.mean, spread.most) == (1, 100, 100, 100)
