"""A change tried on the live queue: nodes come and go, and weights move priorities by what sprio says."""

from __future__ import annotations

import pytest
from tests.workload.slurm.test_live_site import line, site

from clustertwin.core.errors import InputError, SettingsError
from clustertwin.workload.simulator.forecast.live_start import StartQuestion
from clustertwin.workload.slurm.live.site_change import (
    SiteChange,
    changed_queue,
    changed_site,
    compare_queue,
    parse_factors,
)
from clustertwin.workload.slurm.live.site_queue import parse_site_queue
from clustertwin.workload.slurm.live.site_start import forecast_site

#: Both nodes of batch are taken for half an hour, and three whole-node jobs of an hour wait.
QUEUE = parse_site_queue(
    "\n".join([
        *(line(str(k), "RUNNING", "30:00", hosts=f"n{k}") for k in (1, 2)),
        *(line(str(k), "PENDING", priority=str(100 - k)) for k in (11, 12, 13)),
    ])
)  # fmt: skip


def test_added_nodes_are_like_the_named_one_and_in_its_partitions():
    changed = changed_site(site(), SiteChange(add_nodes=2, like_node="g1"))
    group = changed.groups[-1]
    assert (group.names, group.gres) == (("added-1", "added-2"), site().groups[1].gres)
    assert [set(group.names) <= set(p.nodes) for p in changed.partitions] == [False, True]


def test_a_drained_node_is_unavailable_and_the_others_stay():
    changed = changed_site(site(), SiteChange(drain=("n1",)))
    assert [(g.names, g.available) for g in changed.groups[:2]] == [(("n2",), True), (("n1",), False)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (SiteChange(drain=("n9",)), "no node n9"),
        (SiteChange(add_nodes=1, like_node="n9"), "no node n9"),
        (SiteChange(add_nodes=-1), "between 1 and"),
        (SiteChange({"colour": 1.0}), "no weight 'colour'"),
        (SiteChange({"age": -1.0}), "at least 0"),
    ],
)
def test_an_impossible_change_is_refused_with_a_reason(change: SiteChange, reason: str):
    with pytest.raises(SettingsError, match=reason):
        changed_site(site(), change)


def test_new_weights_apply_to_the_factors_of_each_job():
    """Job 12 is old: with 1,000 for age it gains 900, job 11 gains 100, and job 13 has no factors."""
    factors = parse_factors("11|0.1|0|0|0|0\n12 | 0.9|0|0|0|0\n")
    queue, unknown = changed_queue(QUEUE, site(), SiteChange({"age": 1000.0}), factors)
    assert [live.priority for live in queue.waiting] == [89 + 100, 88 + 900, 87]
    assert unknown == 1


@pytest.mark.parametrize("text", ["11|0.1", "11|a|0|0|0|0"])
def test_a_line_that_is_not_sprios_is_refused_with_its_number(text: str):
    with pytest.raises(InputError, match="sprio:1"):
        parse_factors(text)


@pytest.mark.slow
def test_two_more_nodes_let_two_jobs_start_now_and_a_drained_one_holds_them_back():
    now = compare_queue(site(), QUEUE, None, SiteChange(), {})
    assert all(job.old_s == job.new_s for job in now.jobs)
    more = compare_queue(site(), QUEUE, None, SiteChange(add_nodes=2, like_node="n1"), {})
    assert sorted(job.new_s < 60 for job in more.jobs) == [False, True, True]
    assert more.groups[0].new_wait_s < more.groups[0].old_wait_s
    assert {group.kind for group in more.groups} == {"all", "partition", "user"}
    less = compare_queue(site(), QUEUE, None, SiteChange(drain=("n2",)), {})
    assert less.groups[0].ratio_low > 1


@pytest.mark.slow
def test_a_weight_changes_who_goes_first():
    factors = parse_factors("11|0|0|0|0|0\n12|0|0|0|0|0\n13|0|1|0|0|0\n")
    changed = compare_queue(site(), QUEUE, None, SiteChange({"fair_share": 500.0}), factors)
    starts = {job.job: job for job in changed.jobs}
    assert starts["13"].new_s < starts["13"].old_s
    assert starts["12"].new_s > starts["12"].old_s
    assert (changed.old_weights["fair_share"], changed.new_weights["fair_share"]) == (0.0, 500.0)


@pytest.mark.slow
def test_an_empty_queue_has_no_change_and_no_start():
    empty = parse_site_queue("")
    changed = compare_queue(site(), empty, None, SiteChange(add_nodes=1), {})
    assert (changed.groups, changed.jobs, changed.futures) == ((), (), 1)
    assert forecast_site(site(), empty, None, StartQuestion()).answers == ()
