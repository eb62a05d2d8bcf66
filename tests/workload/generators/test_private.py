"""The private generator: the accountant, the bound on each unit, what is left of the log, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from tests.workload.generators.conftest import office_log

from clustertwin.core.errors import SettingsError, TraceError
from clustertwin.workload.generators import load, save
from clustertwin.workload.generators.private import FittedPrivate, Private
from clustertwin.workload.generators.private.noisy_sums import NoisySums, secret_noise, shares
from clustertwin.workload.generators.private.privacy_budget import noise_multipliers, spent_epsilon
from clustertwin.workload.generators.private.protected_units import protected_units
from clustertwin.workload.generators.private.public_grid import PublicGrid
from clustertwin.workload.generators.private.released_statistics import WEIGHTS, queries, release
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.privacy import attack

DELTA = 1e-6


def exact_epsilon(multiplier: float, delta: float) -> float:
    """ε of one Gaussian mechanism, after Balle and Wang (2018): the independent reference."""
    cdf = pytest.importorskip("scipy.stats").norm.cdf
    optimize = pytest.importorskip("scipy.optimize")

    def excess(epsilon: float) -> float:
        a, b = 0.5 / multiplier, epsilon * multiplier
        return float(cdf(a - b) - math.exp(epsilon) * cdf(-a - b) - delta)

    return float(optimize.brentq(excess, 1e-6, 200))


@pytest.fixture(scope="module")
def crowd() -> Jobs:
    """Sixty users: enough for a guarantee, and for more than noise."""
    return office_log(users=60)


@pytest.fixture(scope="module")
def fitted(crowd: Jobs) -> FittedPrivate:
    pytest.importorskip("opacus")
    return Private(noise_seed=1).fit(crowd, np.random.default_rng(0))


@pytest.mark.slow
@pytest.mark.parametrize("multiplier", [0.7, 2.0, 6.0])
def test_the_accountant_never_promises_more_than_the_exact_bound(multiplier: float) -> None:
    pytest.importorskip("opacus")
    exact = exact_epsilon(multiplier, DELTA)
    assert exact <= spent_epsilon({"one": multiplier}, DELTA) <= 1.15 * exact


@pytest.mark.slow
def test_queries_compose_as_gaussian_noise_does() -> None:
    pytest.importorskip("opacus")
    # Two queries with the multiplier m are one query with the multiplier m / sqrt(2).
    two = spent_epsilon({"a": 3.0, "b": 3.0}, DELTA)
    assert two == pytest.approx(spent_epsilon({"one": 3.0 / math.sqrt(2)}, DELTA), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 8.0, 40.0])
def test_the_budget_is_spent_and_not_exceeded(epsilon: float) -> None:
    pytest.importorskip("opacus")
    multipliers = noise_multipliers(WEIGHTS, epsilon, DELTA)
    assert 0.99 * epsilon < spent_epsilon(multipliers, DELTA) <= epsilon
    assert multipliers["load"] < multipliers["gap"]  # a larger weight means less noise


def test_without_noise_nothing_is_promised() -> None:
    assert set(noise_multipliers(WEIGHTS, math.inf, DELTA).values()) == {0.0}
    assert spent_epsilon({"a": 0.0}, DELTA) == math.inf


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_an_epsilon_that_means_nothing_is_refused(epsilon: float) -> None:
    with pytest.raises(SettingsError, match="must be above zero"):
        noise_multipliers(WEIGHTS, epsilon, DELTA)


def test_no_unit_moves_a_sum_by_more_than_its_bound() -> None:
    sums = NoisySums({"q": 0.0}, np.zeros)
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert sums.total("q", rows, bound=1.0).tolist() == pytest.approx([0.9, 1.2])


def test_a_user_however_busy_moves_every_released_sum_by_one_bound_at_most(crowd: Jobs) -> None:
    """The guarantee itself: the sums of neighbouring logs differ by at most their bound."""

    class Recorded(NoisySums):
        def total(self, query: str, rows: np.ndarray, bound: float = 1.0) -> np.ndarray:
            result = super().total(query, rows, bound)
            asked[query] = (result, bound)
            return result

    without = crowd.take(crowd.user != 7)
    # The busiest user thinkable: the whole machine, all the time, in every hour.
    n = 56 * 288
    extra = Jobs.build(300.0 * np.arange(n), np.full(n, 3600.0), nodes=np.full(n, 64), request_s=np.full(n, 3600.0),
                       user=np.full(n, 7), status=np.ones(n))  # fmt: skip
    joined = {name: np.concatenate([getattr(without, name), getattr(extra, name)]) for name in without.columns()}
    with_him = replace(without, **joined)
    with_him = with_him.take(np.argsort(with_him.submit_s, kind="stable"))
    grid = PublicGrid(64, True)
    answers = []
    # The noise is zero, but the bounds are those of a release with noise.
    for log in (without, with_him):
        asked: dict[str, tuple[np.ndarray, float]] = {}
        release(log, protected_units(log), grid, 56, Recorded(dict.fromkeys(WEIGHTS, 1.0), np.zeros))
        answers.append(asked)
    assert set(answers[0]) == set(queries(grid, public_load=False))
    for query, (before, bound) in answers[0].items():
        after, bound_after = answers[1][query]
        # A later query may use another bound or clip, because an earlier one is different; then it is no neighbour.
        if query in ("activity", "load", "presence", "hour", "gap", "repetition", "status"):
            assert bound == bound_after
            assert np.linalg.norm(after - before) <= bound + 1e-9, query


@pytest.mark.slow
def test_weeks_before_the_time_of_the_site_do_not_dilute_its_load() -> None:
    """Theta's log begins six weeks before its users do: spread over all weeks, its load makes no queue."""
    pytest.importorskip("opacus")
    busy = office_log(users=60)
    late_s = 84 * 86400.0
    one = busy.take(slice(0, 1))
    columns = {name: np.append(getattr(one, name), getattr(busy, name)) for name in busy.columns()}
    late = replace(busy, **columns)
    late = replace(late, submit_s=np.append(0.0, busy.submit_s + late_s))
    model = Private(noise_seed=1).fit(late, np.random.default_rng(0))
    assert model.released.in_use == pytest.approx(4 / 9)
    assert model.load == pytest.approx(model.released.load * 9 / 4)
    # The empty weeks themselves are not published: they tell on which days nobody worked.
    jobs = model.sample(model.expected_jobs, np.random.default_rng(1))
    assert float(jobs.submit_s[0]) < 7 * 86400


