"""The plan of a round: seeded, complete, and never larger than the host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.catalogue import ANOMALIES, NORMAL, find_type
from clustertwin.telemetry.campaign.plan import CampaignSettings, Room, plan_round
from clustertwin.telemetry.campaign.splits import split_of


def test_two_cpus_run_each_type_once_on_both() -> None:
    jobs = plan_round(CampaignSettings(), 0, Room.host(2))
    assert sorted(job.type for job in jobs) == ["bad-io", "good-io", "idle", "mpi-2", "np"]
    assert {job.threads for job in jobs} == {2}


def test_the_same_seed_and_round_give_the_same_plan_and_others_do_not() -> None:
    plan = [
        plan_round(CampaignSettings(seed=seed), number, Room.host(8))
        for seed, number in [(1, 0), (1, 0), (1, 1), (2, 0)]
    ]
    assert plan[0] == plan[1]
    assert plan[0] != plan[2]
    assert plan[0] != plan[3]


def test_more_rounds_do_not_change_the_first() -> None:
    room = Room.host(4)
    assert plan_round(CampaignSettings(rounds=3), 1, room) == plan_round(CampaignSettings(rounds=9), 1, room)


def test_only_test_rounds_hold_anomalies() -> None:
    settings = CampaignSettings(anomalies=True)
    for number in range(5):
        struck = {job.type for job in plan_round(settings, number, Room.host(2))} & set(ANOMALIES)
        assert struck == (set(ANOMALIES) if split_of(number) == "test" else set())


def test_three_rounds_hold_one_of_each_split() -> None:
    assert {split_of(number) for number in range(3)} == {"train", "validation", "test"}


def test_mpi_comes_in_every_power_of_two() -> None:
    jobs = plan_round(CampaignSettings(types=("mpi-N",)), 0, Room.host(6))
    assert sorted((job.type, job.threads) for job in jobs) == [("mpi-2", 2), ("mpi-4", 4)]


def test_on_a_cluster_jobs_take_whole_nodes() -> None:
    room = Room.cluster(nodes=3, cpus_of_node=2)
    assert (room.cpus, room.sizes) == (6, (2, 4))


def test_what_strikes_one_cpu_stays_on_one_node() -> None:
    room = Room.cluster(nodes=4, cpus_of_node=2)
    for number in range(20):
        (job,) = plan_round(CampaignSettings(types=("throttled",)), number, room)
        assert job.threads == 2


@given(cpus=st.integers(1, 300), number=st.integers(0, 50), seed=st.integers(0, 2**32))
def test_jobs_fit_the_host_and_their_lengths_the_settings(cpus: int, number: int, seed: int) -> None:
    settings = CampaignSettings(seed=seed, shortest_s=10, longest_s=20, types=(*NORMAL, *ANOMALIES))
    for job in plan_round(settings, number, Room.host(cpus)):
        assert 1 <= job.threads <= cpus
        assert 10 <= job.seconds <= 20
        assert (job.onset_s is not None) == find_type(job.type).onset
        assert 0 <= (job.onset_s or 0) < job.seconds / 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"types": ("nap",)}, "no job type 'nap'"),
        ({"rounds": 0}, "0 rounds"),
        ({"shortest_s": 9, "longest_s": 8}, "from 9 to 8 s"),
        ({"types": ()}, "at least one job type"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        CampaignSettings(**settings)  # type: ignore[arg-type]


def test_more_ranks_than_cpus_are_refused() -> None:
    with pytest.raises(SettingsError, match="no mpi-4 here"):
        plan_round(CampaignSettings(types=("mpi-4",)), 0, Room.host(2))
