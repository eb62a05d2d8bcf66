"""The signatures of the package: small, with provenance, and enough for a cluster."""

from importlib.resources import files

import numpy as np

from clustertwin.telemetry.simulation.anomalies import available_anomalies
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


def test_the_shipped_file_is_small_and_has_a_provenance():
    text = files("clustertwin.telemetry.simulation").joinpath("signatures.json").read_text()
    assert len(text) < 200_000
    provenance = read_signatures().provenance
    assert provenance["kernel"].startswith("Linux")
    assert provenance["threads"] > 0
    assert provenance["fitted"]


def test_the_default_mix_can_be_drawn_with_every_anomaly():
    signatures = read_signatures()
    small = ClusterSettings(nodes=2, threads=8, hours=0.3, job_s=(100, 300), anomalies=available_anomalies(signatures))
    traces = simulate(small, signatures, seed=0)
    assert {span.job_type for trace in traces for span in trace.spans} > {"np", "good-io", "mpi-2"}


def test_job_types_look_like_what_they_do():
    signatures = read_signatures()
    small = ClusterSettings(
        nodes=4,
        threads=8,
        hours=0.5,
        job_s=(100, 300),
        anomalies=("bad-io",),
        job_types=("np", "good-io", "mpi-2", "mpi-8"),
    )
    means: dict[str, list[np.ndarray]] = {}
    for trace in simulate(small, signatures, seed=1):
        for span in trace.spans:
            rows = trace.values[list(span.cpus), int(span.start_s) - trace.start_s : int(span.end_s) - trace.start_s]
            means.setdefault(span.job_type, []).append(rows.mean(axis=(0, 1)))
    user, system, iowait, _ = range(4)
    mean = {job_type: np.mean(rows, axis=0) for job_type, rows in means.items()}
    assert mean["np"][user] > 0.9
    assert mean["bad-io"].argmax() == iowait
    assert mean["good-io"][system] > mean["np"][system]
    assert mean["mpi-8"][system] > mean["mpi-2"][system] > mean["np"][system]
