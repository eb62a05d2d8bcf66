"""Damaged inputs for parsers: valid seeds of a corpus -> texts with pieces cut out, repeated or replaced.

The suite tries a hundred inputs for each parser, and `make fuzz` tries 100,000. `tests/corpus/PARSER` keeps the seeds
and every input that once raised a foreign error, looped or took too long. Each of them is tried in every run.
"""

from __future__ import annotations

import copy
import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

CORPUS = Path(__file__).parent / "corpus"

#: Pieces that have broken parsers, ours or others'.
NASTY = st.sampled_from(
    [b"9" * 25, b"9" * 400, b"9" * 5000, b"-1", b"-5", b"1_0", b"0x5", b"1e999", b"-1e999", b"NaN", b"nan", b"Inf",
     b"null", b"true", b"{}", b"[]", b'""', b"0", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", "٣".encode(), "²".encode(),
     b"\\ud800", b"\n", b"\r\n", b"\r\n\r\n", b"\nt ", b"\ncpu", b"cpu", b"\njob ", b"job slurm j 0-65535\n", b" ",
     b"{", b"}", b"[", b"]", b"]]}", b'"', b"\\", b",", b";", b"|", b"||||||||||", b"=", b":", b"-", b'{"metric":{',
     b'"values":[', b"[]," * 50, b"[" * 1100, b"#", b"# {", b"0\r\n\r\n", b"99999999\r\n", b"n" * 300, b"9999-12-31",
     b"0001-01-01T00:00:00", b"2024-03-31T02:30:00", b"[1-999999]", b"%s", b"../../etc/passwd", b"Include slurm.conf\n"]
)  # fmt: skip

#: A value that is deleted instead.
GONE = object()
#: JSON values that a reader may not expect.
VALUES = (
    *(None, True, False, 0, 1, -1, 7, 1.5, -0.0, 1e300, float("nan"), float("inf"), 10**9, 10**18, 10**30, GONE, GONE),
    *("", "x", "0", "n1", "9" * 400, "\ud800", "\0", "../../x", [], {}, [[]], [None], [0] * 40, ["x", "x"], {"a": 1}),
)

#: How many cases the test that runs now has tried; `conftest.py` reads and resets it after each test.
tried = 0


def fuzzed(parser: str, *others: st.SearchStrategy[Any], values: tuple[Any, ...] = ()) -> Callable[..., Any]:
    """Run a test with damaged inputs of a parser and with every kept one, and count the cases.

    The first argument of the test is the input. `others` draw its other arguments, which are `values` for kept inputs.
    """

    def run(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def count(*args: Any, **kwargs: Any) -> None:
            global tried
            tried += 1
            test(*args, **kwargs)

        for path in corpus(parser):
            count = example(path.read_bytes(), *values)(count)
        test_of_parser = given(damaged(*seeds(parser)), *others)(count)
        if "FUZZ_CASES" in os.environ:
            return test_of_parser
        # The suite repeats the same cases, so that a new find of the fuzzer does not fail somebody else's change.
        return settings(derandomize=True)(test_of_parser)

    return run


def corpus(parser: str) -> list[Path]:
    """The kept inputs of a parser, in the order of their names."""
    return sorted((CORPUS / parser).iterdir())


def seeds(parser: str) -> list[bytes]:
    """The valid inputs of a parser."""
    return [path.read_bytes() for path in corpus(parser) if path.name.startswith("seed")]


def damaged(*seeds: bytes) -> st.SearchStrategy[bytes]:
    """A seed with a few pieces cut out, repeated, or replaced by others; and bytes without any order."""
    most = max(map(len, seeds))
    edit = st.tuples(st.integers(0, most), st.integers(0, 30), st.one_of(NASTY, st.binary(max_size=8), st.just(b"")))

    def apply(seed: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
        for at, length, piece in edits:
            at %= len(seed) + 1
            seed = seed[:at] + piece + seed[at + length :]
        return seed

    shuffled = st.builds(apply, st.sampled_from(seeds), st.lists(edit, min_size=1, max_size=6))
    documents = [seed for seed in seeds if _is_document(seed)]
    change = st.tuples(st.integers(0, 10_000), st.sampled_from(VALUES))
    changed = st.builds(_changed, st.sampled_from(documents or [b"{}"]), st.lists(change, min_size=1, max_size=4))
    kinds = [shuffled, changed, changed] if documents else [shuffled, shuffled, shuffled]
    return st.one_of(*kinds, st.sampled_from(seeds), st.binary(max_size=200))


def _is_document(seed: bytes) -> bool:
    try:
        return isinstance(json.loads(seed), dict)
    except ValueError:
        return False


def _changed(seed: bytes, changes: list[tuple[int, Any]]) -> bytes:
    """A JSON document in which some values, at any depth, are others or are gone."""
    document: Any = {"": json.loads(seed)}
    for number, value in changes:
        places = list(_places(document))
        inside, key = places[number % len(places)]
        if value is GONE and inside is not document:
            del inside[key]
        else:
            inside[key] = None if value is GONE else copy.deepcopy(value)
    return json.dumps(document[""]).encode() + b"\n"


def _places(inside: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a document, as its container and its key."""
    for key in list(inside) if isinstance(inside, dict) else range(len(inside[:5])):
        yield inside, key
        if isinstance(inside[key], dict | list):
            yield from _places(inside[key])


def attempt(work: Callable[[], object], *errors: type[Exception]) -> Any:
    """What the work returns; None if it raises one of the errors that it may raise."""
    try:
        return work()
    except errors:
        return None
