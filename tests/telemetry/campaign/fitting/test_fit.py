"""Fitting: the parameters of simulated data are recovered, recordings give excerpts, invalid files are refused."""

from dataclasses import replace

import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.campaign.fitting.fit_barrier import fit_barrier
from clustertwin.telemetry.campaign.fitting.fit_recordings import fit_signatures
from clustertwin.telemetry.campaign.fitting.fit_signature import NormalScores, fit
from clustertwin.telemetry.campaign.fitting.job_excerpts import JobExcerpt, take_excerpts
from clustertwin.telemetry.campaign.fitting.spectra import WEIGHTS, estimate, factor, product
from clustertwin.telemetry.simulation.barrier import draw_ranks
from clustertwin.telemetry.simulation.copula_process import draw_ticks
from clustertwin.telemetry.simulation.signature import (
    SEGMENT_S,
    parse_signatures,
    read_signatures,
    to_json,
    write_signatures,
)
from clustertwin.telemetry.simulation.stick_breaking import ORDERS


def trace_of(spans=(), seconds=300):
    """Two threads that idle, but for user time in each span."""
    values = np.zeros((2, seconds, 4), np.float32)
    values[..., 3] = 1
    for span in spans:
        values[list(span.cpus), int(span.start_s) - 1000 : int(span.end_s) - 1000] = (1, 0, 0, 0)
    return Trace("n1", (0, 1), 1000, CPU, values, np.ones((2, seconds), bool), tuple(spans))


def test_an_excerpt_has_the_full_seconds_of_a_job_on_its_threads():
    span = JobSpan("1", "n1", (1,), 1050.4, 1150.9, "np")
    excerpt = next(b for b in take_excerpts([trace_of([span])]) if b.job_type == "np")
    assert excerpt.ratios.shape == (1, 99, 4)  # from second 1051 up to 1150


def test_an_onset_divides_a_job_in_two():
    span = JobSpan("1", "n1", (0, 1), 1050, 1150, "np", anomaly="swap-bursts", onset_s=1090)
    excerpts = {b.anomaly: b for b in take_excerpts([trace_of([span])]) if b.job_type == "np"}
    assert excerpts[""].ratios.shape[1] == 40
    assert excerpts[""].starts
    assert not excerpts[""].ends
    assert excerpts["swap-bursts"].ratios.shape[1] == 60
    assert excerpts["swap-bursts"].ends
    assert not excerpts["swap-bursts"].starts


def test_idle_time_keeps_its_distance_from_jobs():
    span = JobSpan("1", "n1", (0,), 1100, 1200, "np")
    idle = [b for b in take_excerpts([trace_of([span])]) if b.job_type == "idle"]
    assert [b.ratios.shape[1] for b in idle] == [97, 97]
    assert all((b.ratios[..., 3] == 1).all() for b in idle)


def test_seconds_without_a_value_stay_unknown():
    trace = trace_of([JobSpan("1", "n1", (0,), 1100, 1200, "np")])
    trace.valid[0, 120] = False
    excerpt = next(b for b in take_excerpts([trace]) if b.job_type == "np")
    assert np.isnan(excerpt.ratios[0, 20]).all()
    assert np.isfinite(excerpt.ratios[0, 19]).all()


def test_ties_get_the_score_of_their_mid_rank():
    scores = NormalScores.of(np.array([0.0, 0.0, 1.0, 1.0]))
    assert scores.transform(np.array([0.0, 1.0])) == pytest.approx([-0.6745, 0.6745], abs=1e-3)
    assert scores.transform(np.array([np.nan])) == 0


def test_factors_multiply_back_to_a_positive_matrix():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(33, 3, 3)) + 1j * rng.normal(size=(33, 3, 3))
    matrices = a @ a.conj().swapaxes(1, 2)
    lower = factor(matrices)
    assert np.abs(product(lower) - matrices).max() < 1e-8
    assert np.abs(np.triu(lower, 1)).max() < 1e-12
    assert np.abs(np.einsum("fii->fi", lower).imag).max() < 1e-12


def test_the_spectrum_of_white_noise_is_flat_and_sums_to_its_variance():
    jobs = [np.random.default_rng(i).normal(size=(2, 640, 3)) for i in range(20)]
    spectrum = estimate(jobs)
    total = np.einsum("fii->fi", spectrum.total).real
    assert total.mean() == pytest.approx(1, abs=0.05)
    assert total.std() < 0.15
    assert np.einsum("f,fii->i", WEIGHTS, spectrum.total).real == pytest.approx(np.ones(3), abs=0.06)
    assert np.abs(spectrum.shared).max() < 0.25


