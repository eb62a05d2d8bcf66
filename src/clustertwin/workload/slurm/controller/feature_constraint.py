"""A job's constraint -> a test of a node's features."""

from __future__ import annotations

import re
from collections.abc import Callable

from clustertwin.workload.slurm.controller.site_arrays import Refused

#: Slurm knows one level of them.
MOST_BRACKETS = 50


def feature_names(text: str) -> set[str]:
    """The features that a constraint names.

    >>> sorted(feature_names("[rack1*2&rack2]|25g"))
    ['25g', 'rack1', 'rack2']
    """
    return {word.partition("*")[0] for word in re.findall(r"[\w.-]+(?:\*\d+)?", text)}


def feature_test(text: str) -> Callable[[set[str]], bool]:
    """A constraint such as `ib&(v100|a100)` -> a test of a node's features.

    >>> feature_test("ib&v100")({"ib", "v100"}), feature_test("a|b")({"c"})
    (True, False)
    """
    words = re.findall(r"[\w.-]+(?:\*\d+)?|[&|,()\[\]]", text)
    if words.count("(") + words.count("[") > MOST_BRACKETS:
        raise Refused("the constraint of a job has too many brackets")
    at = 0

    def either() -> Callable[[set[str]], bool]:
        nonlocal at
        parts = [both()]
        while at < len(words) and words[at] == "|":
            at += 1
            parts.append(both())
        return lambda features: any(part(features) for part in parts)

    def both() -> Callable[[set[str]], bool]:
        nonlocal at
        parts = [single()]
        while at < len(words) and words[at] in "&,":
            at += 1
            parts.append(single())
        return lambda features: all(part(features) for part in parts)

    def single() -> Callable[[set[str]], bool]:
        nonlocal at
        if at >= len(words):
            return lambda features: True
        word = words[at]
        at += 1
        if word in "([":
            inside = either()
            at += 1
            return inside
        name = word.partition("*")[0]
        return lambda features: name in features

    return either() if words else (lambda features: True)
