import numpy as np
import pytest

from clustertwin.workload.fidelity.measures.marginals import ks_complement

torch = pytest.importorskip("torch")


@pytest.mark.slow
def test_the_diffusion_learns_marginals_and_which_size_goes_with_which_user(log):
    from clustertwin.workload.generators.findiff import FinDiff

    model = FinDiff(epochs=80, steps=60, width=64, batch=128, rate=3e-3, code_dim=4, layers=3, schedule="cosine")
    fitted = model.fit(log, np.random.default_rng(0))
    jobs = fitted.sample(3000, np.random.default_rng(1))
    assert fitted.losses()[-1][1] < 0.8 * fitted.losses()[0][1]
    for name in ("run_s", "request_s", "nodes", "user"):
        assert ks_complement(getattr(log, name).astype(float), getattr(jobs, name).astype(float)) > 0.8
    pairs = set(zip(log.user, log.nodes, strict=True))
    known = np.mean([pair in pairs for pair in zip(jobs.user, jobs.nodes, strict=True)])
    chance = np.mean([(u, n) in pairs for u in np.unique(log.user) for n in np.unique(log.nodes)])
    assert known > chance + 0.15


@pytest.mark.parametrize(("schedule", "steps", "noise"), [("cosine", 100, 1e-3), ("linear", 500, 1e-2)])
def test_a_schedule_starts_with_the_signal_and_ends_with_noise(schedule, steps, noise):
    from clustertwin.workload.generators.findiff import remaining_signal

    alpha_bar = remaining_signal(schedule, steps)
    assert alpha_bar[0] > 0.99
    assert alpha_bar[-1] < noise
    assert np.all(np.diff(alpha_bar) <= 0)


def test_a_small_budget_ends_the_training_after_one_epoch(log):
    from clustertwin.workload.generators.findiff import FinDiff

    fitted = FinDiff(width=8, steps=5, budget_minutes=1e-9).fit(log.take(slice(0, 50)), np.random.default_rng(0))
    ((epoch, loss),) = fitted.losses()
    assert (epoch, loss > 0) == (1.0, True)


def test_a_model_saved_before_the_reference_size_still_opens(log):
    from clustertwin.workload.generators.contract import GeneratorState
    from clustertwin.workload.generators.findiff import BEFORE_REFERENCE_SIZE, FinDiff, FittedFinDiff

    old = FinDiff(epochs=1, steps=5, width=8, **BEFORE_REFERENCE_SIZE)
    state = old.fit(log.take(slice(0, 50)), np.random.default_rng(0)).state()
    new = ("budget_minutes", *BEFORE_REFERENCE_SIZE)
    settings = {name: value for name, value in state.facts["settings"].items() if name not in new}
    opened = FittedFinDiff.from_state(GeneratorState({**state.facts, "settings": settings}, state.arrays))
    assert len(opened.sample(10, np.random.default_rng(0))) == 10