def test_a_fitted_process_reproduces_the_statistics_of_its_data(signatures):
    rng = np.random.default_rng(1)
    kind = signatures.kinds["good-io", ""]
    slow = np.where(np.arange(len(kind.own)) < 3, 3.0, 0.4)[:, None, None]  # most power below 1/20 Hz
    true = replace(kind, own=kind.own * slow * 0.7, shared=kind.own * slow * 0.7)
    jobs = [draw_ticks(true, 2, 3 * SEGMENT_S, rng) / 100 for _ in range(16)]
    fitted = fit([JobExcerpt("good-io", "", job.astype(np.float32)) for job in jobs], orders=ORDERS[:2])
    again = [draw_ticks(fitted, 2, 3 * SEGMENT_S, rng) / 100 for _ in range(16)]
    for statistic in (_means, _deviations, _lag_one, _between_threads):
        assert statistic(again) == pytest.approx(statistic(jobs), abs=0.09), statistic.__name__


def _means(jobs):
    return np.mean(jobs, axis=(0, 1, 2))


def _deviations(jobs):
    return np.std(np.stack(jobs), axis=(0, 1, 2))


def _lag_one(jobs):
    x = np.stack(jobs) - _means(jobs)
    return (x[:, :, 1:] * x[:, :, :-1]).mean(axis=(0, 1, 2)) / _deviations(jobs) ** 2


def _between_threads(jobs):
    x = np.stack(jobs) - _means(jobs)
    return (x[:, 0] * x[:, 1]).mean(axis=(0, 1)) / _deviations(jobs) ** 2


def test_a_climbing_job_gets_a_trend(signatures):
    rng = np.random.default_rng(2)
    climbing = replace(signatures.kinds["good-io", ""], trend=np.array([0, 0, 0.9]))
    jobs = [JobExcerpt("np", "slow-io", (draw_ticks(climbing, 2, 120, rng) / 100).astype(np.float32)) for _ in range(4)]
    fitted = fit(jobs, grows=True, orders=ORDERS[:2])
    drawn = draw_ticks(fitted, 40, 120, rng)[..., 2].mean(axis=0)
    assert drawn[-20:].mean() > drawn[:20].mean() + 3


def test_the_ratios_of_computing_and_waiting_are_recovered(signatures):
    ticks = draw_ranks(signatures.barrier, np.ones(2), 2000, np.random.default_rng(3))
    fitted = fit_barrier([JobExcerpt("mpi-2", "", (ticks / 100).astype(np.float32))], signatures.barrier.step_s)
    assert fitted.compute == pytest.approx(signatures.barrier.compute, abs=0.03)
    assert fitted.wait == pytest.approx(signatures.barrier.wait, abs=0.05)


def test_kinds_do_not_mix_in_one_signature():
    ratios = np.zeros((1, 50, 4), np.float32)
    with pytest.raises(SettingsError, match="one kind"):
        fit([JobExcerpt("np", "", ratios), JobExcerpt("good-io", "", ratios)])


def test_recordings_without_idle_time_are_refused():
    with pytest.raises(InputError, match="no idle time"):
        fit_signatures([JobExcerpt("np", "", np.full((1, 50, 4), 0.25, np.float32))], {})


def test_signatures_can_be_written_and_read(signatures, tmp_path):
    write_signatures(tmp_path / "new" / "signatures.json", signatures)
    read = read_signatures(tmp_path / "new" / "signatures.json")
    assert read.provenance == signatures.provenance
    assert read.kinds.keys() == signatures.kinds.keys()
    for key, kind in signatures.kinds.items():
        assert read.kinds[key].order == kind.order
        assert np.abs(read.kinds[key].own - kind.own).max() < 1e-3
        assert np.abs(read.kinds[key].quantiles - kind.quantiles).max() < 1e-3
    assert read.barrier.wait == pytest.approx(signatures.barrier.wait, abs=1e-3)


def test_a_foreign_file_is_refused_with_its_name():
    for text in ("", "{}", "[]", '{"format": 1, "signatures": [{}], "barrier": null, "provenance": {}}'):
        with pytest.raises(InputError, match=r"mine\.json: not a signatures file"):
            parse_signatures(text, "mine.json")


def test_a_newer_format_says_so(signatures):
    with pytest.raises(InputError, match="format 7"):
        parse_signatures(to_json(signatures).replace('"format": 1', '"format": 7'))


def test_a_number_that_is_not_finite_is_refused(signatures):
    with pytest.raises(InputError, match="not finite"):
        parse_signatures(to_json(signatures).replace('"trend": [0.0', '"trend": [NaN', 1))