@pytest.mark.slow
def test_no_user_with_much_of_the_machine_makes_the_released_load_arbitrary() -> None:
    """The noise of the load is that of a fixed bound: no noisy count of heavy users chooses it."""
    pytest.importorskip("opacus")
    log = office_log(users=60)
    log = replace(log, run_s=np.maximum(log.run_s / 3, 1.0))
    released = [Private(noise_seed=seed).fit(log, np.random.default_rng(0)).released.load for seed in range(12)]
    assert np.ptp(released) < 6 * 0.05 * 1.3


def test_a_model_saved_with_coarse_sizes_still_has_them() -> None:
    assert PublicGrid(100, True).sizes.tolist() == [1, 2, 4, 8, 16, 32, 64, 100]
    assert PublicGrid(100, True, fine_sizes=True).sizes.tolist() == [1, 2, 4, 8, 16, 32, 48, 64, 96, 100]


@pytest.mark.slow
def test_noise_does_not_come_from_a_seed_that_others_may_know(crowd: Jobs) -> None:
    pytest.importorskip("opacus")
    one, two = (Private().fit(crowd, np.random.default_rng(0)) for _ in range(2))
    assert not np.array_equal(one.released.activity, two.released.activity)
    assert abs(float(np.std(secret_noise(4000))) - 1) < 0.1


def test_jobs_of_unknown_users_are_protected_by_the_day() -> None:
    jobs = Jobs.build([0.0, 10.0, 86400.0, 86410.0], [1.0] * 4, cpus=[1] * 4, user=[-1, -1, -1, 5])
    units = protected_units(jobs)
    assert (units.users, units.days) == (1, 2)
    assert units.unit.tolist() == [1, 1, 2, 0]


@pytest.mark.slow
def test_the_saved_model_holds_the_guarantee_and_no_row_of_the_log(
    fitted: FittedPrivate, crowd: Jobs, tmp_path
) -> None:
    save(fitted, "private", tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "generator.json").read_text())["facts"]
    assert facts["guarantee"]["epsilon"] == pytest.approx(8.0, rel=0.01)
    assert facts["guarantee"]["delta"] == DELTA
    assert "noise_seed" not in json.dumps(facts)
    assert max(array.size for array in fitted.state().arrays.values()) < 200  # counts, not jobs
    again = load(tmp_path / "model").sample(50, np.random.default_rng(3))
    assert np.array_equal(again.run_s, fitted.sample(50, np.random.default_rng(3)).run_s)


