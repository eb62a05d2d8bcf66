"""Damaged inputs for parsers: valid seeds of a corpus -> texts with pieces cut out, repeated or replaced.

The suite tries a hundred inputs for each parser through Hypothesis, which shrinks what fails. `make fuzz` tries 100,000
through a plain generator of random numbers, which costs microseconds a case instead of milliseconds, and writes an
input that fails into the corpus. `tests/corpus/PARSER` keeps the seeds and every input that once raised a foreign
error, looped or took too long. Each of them is tried in every run.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

CORPUS = Path(__file__).parent / "corpus"

#: Draws an argument of a test.
Draw = Callable[[Random], Any]

#: Pieces that have broken parsers, ours or others'.
NASTY = (
    *(b"9" * 25, b"9" * 400, b"9" * 5000, b"-1", b"-5", b"1_0", b"0x5", b"1e999", b"-1e999", b"NaN", b"nan", b"Inf"),
    *(b"null", b"true", b"{}", b"[]", b'""', b"0", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", "٣".encode(), "²".encode()),
    *(b"\\ud800", b"\n", b"\r\n", b"\r\n\r\n", b"\nt ", b"\ncpu", b"cpu", b"\njob ", b"job slurm j 0-65535\n", b" "),
    *(b"{", b"}", b"[", b"]", b"]]}", b'"', b"\\", b",", b";", b"|", b"||||||||||", b"=", b":", b"-", b'{"metric":{'),
    *(b'"values":[', b"[]," * 50, b"[" * 1100, b"#", b"# {", b"0\r\n\r\n", b"99999999\r\n", b"n" * 300, b"9999-12-31"),
    *(b"0001-01-01T00:00:00", b"2024-03-31T02:30:00", b"[1-999999]", b"%s", b"../../etc/passwd"),
    *(b"Include slurm.conf\n", b"-0", b"5e-324", b"1e-400", b"2e308", b"1e5", b"\xe2\x80\xae", b"\xe2\x80\x8b"),
    *(b"\xef\xbb\xbf", b"\x0b", b"\x0c", b"\xc2\x85", b"\xe2\x80\xa8", b"\r", b"\t", b"9223372036854775808", b"1e18"),
)

#: A value that is deleted instead.
GONE = object()
#: JSON values that a reader may not expect.
VALUES = (
    *(None, True, False, 0, 1, -1, 7, 1.5, -0.0, 1e300, float("nan"), float("inf"), 10**9, 10**18, 10**30, GONE, GONE),
    *("", "x", "0", "n1", "9" * 400, "\ud800", "\0", "../../x", [], {}, [[]], [None], [0] * 40, ["x", "x"], {"a": 1}),
    *(5e-324, -1e300, 2**63, -(2**63) - 1, 4.0, "nan", "-0", "\u202e", "\u200b", "a/b", ".", "..", [True], [[0, 0]]),
)

#: What the test that runs now has done: its cases, and its CPU seconds. `conftest.py` reads and resets both.
tried = 0
spent_s = 0.0
#: `conftest.py` removes them: a worker of pytest-xdist ends without what Python does at its end.
directories: list[TemporaryDirectory[str]] = []


def scratch(parser: str) -> Path:
    """A directory for the damaged files of a parser, until the session ends."""
    directories.append(TemporaryDirectory(prefix=f"hostile-{parser}-"))
    return Path(directories[-1].name)


def fuzzed(parser: str, *others: Draw, values: tuple[Any, ...] = ()) -> Callable[..., Any]:
    """Run a test with damaged inputs of a parser and with every kept one, and count the cases.

    The first argument of the test is the input. `others` draw its other arguments, which are `values` for kept inputs.
    """
    draws = (damaged(*seeds(parser)), *others)

    def run(test: Callable[..., None]) -> Any:
        if "FUZZ_CASES" in os.environ:
            return _many(test, parser, draws, values, int(os.environ["FUZZ_CASES"]))

        @functools.wraps(test)
        def count(*args: Any, **kwargs: Any) -> None:
            global tried
            tried += 1
            test(*args, **kwargs)

        for path in corpus(parser):
            count = example(path.read_bytes(), *values)(count)
        chosen = [st.builds(draw, st.randoms(use_true_random=False)) for draw in draws]
        # The suite repeats the same cases, so that a new find of the fuzzer does not fail somebody else's change.
        return settings(derandomize=True)(given(*chosen)(count))

    return run


def _many(
    test: Callable[..., None], parser: str, draws: tuple[Draw, ...], values: tuple[Any, ...], cases: int
) -> Callable[[], None]:
    """The test with very many cases. FUZZ_SEED chooses others; the name of the parser is part of the seed."""

    def many() -> None:
        global tried, spent_s
        rng = Random(f"{os.environ.get('FUZZ_SEED', '0')} {parser}")
        started_s = process_time()
        for path in corpus(parser):
            test(path.read_bytes(), *values)
        for tried in range(1, cases + 1):
            drawn = [draw(rng) for draw in draws]
            try:
                test(*drawn)
            except BaseException as error:
                kept = CORPUS / parser / f"found-{hashlib.sha256(drawn[0]).hexdigest()[:10]}"
                kept.write_bytes(drawn[0])
                error.add_note(f"case {tried}; the input is in {kept}, the other arguments are {drawn[1:]!r:.300}")
                raise
            finally:
                spent_s = process_time() - started_s

    functools.update_wrapper(many, test)
    many.__signature__ = inspect.Signature()  # type: ignore[attr-defined]  # pytest reads no fixtures from it
    return many


def corpus(parser: str) -> list[Path]:
    """The kept inputs of a parser, in the order of their names."""
    return sorted((CORPUS / parser).iterdir())


def seeds(parser: str) -> list[bytes]:
    """The valid inputs of a parser."""
    return [path.read_bytes() for path in corpus(parser) if path.name.startswith("seed")]


def boolean(rng: Random) -> bool:
    return rng.random() < 0.5


def one_of(*choices: Any) -> Draw:
    return lambda rng: rng.choice(choices)


def damaged(*seeds: bytes) -> Draw:
    """A seed with a few pieces cut out, repeated, or replaced by others; and bytes without any order."""
    documents = [seed for seed in seeds if _is_document(seed)]

    def draw(rng: Random) -> bytes:
        kind = rng.random()
        if kind < 0.05:
            return rng.randbytes(rng.randrange(200))
        if kind < 0.1:
            return rng.choice(seeds)
        if documents and kind < 0.6:
            return _changed(rng.choice(documents), rng)
        return _edited(rng.choice(seeds), rng)

    return draw


def _edited(seed: bytes, rng: Random) -> bytes:
    for _ in range(rng.randint(1, 6)):
        at, length, kind = rng.randint(0, len(seed)), rng.randint(0, 30), rng.random()
        if kind < 0.5:
            piece = rng.choice(NASTY)
        elif kind < 0.7:
            piece = rng.randbytes(rng.randint(1, 8))
        elif kind < 0.85:
            other = rng.randint(0, len(seed))
            piece = seed[other : other + rng.randint(1, 200)]
        else:
            piece = b""
        seed = seed[:at] + piece + seed[at + length :]
    return seed


def _is_document(seed: bytes) -> bool:
    try:
        return isinstance(json.loads(seed), dict)
    except ValueError:
        return False


def _changed(seed: bytes, rng: Random) -> bytes:
    """A JSON document in which some values, at any depth, are others or are gone."""
    document: Any = {"": json.loads(seed)}
    for _ in range(rng.randint(1, 4)):
        inside, key = rng.choice(list(_places(document)))
        value = rng.choice(VALUES)
        if value is GONE and inside is not document:
            del inside[key]
        else:  # a copy, for the next change may go into it
            inside[key] = None if value is GONE else json.loads(json.dumps(value))
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
