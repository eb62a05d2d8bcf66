"""The text of an explanation: numbers -> one to three sentences, such as

2 threads: iowait was 41 % over 100 s; 0 % was expected. The 2 other threads of the node had 0 %. Closest known fault:
bad I/O (distance 6.32; 99.9 % of normal threads are farther than 9.66).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertwin.core.channels import label_of

if TYPE_CHECKING:
    from clustertwin.telemetry.detection.events.explanation import Explanation, Ratio

_WORDS = {"io": "I/O", "cpu": "CPU"}


def explain_in_words(explanation: Explanation) -> str:
    """The main channel against its expected value, the neighbours, and the closest known fault."""
    sentences = [_observation(explanation, explanation.ratios[0])]
    if explanation.ratios[0].neighbours is not None:
        sentences.append(_neighbours(explanation, explanation.ratios[0]))
    if explanation.distance is not None and explanation.kept is not None:
        sentences.append(
            f"Closest known fault: {fault_label(explanation.region)} (distance {explanation.distance:.3g}; "
            f"{100 * explanation.kept_ratio:.4g} % of normal threads are farther than {explanation.kept:.3g})."
        )
    return " ".join(sentences)


def fault_label(name: str) -> str:
    """A fault in words.

    >>> fault_label("bad-io"), fault_label("hung-rank")
    ('bad I/O', 'hung rank')
    """
    return " ".join(_WORDS.get(word, word) for word in name.split("-"))


def _observation(explanation: Explanation, main: Ratio) -> str:
    threads = "1 thread" if explanation.threads == 1 else f"{explanation.threads} threads"
    seen = _percent(main.seen, _decimals(main))
    text = f"{threads}: {label_of(main.channel)} was {seen} over {explanation.end_s - explanation.start_s} s"
    if main.expected is None:
        return f"{text}."
    expected = _percent(main.expected, _decimals(main))
    if expected == seen:
        return f"{text}, as expected on average, but its pattern over time is unusual."
    return f"{text}; {expected} was expected."


def _neighbours(explanation: Explanation, main: Ratio) -> str:
    count, of = explanation.neighbours, explanation.neighbours_of
    threads = f"other thread of the {of}" if count == 1 else f"{count} other threads of the {of}"
    theirs = _percent(main.neighbours or 0.0, _decimals(main))
    if main.expected is None and theirs == _percent(main.seen, _decimals(main)):
        return f"The {threads} had the same average; the pattern over time differs."
    return f"The {threads} had {theirs}."


def _decimals(main: Ratio) -> int:
    """None where the value is at least 5 % away from the one that it is compared with, else one."""
    baseline = main.neighbours if main.expected is None else main.expected
    return 0 if baseline is not None and abs(main.seen - baseline) >= 0.05 else 1


def _percent(ratio: float, decimals: int) -> str:
    return f"{100 * ratio:.{decimals}f} %"
