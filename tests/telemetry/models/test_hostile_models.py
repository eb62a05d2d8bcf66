"""Model files from elsewhere with a right hash: each is loaded, or refused by an error of our own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.hostile_inputs import attempt, boolean, fuzzed, scratch, seeds

from clustertwin.telemetry.detection import bundled, detector_store
from clustertwin.telemetry.models import model_store
from clustertwin.telemetry.models.model_store import ModelError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'clustertwin[models]'")
safetensors = pytest.importorskip("safetensors.numpy")

GOOD = Path(bundled.__file__).parent
ROOT = scratch("models")
FILES = ("model.json", "weights.safetensors", "detector.json", "detector.safetensors")


HASHES = {name: hashlib.sha256((GOOD / name).read_bytes()).hexdigest().encode() for name in FILES[1::2]}


def stored(directory: Path, **content: bytes) -> Path:
    """The bundled detector with other files, named `model_json` and so on. Hashes of weights and tables are right."""
    if not directory.exists():
        shutil.copytree(GOOD, directory)
    changed = {name: content[name.replace(".", "_")] for name in FILES if name.replace(".", "_") in content}
    for name in HASHES.keys() & changed.keys():
        new = hashlib.sha256(changed[name]).hexdigest().encode()
        for card in ("model.json", "detector.json"):
            changed[card] = changed.get(card, (GOOD / card).read_bytes()).replace(HASHES[name], new)
    for name, data in changed.items():
        (directory / name).write_bytes(data)
    return directory


def is_loaded_or_refused(directory: Path) -> None:
    """The store of detectors reads the model too."""
    attempt(lambda: detector_store.read(directory), ModelError)


@fuzzed("model_card")
def test_the_card_of_a_model(content: bytes) -> None:
    directory = stored(ROOT / "model", model_json=content)
    if attempt(lambda: model_store.read(directory), ModelError) is not None:
        is_loaded_or_refused(directory)


@fuzzed("detector_card")
def test_the_card_of_a_detector(content: bytes) -> None:
    is_loaded_or_refused(stored(ROOT / "detector", detector_json=content))


HEADERS = {name: (GOOD / name).read_bytes() for name in FILES[1::2]}


def with_header(name: str, header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


def header_of(content: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(content[:8], "little")
    return content[8 : 8 + length], content[8 + length :]


@fuzzed("weights_header", boolean, values=(False,))
def test_the_header_of_the_weights(header: bytes, tables: bool) -> None:
    """The header of the weights, damaged; or that of the tables of the detector."""
    name = FILES[3] if tables else FILES[1]
    _, data = header_of(HEADERS[name])
    changed = {name.replace(".", "_"): with_header(name, header, data)}
    is_loaded_or_refused(stored(ROOT / f"weights-{tables}", **changed))


def card(**changes: Any) -> bytes:
    plain = json.loads((GOOD / "model.json").read_bytes())
    return json.dumps(plain | changes).encode()


def config(**changes: Any) -> bytes:
    return card(config=json.loads((GOOD / "model.json").read_bytes())["config"] | changes)


SCHEMA = [{"name": name, "group": "cpu"} for name in ("user", "system", "iowait", "other")]


@pytest.mark.parametrize(
    "content",
    [
        card(name=["linear"]),
        card(name="no such model"),
        card(notes=[]),
        card(config=None),
        card(config=[]),
        config(latent=10**9),
        config(latent=10**6, hidden=10**6),
        config(latent=-1),
        config(latent=0),
        config(latent=True),
        config(latent="16"),
        config(latent=1.5),
        config(hidden=None),
        config(unknown=1),
        config(shape={"schema": SCHEMA, "length": 10**12}),
        config(shape={"schema": SCHEMA, "length": 2.5}),
        config(shape={"schema": [], "length": 100}),
        config(shape={"schema": [{"name": f"c{i}"} for i in range(100_000)], "length": 100}),
        config(shape={"schema": [{"name": None, "group": {}}], "length": 100}),
        card(name="ae", config={"shape": {"schema": SCHEMA, "length": 100}, "blocks": 10**9}),
        card(name="patch", config={"shape": {"schema": SCHEMA, "length": 100}, "patch_s": 0}),
        card(name="vae", config={"shape": {"schema": SCHEMA, "length": 100}, "sigma": 1e999}),
        b"[" * 100_000,
        b"{" * 100_000,
        b"\xff\xfe",
        b"null",
        b'{"name": "\\ud800"}',
        b"9" * 5000,
        b" " * (model_store.MOST_CARD_BYTES + 1),
    ],
    ids=range(29),
)
def test_a_hostile_card_is_refused_before_memory_is_allocated(content, tmp_path) -> None:
    with pytest.raises(ModelError):
        model_store.read(stored(tmp_path / "m", model_json=content))


def weights(**changes: Any) -> bytes:
    tensors = safetensors.load((GOOD / "weights.safetensors").read_bytes())
    return safetensors.save({key: value for key, value in (tensors | changes).items() if value is not None})


def tensor(name: str) -> Any:
    return safetensors.load((GOOD / "weights.safetensors").read_bytes())[name]


BIAS = "project.bias"


@pytest.mark.parametrize(
    "content",
    [
        weights(**{BIAS: np.full_like(tensor(BIAS), np.nan)}),
        weights(**{BIAS: np.full_like(tensor(BIAS), np.inf)}),
        weights(**{BIAS: tensor(BIAS).astype(np.float64)}),
        weights(**{BIAS: tensor(BIAS).astype(np.int64)}),
        weights(**{BIAS: tensor(BIAS)[:-1]}),
        weights(**{BIAS: tensor(BIAS)[None]}),
        weights(**{BIAS: None}),
        weights(another=tensor(BIAS)),
        b"",
        b"\xff" * 8,
        b"\x02" + bytes(7) + b"{}",
        with_header("", b"[" * 5000, b""),
        with_header("", b'{"a":{"dtype":"F32","shape":[99999999999],"data_offsets":[0,399999999996]}}', b""),
        with_header("", b'{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}', b"abcd"),
    ],
    ids=range(14),
)
def test_hostile_weights_with_a_right_hash_are_refused(content, tmp_path) -> None:
    directory = stored(tmp_path / "m", weights_safetensors=content)
    for read in (model_store.read, detector_store.read):
        with pytest.raises(ModelError, match="the weights do not fit the model 'linear'"):
            read(directory)


@pytest.mark.parametrize("name", FILES)
def test_a_fifo_or_a_loop_of_links_instead_of_a_file_is_refused(name, tmp_path) -> None:
    """A FIFO blocked the reader for ever."""
    for kind, make in (("fifo", os.mkfifo), ("loop", lambda path: path.symlink_to(path.name))):
        shutil.copytree(GOOD, tmp_path / kind)
        (tmp_path / kind / name).unlink()
        make(tmp_path / kind / name)
        with pytest.raises(ModelError):
            detector_store.read(tmp_path / kind)


def test_seeds_are_valid(tmp_path) -> None:
    assert detector_store.read(stored(tmp_path / "m", model_json=seeds("model_card")[0])).sha256
