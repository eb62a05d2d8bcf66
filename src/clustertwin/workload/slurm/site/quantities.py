"""The small languages of Slurm's files: durations, memory, TRES, GRES and node ranges as text -> numbers and names.

Every parser raises `ValueError` with the reason; the caller knows the file and the line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Slurm's words for "no limit".
UNLIMITED = frozenset({"unlimited", "infinite", "-1"})
#: More nodes than any machine has; a longer range is a mistyped one.
MOST_NODES = 1_000_000
#: Of the name of a node, and its ranges; `rack[1-4]node[01-32]` has two.
LONGEST_NAME, MOST_BRACKETS = 255, 8
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)b?$", re.IGNORECASE)
_MEGABYTES = {"k": 1 / 1024, "": 1.0, "m": 1.0, "g": 1024.0, "t": 1024.0**2, "p": 1024.0**3}
_COUNT = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


@dataclass(frozen=True, slots=True)
class Gres:
    """A generic resource, such as `gpu:v100:2`; an empty type stands for any."""

    name: str
    type: str
    count: int


def parse_count(text: str) -> int:
    """A whole number that fits into 64 bits with room to add.

    >>> parse_count("12")
    12
    """
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a whole number") from None
    if abs(number) >= 2**53:
        raise ValueError(f"{text[:40]} is too large")
    return number


def parse_size(text: str) -> int:
    """A whole number that is not negative."""
    number = parse_count(text)
    if number < 0:
        raise ValueError(f"{text} is negative")
    return number


def parse_number(text: str) -> float:
    """A finite number that is not negative.

    >>> parse_number("0.5")
    0.5
    """
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a number") from None
    if not number < 2**53:
        raise ValueError(f"{text[:40]} is too large")
    if number < 0:
        raise ValueError(f"{text[:40]} is negative")
    return number


def parse_limit_s(text: str) -> float:
    """A time limit -> seconds; minutes, `minutes:seconds`, `hours:minutes:seconds` or `days-hours[:minutes[:seconds]]`.

    >>> parse_limit_s("90"), parse_limit_s("1-06:00:00"), parse_limit_s("7-0"), parse_limit_s("UNLIMITED")
    (5400.0, 108000.0, 604800.0, inf)
    """
    text = text.strip()
    if text.lower() in UNLIMITED:
        return math.inf
    match = _CLOCK.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time; write minutes, hours:minutes:seconds or days-hours")
    days, first, second, third = (None if part is None else parse_count(part) for part in match.groups())
    if days is not None:
        return float(days * 86_400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0))
    if second is None:
        return float((first or 0) * 60)
    if third is None:
        return float((first or 0) * 60 + second)
    return float((first or 0) * 3600 + second * 60 + third)


def parse_memory_mb(text: str) -> float:
    """Memory -> megabytes, Slurm's own unit.

    >>> parse_memory_mb("187000"), parse_memory_mb("62G")
    (187000.0, 63488.0)
    """
    match = _MEMORY.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory; write 4000, 4000M or 4G")
    amount = float(match[1]) * _MEGABYTES[match[2].lower()]
    if amount >= 2**53:
        raise ValueError(f"{text[:40]} is too large")
    return amount


def parse_tres(text: str) -> dict[str, float]:
    """A TRES list -> amounts by lower-case name, memory in megabytes; -1 lifts a limit and is left out.

    >>> parse_tres("cpu=8,mem=2G,gres/gpu=-1")
    {'cpu': 8.0, 'mem': 2048.0}
    """
    amounts: dict[str, float] = {}
    for part in filter(None, (word.strip() for word in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise ValueError(f"{part!r} is not name=amount")
        name = name.strip().lower()
        if value.strip() == "-1":
            continue
        try:
            amounts[name] = parse_memory_mb(value) if name == "mem" else parse_number(value)
        except ValueError:
            raise ValueError(f"{value[:40]!r} is not an amount of {name}") from None
    return amounts


def parse_weights(text: str) -> dict[str, float]:
    """`CPU=1000,Mem=.03` -> weights by lower-case name; a memory weight may name its unit, as in `Mem=0.25G`."""
    weights: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        match = re.fullmatch(r"([\d.]+)([kmgtp]?)", value.strip(), re.IGNORECASE)
        if not equals or match is None:
            raise ValueError(f"{part!r} is not name=weight")
        weights[name.strip().lower()] = parse_number(match[1]) / _MEGABYTES[match[2].lower()]
    return weights


def parse_gres(text: str) -> tuple[Gres, ...]:
    """A GRES list, as in `gpu:v100:2,nvme:1(S:0)`.

    >>> parse_gres("gpu:tesla_v100-pcie-32gb:2")
    (Gres(name='gpu', type='tesla_v100-pcie-32gb', count=2),)
    """
    found = []
    for part in filter(None, re.sub(r"\([^)]*\)", "", text).split(",")):
        words = [word.strip() for word in part.removeprefix("gres/").removeprefix("gres:").replace("=", ":").split(":")]
        words = [word for word in words if word != "no_consume"]
        count = re.fullmatch(r"(\d+)([kmg]?)", words[-1], re.IGNORECASE) if len(words) > 1 else None
        if not words[0]:
            raise ValueError(f"{part!r} is not name[:type][:count]")
        names = words[:-1] if count else words
        if len(names) > 2 or re.fullmatch(r"-\d+", names[-1]):
            raise ValueError(f"{part!r} is not name[:type][:count]")
        amount = parse_count(str(parse_count(count[1]) * _COUNT[count[2].lower()])) if count else 1
        found.append(Gres(names[0].lower(), names[1].lower() if len(names) == 2 else "", amount))
    return tuple(found)


def expand_hosts(text: str) -> list[str]:
    """Node ranges -> names in the order written.

    >>> expand_hosts("n[001-003,7],login")
    ['n001', 'n002', 'n003', 'n7', 'login']
    """
    names: list[str] = []
    for part in _outside_brackets(text):
        if part.count("[") > MOST_BRACKETS:
            raise ValueError(f"{part[:40]!r} has more than {MOST_BRACKETS} ranges in one name")
        for name in _expanded(part):
            if len(name) > LONGEST_NAME:  # before there are a million of them
                raise ValueError(f"{name[:40]!r}: the name of a node has {len(name)} characters")
            names.append(name)
            if len(names) > MOST_NODES:
                raise ValueError(f"{text[:40]!r} names more than {MOST_NODES:,} nodes")
    return names


def _outside_brackets(text: str) -> Iterator[str]:
    depth, part = 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"{text[:40]!r}: unbalanced brackets")
        if letter == "," and depth == 0:
            if part.strip():
                yield part.strip()
            part = ""
        else:
            part += letter
    if depth:
        raise ValueError(f"{text[:40]!r}: unbalanced brackets")
    if part.strip():
        yield part.strip()


def _expanded(part: str) -> Iterator[str]:
    opening = part.find("[")
    if opening < 0:
        yield part
        return
    closing = part.index("]", opening)
    for number in _numbers(part[opening + 1 : closing]):
        for rest in _expanded(part[closing + 1 :]):
            yield part[:opening] + number + rest


def _numbers(text: str) -> Iterator[str]:
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"{text[:40]!r} is not a node range; write [001-087,100]")
        if not dash:
            yield first
            continue
        if int(last) < int(first):
            raise ValueError(f"{word!r} is not a node range: the first number must not exceed the last")
        if int(last) - int(first) > MOST_NODES:
            raise ValueError(f"{word!r} names more than {MOST_NODES:,} nodes")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
