import numpy as np
import pytest

from clustertwin.workload.fidelity.measures.marginals import ks_complement

torch = pytest.importorskip("torch")


@pytest.mark.slow
def test_the_diffusion_learns_marginals_and_which_size_goes_with_which_user(log):
    from clustertwin.workload.generators.findiff import FinDiff

    losses = []
    model = FinDiff(epochs=80, steps=60, width=64, batch=128, rate=3e-3)
    fitted = model.fit(log, np.random.default_rng(0), lambda epoch, loss: losses.append(loss))
    jobs = fitted.sample(3000, np.random.default_rng(1))
    assert losses[-1] < 0.8 * losses[0]
    for name in ("run_s", "request_s", "nodes", "user"):
        assert ks_complement(getattr(log, name).astype(float), getattr(jobs, name).astype(float)) > 0.8
    pairs = set(zip(log.user, log.nodes, strict=True))
    known = np.mean([pair in pairs for pair in zip(jobs.user, jobs.nodes, strict=True)])
    chance = np.mean([(u, n) in pairs for u in np.unique(log.user) for n in np.unique(log.nodes)])
    assert known > chance + 0.15


def test_the_cosine_schedule_starts_with_the_signal_and_ends_with_noise():
    from clustertwin.workload.generators.findiff import cosine_schedule

    alpha_bar = cosine_schedule(100)
    assert alpha_bar[0] > 0.99
    assert alpha_bar[-1] < 1e-3
    assert np.all(np.diff(alpha_bar) <= 0)
