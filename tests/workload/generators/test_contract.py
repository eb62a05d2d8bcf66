"""Every generator against the one public check, and what the contract refuses."""

from dataclasses import replace

import numpy as np
import pytest

from clustertwin.core.errors import InputError, MissingExtra, OutputError, SettingsError, TraceError
from clustertwin.workload.generators import GENERATORS, load, make, names, save
from clustertwin.workload.generators.check import check_generator
from clustertwin.workload.generators.contract import Fitted
from clustertwin.workload.generators.findiff import FinDiff
from clustertwin.workload.generators.realtabformer import RealTabFormer
from clustertwin.workload.generators.sdv import CopulaGan, Ctgan, Tvae
from clustertwin.workload.jobs import Jobs

LIGHT = ("crossover", "bootstrap", "lublin", "gaussian-copula")
TINY = {
    "findiff": FinDiff(epochs=2, steps=20, width=32),
    "ctgan": Ctgan(epochs=1, batch=100),
    "tvae": Tvae(epochs=1, batch=100),
    "copulagan": CopulaGan(epochs=1, batch=100),
    "realtabformer": RealTabFormer(epochs=2, layers=1, heads=2, width=32),
}


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_generator_keeps_the_contract(name, log):
    check_generator(make(name), log, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_a_trained_generator_really_trains_and_keeps_the_contract(name, log):
    module = {"findiff": "torch", "realtabformer": "realtabformer"}.get(name, "sdv")
    pytest.importorskip(module)
    check_generator(TINY[name], log.take(slice(0, 300)), name, n=60)


def test_the_check_catches_a_generator_that_ignores_its_seed(log):
    class Stuck(Fitted):
        def stream(self, n, rng):
            yield make("bootstrap").fit(log, rng).sample(n, np.random.default_rng(0))

    class Maker:
        def fit(self, jobs, rng):
            return Stuck()

    with pytest.raises(AssertionError, match="another seed gave the same jobs"):
        check_generator(Maker(), log)


def test_the_check_catches_jobs_larger_than_the_machine(log):
    class Huge(Fitted):
        def stream(self, n, rng):
            jobs = make("bootstrap").fit(log, rng).sample(n, rng)
            yield replace(jobs, nodes=jobs.nodes + 1000)

    class Maker:
        def fit(self, jobs, rng):
            return Huge()

    with pytest.raises(AssertionError, match="larger than the machine"):
        check_generator(Maker(), log)


def test_the_table_names_every_generator_and_an_unknown_one_is_an_error_that_lists_them():
    assert set(GENERATORS) <= set(names())
    with pytest.raises(SettingsError, match="there are crossover"):
        make("gan-of-gans")


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("ctgan", "sdv.single_table", "sdv"), ("realtabformer", "realtabformer", "realtabformer"),
     ("findiff", "torch", "models")],
)  # fmt: skip
def test_a_missing_extra_names_its_install_command(name, module, extra, log, monkeypatch):
    def absent(asked):
        if asked == module:
            raise ModuleNotFoundError(name=module.split(".")[0])
        raise AssertionError(asked)

    monkeypatch.setattr("clustertwin.core.extras.import_module", absent)
    with pytest.raises(MissingExtra, match=rf"pip install 'clustertwin\[{extra}\]'"):
        TINY[name].fit(log, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda log: log.take(slice(0, 3)), "too few"),
        (lambda log: log.take(np.arange(len(log))[::-1]), "order of submission"),
        (lambda log: replace(log, run_s=log.run_s - 1e9), "no run time"),
        (lambda log: replace(log, nodes=log.nodes * 0 - 1, cpus=log.cpus * 0 - 1), "no size"),
    ],
)
def test_a_log_that_cannot_be_learnt_from_is_refused_with_a_reason(broken, reason, log):
    for name in LIGHT:
        with pytest.raises(TraceError, match=reason):
            make(name).fit(broken(log), np.random.default_rng(0))


def test_zero_jobs_cannot_be_asked_for(log):
    for name in LIGHT:
        with pytest.raises(SettingsError, match="one or more"):
            make(name).fit(log, np.random.default_rng(0)).sample(0, np.random.default_rng(0))


def test_a_saved_generator_is_data_only_and_not_overwritten(log, tmp_path):
    fitted = make().fit(log, np.random.default_rng(0))
    save(fitted, "crossover", tmp_path / "model")
    with np.load(tmp_path / "model" / "arrays.npz", allow_pickle=False) as archive:
        assert set(archive.files) >= {"submit_s", "run_s"}
    with pytest.raises(OutputError, match="--force"):
        save(fitted, "crossover", tmp_path / "model")


def test_a_directory_without_a_generator_is_an_error_that_names_it(tmp_path):
    with pytest.raises(InputError, match="no saved generator"):
        load(tmp_path)


def test_a_log_without_users_limits_or_dates_can_be_learnt_from():
    rng = np.random.default_rng(0)
    bare = Jobs.build(
        np.cumsum(rng.exponential(300, 400)).round(), rng.integers(1, 5000, 400), cpus=rng.integers(1, 9, 400)
    )
    for name in LIGHT:
        check_generator(make(name), bare, name)