@pytest.mark.slow
def test_without_noise_the_model_keeps_the_load_and_the_working_hours(crowd: Jobs) -> None:
    model = Private(math.inf).fit(crowd, np.random.default_rng(0))
    jobs = model.sample(6 * model.expected_jobs, np.random.default_rng(1))
    days = jobs.submit_s[-1] / 86400
    load = float((jobs.nodes * jobs.run_s).sum() / (64 * 86400 * days))
    real = float((crowd.nodes * crowd.run_s).sum() / (64 * 86400 * 56))
    assert load == pytest.approx(real, rel=0.1)
    at_night = np.mean(jobs.submit_s % 86400 < 6 * 3600)
    assert at_night == pytest.approx(np.mean(crowd.submit_s % 86400 < 6 * 3600), abs=0.05)
    assert jobs.run_s.min() >= 1  # no zero-second job
    assert np.all(jobs.run_s <= jobs.request_s)


@pytest.mark.slow
def test_attacks_find_nothing_at_the_default_epsilon(fitted: FittedPrivate, crowd: Jobs) -> None:
    found = attack(crowd, fitted.sample(len(crowd), np.random.default_rng(2)))
    assert found.user_days.synthetic.auc <= 0.55
    assert found.single_jobs.synthetic.auc <= 0.53
    assert found.names_published == 0


@pytest.mark.slow
def test_a_load_that_is_public_costs_nothing(crowd: Jobs) -> None:
    pytest.importorskip("opacus")
    model = Private(public_load=0.4, noise_seed=0).fit(crowd, np.random.default_rng(0))
    assert model.released.load == 0.4
    assert "load" not in model.guarantee.noise_multipliers
    assert model.guarantee.load_is_public


@pytest.mark.parametrize("load", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_public_load_that_is_none_is_refused(load: float, crowd: Jobs) -> None:
    with pytest.raises(SettingsError, match="is not an offered load"):
        Private(public_load=load).fit(crowd, np.random.default_rng(0))


def test_one_user_is_refused_and_told_what_still_works(crowd: Jobs) -> None:
    with pytest.raises(TraceError, match=r"one user is too few.*only noise.*anonymise"):
        Private(math.inf).fit(crowd.take(crowd.user == 3), np.random.default_rng(0))


def test_a_machine_of_unknown_size_is_refused_because_the_largest_job_is_not_public(crowd: Jobs) -> None:
    with pytest.raises(SettingsError, match="does not state the size of its machine"):
        Private(math.inf).fit(replace(crowd, machine=Machine()), np.random.default_rng(0))
    assert Private(math.inf, machine=64).fit(replace(crowd, machine=Machine()), np.random.default_rng(0))


@pytest.mark.medium
@pytest.mark.parametrize("change", ["no limits", "no users", "all equal", "a week"])
def test_a_poor_log_still_gives_valid_jobs(change: str, crowd: Jobs) -> None:
    n = len(crowd)
    log = {
        "no limits": lambda: replace(crowd, request_s=np.full(n, -1.0)),
        "no users": lambda: replace(crowd, user=np.full(n, -1)),
        "all equal": lambda: replace(crowd, run_s=np.full(n, 60.0), request_s=np.full(n, 600.0), nodes=np.ones(n, int)),
        "a week": lambda: crowd.take(crowd.submit_s < 7 * 86400),
    }[change]()
    jobs = Private(math.inf).fit(log, np.random.default_rng(0)).sample(300, np.random.default_rng(1))
    assert len(jobs) == 300
    assert np.all(jobs.run_s >= 1)
    assert np.all((jobs.nodes >= 1) & (jobs.nodes <= 64))
    assert np.all(jobs.request_s > 0) == (change != "no limits")


def test_cells_below_twice_their_noise_are_taken_for_empty() -> None:
    assert shares(np.array([10.0, 1.9, 2.1, -3.0]), noise=1.0).tolist() == pytest.approx([10 / 12.1, 0, 2.1 / 12.1, 0])
    assert shares(np.array([-1.0, 0.5]), noise=1.0).tolist() == [0, 1]
