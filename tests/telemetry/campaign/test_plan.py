"""The plan of a round: seeded, complete, and never larger than the host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.catalogue import ANOMALOUS_TYPES, DEFAULT_TYPES, find_type
from clustertwin.telemetry.campaign.plan import AvailableCpus, CampaignSettings, plan_round, split_of


def test_two_cpus_run_each_type_once_on_both() -> None:
    jobs = plan_round(CampaignSettings(), 0, AvailableCpus.host(2))
    assert sorted(job.type for job in jobs) == ["bad-io", "good-io", "idle", "mpi-2", "np"]
    assert {job.threads for job in jobs} == {2}


def test_the_same_seed_and_round_give_the_same_plan_and_others_do_not() -> None:
    plan = [
        plan_round(CampaignSettings(seed=seed), number, AvailableCpus.host(8))
        for seed, number in [(1, 0), (1, 0), (1, 1), (2, 0)]
    ]
    assert plan[0] == plan[1]
    assert plan[0] != plan[2]
    assert plan[0] != plan[3]


def test_more_rounds_do_not_change_the_first() -> None:
    available = AvailableCpus.host(4)
    first, more = (plan_round(CampaignSettings(rounds=rounds), 1, available) for rounds in (3, 9))
    assert first == more


def test_only_test_rounds_hold_anomalies() -> None:
    settings = CampaignSettings(anomalies=True)
    for number in range(5):
        anomalous = {job.type for job in plan_round(settings, number, AvailableCpus.host(2))} & set(ANOMALOUS_TYPES)
        assert anomalous == (set(ANOMALOUS_TYPES) if split_of(number) == "test" else set())


def test_three_rounds_hold_one_of_each_split() -> None:
    assert {split_of(number) for number in range(3)} == {"train", "validation", "test"}


def test_mpi_comes_in_every_power_of_two() -> None:
    jobs = plan_round(CampaignSettings(types=("mpi-N",)), 0, AvailableCpus.host(6))
    assert sorted((job.type, job.threads) for job in jobs) == [("mpi-2", 2), ("mpi-4", 4)]


def test_on_a_cluster_jobs_take_whole_nodes() -> None:
    available = AvailableCpus.cluster(nodes=3, cpus_of_node=2)
    assert (available.cpus, available.sizes) == (6, (2, 4))


def test_an_anomaly_of_one_cpu_stays_on_one_node() -> None:
    available = AvailableCpus.cluster(nodes=4, cpus_of_node=2)
    for number in range(20):
        (job,) = plan_round(CampaignSettings(types=("throttled",)), number, available)
        assert job.threads == 2


@given(cpus=st.integers(1, 300), number=st.integers(0, 50), seed=st.integers(0, 2**32))
def test_jobs_fit_the_host_and_their_lengths_the_settings(cpus: int, number: int, seed: int) -> None:
    settings = CampaignSettings(seed=seed, shortest_s=10, longest_s=20, types=(*DEFAULT_TYPES, *ANOMALOUS_TYPES))
    for job in plan_round(settings, number, AvailableCpus.host(cpus)):
        assert 1 <= job.threads <= cpus
        assert 10 <= job.seconds <= 20
        assert (job.onset_s is not None) == find_type(job.type).has_onset
        assert 0 <= (job.onset_s or 0) < job.seconds / 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"types": ("nap",)}, "unknown job type 'nap'"),
        ({"rounds": 0}, "at least one round, got 0"),
        ({"shortest_s": 9, "longest_s": 8}, "job lengths: 9 to 8 s"),
        ({"types": ()}, "at least one job type"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        CampaignSettings(**settings)  # type: ignore[arg-type]


def test_more_ranks_than_cpus_are_refused() -> None:
    with pytest.raises(SettingsError, match="mpi-4 does not fit"):
        plan_round(CampaignSettings(types=("mpi-4",)), 0, AvailableCpus.host(2))
