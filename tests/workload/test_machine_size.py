"""The size of a machine, as its log states it or as its jobs imply it."""

import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.machine_size import counted_unit, job_sizes, machine_size, stated_machine_size

CPUS = Jobs.build([0, 1], [10, 10], cpus=[3, 64])
NODES = Jobs.build([0, 1], [10, 10], cpus=[96, 200], nodes=[3, -1])


def test_a_log_with_node_counts_is_counted_in_nodes():
    assert [counted_unit(jobs) for jobs in (CPUS, NODES)] == ["cpus", "nodes"]


def test_a_job_without_the_unit_is_counted_in_the_other():
    assert job_sizes(NODES, "nodes").tolist() == [3, 200]
    with pytest.raises(SettingsError, match="'racks'"):
        job_sizes(NODES, "racks")


def test_a_stated_size_is_used_in_either_unit():
    jobs = Jobs.build([0], [10], cpus=[4], nodes=[1], machine=Machine(nodes=8, cpus_per_node=4))
    assert (stated_machine_size(jobs, "cpus"), stated_machine_size(jobs, "nodes")) == (32, 8)
    assert machine_size(jobs) == 8


def test_without_a_stated_size_the_machine_holds_the_largest_job_of_the_unit():
    assert (machine_size(CPUS), machine_size(NODES)) == (64, 3)


def test_a_missing_size_is_an_error_that_names_the_largest_job():
    with pytest.raises(SettingsError, match="the largest job takes 64 cpus"):
        stated_machine_size(CPUS, "cpus")
