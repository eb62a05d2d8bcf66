"""Every generator against the public check, and what the contract refuses."""

import math
from dataclasses import replace

import numpy as np
import pytest

from clustertwin.core.errors import InputError, MissingExtra, OutputError, SettingsError, TraceError
from clustertwin.workload.generators import GENERATORS, WorkloadChange, load, make, names, save
from clustertwin.workload.generators.check import check_generator
from clustertwin.workload.generators.contract import Fitted
from clustertwin.workload.generators.findiff import FinDiff
from clustertwin.workload.generators.private import Private
from clustertwin.workload.generators.realtabformer import RealTabFormer
from clustertwin.workload.generators.sdv import CopulaGan, Ctgan, Tvae
from clustertwin.workload.jobs import Jobs

TINY = {
    "findiff": FinDiff(epochs=2, steps=20, width=32),
    "ctgan": Ctgan(epochs=1, batch=100),
    "tvae": Tvae(epochs=1, batch=100),
    "copulagan": CopulaGan(epochs=1, batch=100),
    "realtabformer": RealTabFormer(epochs=2, layers=1, heads=2, width=32, critic_epochs=0, budget_minutes=math.inf),
}
#: Without noise, which is random by design: the noise has tests of its own.
WITHOUT_NOISE = {"private": Private(epsilon=math.inf)}
LIGHT = [name for name in GENERATORS if name not in TINY]


def generator_of(kind):
    """A generator whose fitted form is `kind(log)`."""

    class Maker:
        def fit(self, jobs, rng):
            return kind(make("bootstrap").fit(jobs, rng))

    return Maker()


class Wrapped(Fitted):
    """A bootstrap that a test can break in one place."""

    def __init__(self, inner):
        self.inner = inner

    def stream(self, n, rng):
        return self.inner.stream(n, rng)

    def modelled_log(self):
        return self.inner.modelled_log()


def test_every_generator_of_the_table_is_checked():
    assert {*LIGHT, *TINY} == set(GENERATORS)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_a_light_generator_keeps_the_contract(name, log):
    check_generator(WITHOUT_NOISE.get(name) or make(name), log, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_a_trained_generator_really_trains_and_keeps_the_contract(name, log):
    module = {"findiff": "torch", "realtabformer": "realtabformer"}.get(name, "sdv")
    pytest.importorskip(module)
    check_generator(TINY[name], log.take(slice(0, 300)), name, n=60)


@pytest.mark.slow
def test_a_generator_with_nothing_but_a_stream_keeps_the_contract(log):
    class StreamOnly(Fitted):
        def __init__(self, inner):
            self.inner = inner

        def stream(self, n, rng):
            return self.inner.stream(n, rng)

    check_generator(generator_of(StreamOnly), log)


def test_the_check_catches_a_generator_that_ignores_its_seed(log):
    class FixedSeed(Wrapped):
        def stream(self, n, rng):
            return self.inner.stream(n, np.random.default_rng(0))

    with pytest.raises(AssertionError, match="another seed gave the same jobs"):
        check_generator(generator_of(FixedSeed), log)


def test_the_check_catches_jobs_larger_than_the_machine(log):
    class TooLarge(Wrapped):
        def stream(self, n, rng):
            return (replace(block, nodes=block.nodes + 1000) for block in self.inner.stream(n, rng))

    with pytest.raises(AssertionError, match="larger than the machine"):
        check_generator(generator_of(TooLarge), log)


def test_the_check_catches_run_times_of_zero_that_no_real_job_has(log):
    class ZeroRunTime(Wrapped):
        def stream(self, n, rng):
            return (replace(block, run_s=np.maximum(block.run_s - 60, 0)) for block in self.inner.stream(n, rng))

    with pytest.raises(AssertionError, match="no real job ran for 0 s"):
        check_generator(generator_of(ZeroRunTime), log)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("ignored", "problem"),
    [
        ({"load": 1.0}, r"the load 4 gave 0\.\d+ times the requested jobs per day"),
        ({"users": {}}, "a user with the factor 0 still submits"),
        ({"sizes": {}}, "a size with the factor 0 still occurs"),
        ({"machine": None}, "larger than the machine"),
        ({"start_s": None}, "does not start on the requested day"),
    ],
)
def test_the_check_catches_a_change_that_is_ignored(ignored, problem, log):
    class Ignores(Wrapped):
        def what_if(self, n, rng, change):
            return super().what_if(n, rng, replace(change, **ignored))

    with pytest.raises(AssertionError, match=problem):
        check_generator(generator_of(Ignores), log)


def test_the_check_catches_another_log_where_nothing_was_changed(log):
    class AlwaysChanges(Wrapped):
        def what_if(self, n, rng, change):
            return super().what_if(n, rng, replace(change, load=1.5 * change.load))

    with pytest.raises(AssertionError, match="what-if without a change gave other jobs"):
        check_generator(generator_of(AlwaysChanges), log)


def test_an_unknown_generator_is_an_error_that_lists_the_known_ones():
    assert set(GENERATORS) <= set(names())
    with pytest.raises(SettingsError, match="unknown generator 'gan-of-gans'; use one of crossover"):
        make("gan-of-gans")


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("ctgan", "sdv.single_table", "sdv"), ("realtabformer", "realtabformer", "realtabformer"),
     ("findiff", "torch", "models")],
)  # fmt: skip
def test_a_missing_extra_names_its_install_command(name, module, extra, log, monkeypatch):
    def absent(requested):
        if requested == module:
            raise ModuleNotFoundError(name=module.split(".")[0])
        raise AssertionError(requested)

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


@pytest.mark.slow
def test_a_request_for_zero_jobs_is_refused(log):
    for name in LIGHT:
        fitted = make(name).fit(log, np.random.default_rng(0))
        with pytest.raises(SettingsError, match="one or more"):
            fitted.sample(0, np.random.default_rng(0))
        with pytest.raises(SettingsError, match="one or more"):
            fitted.what_if(0, np.random.default_rng(0), WorkloadChange(load=2.0))


def test_a_saved_generator_is_data_only_and_not_overwritten(log, tmp_path):
    fitted = make().fit(log, np.random.default_rng(0))
    save(fitted, "crossover", tmp_path / "model")
    with np.load(tmp_path / "model" / "arrays.npz", allow_pickle=False) as archive:
        assert set(archive.files) >= {"submit_s", "run_s"}
    with pytest.raises(OutputError, match=r"generator\.json already exists; use --force to overwrite it"):
        save(fitted, "crossover", tmp_path / "model")
    save(make("bootstrap").fit(log, np.random.default_rng(0)), "bootstrap", tmp_path / "model", force=True)
    assert type(load(tmp_path / "model")).__name__ == "FittedBootstrap"


def test_a_directory_without_a_generator_is_an_error_that_names_it(tmp_path):
    with pytest.raises(InputError, match="has no saved generator"):
        load(tmp_path)


@pytest.mark.slow
def test_a_log_without_users_limits_or_dates_can_be_learnt_from():
    rng = np.random.default_rng(0)
    bare = Jobs.build(
        np.cumsum(rng.exponential(300, 400)).round(), rng.integers(1, 5000, 400), cpus=rng.integers(1, 9, 400)
    )
    for name in LIGHT:
        if name != "private":
            check_generator(make(name), bare, name)
    with pytest.raises(TraceError, match="2 days of unknown users are too few for a privacy guarantee"):
        make("private").fit(bare, rng)
