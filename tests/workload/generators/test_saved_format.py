"""Saved generators of format 1, as earlier versions wrote them, still open."""

import io
import json

import numpy as np
import pytest

from clustertwin.core.errors import InputError, TwinError
from clustertwin.workload.generators import WorkloadChange, load
from clustertwin.workload.generators.superposition import concatenate

DECODER = {
    "bounds": {"interval": [0.0, 900.0], "run": [10.0, 3600.0], "size": [1.0, 64.0], "user": [1.0, 3.0]},
    "unit": "nodes", "cpus_each": 16, "gpus_each": -1, "resolution_s": 1.0, "epoch_s": 1_700_438_400.0,
    "timezone": "UTC", "machine": {"nodes": 64, "cpus_per_node": 16, "gpus_per_node": 0, "name": ""}, "names": {},
}  # fmt: skip
GAMMA = {"shape": 4.0, "scale": 1.0}
CROSSOVER = {"pause_s": 3600.0, "longest_s": 14400.0, "far_s": 604800.0, "most_work_s": 900.0, "ratio": 2.0,
             "reach": 8, "sweeps": 4, "jitter_s": 1800.0}  # fmt: skip


def job_table():
    n = 40
    columns = dict.fromkeys(
        ("id", "submit_s", "wait_s", "run_s", "request_s", "nodes", "cpus", "gpus", "memory_bytes", "user", "group",
         "queue", "status"), np.full(n, -1)
    )  # fmt: skip
    return {**columns, "id": np.arange(1, n + 1), "submit_s": 600.0 * np.arange(n), "run_s": np.full(n, 60.0),
            "nodes": np.arange(n) % 4 + 1, "user": np.arange(n) % 3}  # fmt: skip


LOG = {"epoch_s": 0.0, "machine": {"nodes": 8}, "timezone": "UTC", "names": {"user": ["ann", "bob", "eve"]}}
ORDERED = {"ordered.interval": np.arange(900.0), "ordered.run": np.arange(10.0, 3600.0),
           "ordered.size": np.array([1.0, 2, 64]), "ordered.user": np.array([1.0, 2, 3])}  # fmt: skip
SAVED = {
    "crossover": ({"log": LOG, "settings": CROSSOVER}, job_table()),
    "bootstrap": ({"log": LOG}, job_table()),
    "gaussian-copula": ({"frame": DECODER}, {**ORDERED, "factor": np.eye(4)}),
    "lublin": (
        {
            "sizes": {"serial": 0.2, "power": 0.7, "low": 1.0, "middle": 3.0, "high": 6.0, "lower": 0.6},
            "runs": {"short": GAMMA, "long": {"shape": 9.0, "scale": 0.8}, "weight": 0.6, "slope": -0.001},
            "arrivals": {"weights": [1.0] * 48, "interval": GAMMA, "scale": 1.0},
            "frame": DECODER,
        },
        {},
    ),
}


@pytest.mark.parametrize("name", SAVED)
def test_a_generator_saved_in_format_1_opens_and_answers_what_if(name, tmp_path):
    facts, arrays = SAVED[name]
    np.savez_compressed(tmp_path / "arrays.npz", **arrays)
    (tmp_path / "generator.json").write_text(json.dumps({"format": 1, "generator": name, "facts": facts}))
    fitted = load(tmp_path)
    assert len(fitted.sample(30, np.random.default_rng(0))) == 30
    assert len(concatenate(fitted.what_if(30, np.random.default_rng(0), WorkloadChange(load=1.5)))) == 30


def test_another_format_is_refused_with_its_number(tmp_path):
    np.savez_compressed(tmp_path / "arrays.npz")
    (tmp_path / "generator.json").write_text(json.dumps({"format": 2, "generator": "bootstrap", "facts": {}}))
    with pytest.raises(InputError, match="format 2; this version reads format 1"):
        load(tmp_path)


FACTS = json.dumps({"format": 1, "generator": "crossover", "facts": SAVED["crossover"][0]}).encode()


def packed(**arrays) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def short(**changed) -> bytes:
    return packed(**SAVED["crossover"][1] | changed)


@pytest.mark.parametrize(
    ("facts", "arrays", "reason"),
    [
        (FACTS, b"", "no saved generator"),
        (FACTS, b"PK\3\4 and nothing", "no saved generator"),
        (FACTS, short()[:-40], "no saved generator"),
        (FACTS, packed(), "its data is not that of the generator 'crossover'"),
        (FACTS, short(run_s=np.zeros(3)), "run_s has the shape"),
        (FACTS, packed(run_s=np.zeros(100_000_000, np.int8)), "no job log is so regular"),
        (b"[]", short(), "not the facts of a saved generator"),
        (b'{"format": 1}', short(), "not the facts of a saved generator"),
        (b"[" * 100_000, short(), "nested too deeply"),
        (FACTS.replace(b'"log"', b'"lag"'), short(), "its data is not that of the generator 'crossover'"),
    ],
    ids=lambda value: str(value[:20]),
)
def test_a_directory_from_elsewhere_is_refused_with_a_sentence(tmp_path, facts, arrays, reason):
    (tmp_path / "generator.json").write_bytes(facts)
    (tmp_path / "arrays.npz").write_bytes(arrays)
    with pytest.raises(TwinError, match=reason):
        load(tmp_path)
