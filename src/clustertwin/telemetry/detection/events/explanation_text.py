"""The text of an explanation: numbers -> one to three sentences, and the title of its event, such as

2 threads: iowait was 41 % over 100 s; 0 % was expected. The 2 other threads of the node had 0 %. Closest known fault:
bad I/O (distance 6.32; 99.9 % of normal threads are farther than 9.66).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertwin.core.channels import label_of
from clustertwin.core.formatting import counted
from clustertwin.telemetry.detection.events.causes import HUNG_RANK, STALLED_IO, STRAGGLER, UNUSUAL, cause_of
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.event_title import (
    Baseline,
    Figures,
    compare,
    fault_label,
    shown,
    subject_of,
    write_title,
)

if TYPE_CHECKING:
    from clustertwin.telemetry.detection.events.explanation import Explanation, Ratio

_SOME_IO = 0.05
_CLEARLY = 1.25  # the next kind must be this much farther away than the one that is named


def explain_in_words(explanation: Explanation) -> str:
    """The main channel against the value it is compared with, the neighbours, and the closest known fault."""
    sentences = [_observation(explanation), _neighbours(explanation)]
    if known := known_fault(explanation):
        sentences.append(
            f"Closest known fault: {fault_label(known)} (distance {explanation.distance:.3g}; "
            f"{100 * explanation.kept_ratio:.4g} % of normal threads are farther than {explanation.kept:.3g})."
        )
    return " ".join(filter(None, sentences))


def known_fault(explanation: Explanation) -> str:
    """The known fault to name: the nearest of all known kinds, nearer than normal threads are, and fitting the cause.

    Empty if there is none. A fault of I/O is not named without iowait.
    """
    name, distance, kept = explanation.region, explanation.distance, explanation.kept
    if not name or distance is None or kept is None or distance >= kept:
        return ""
    nearest = explanation.nearest
    if nearest and (nearest[0][0] != name or any(other < _CLEARLY * nearest[0][1] for _, other in nearest[1:])):
        return ""
    if explanation.cause not in ("", UNUSUAL) and name not in cause_of(explanation.cause).faults:
        return ""
    iowait = next((ratio.seen for ratio in explanation.ratios if ratio.channel == "iowait"), None)
    return "" if iowait is not None and iowait < _SOME_IO and name in cause_of(STALLED_IO).faults else name


def baseline_of(explanation: Explanation) -> tuple[Baseline, float | None]:
    """What the main channel is compared with, and that value. Empty: no channel differs from anything known."""
    main = explanation.ratios[0]
    against: Baseline = explanation.against
    if not against and not explanation.cause:  # stored by a release without baselines
        against = "site" if main.expected is not None else "ranks" if _of_job(explanation, main) else ""
    value = {"own past": main.before, "ranks": main.neighbours, "site": main.expected}.get(against)
    if value is None or len(set(shown(main.seen, value))) == 1:
        return "", None
    return against, value


def _observation(explanation: Explanation) -> str:
    main, lasted_s = explanation.ratios[0], explanation.end_s - explanation.start_s
    threads = counted(explanation.threads, "thread")
    if (measure := explanation.measure) is not None:
        other = float("nan") if measure.usual is None else measure.usual
        value, comparison = compare(Figures(1, 1, 0, measure.channel, measure.value, other, measure.compared_with))
        return f"{threads}: {value}{', ' if comparison else ''}{comparison}." if value else ""
    against, usual = baseline_of(explanation)
    if usual is None:
        if any(value is not None for value in (main.before, main.expected)) or _of_job(explanation, main):
            return f"{threads}: the averages over {lasted_s} s are normal, but the pattern over time is unusual."
        return f"{threads}: {label_of(main.channel)} was {100 * main.seen:.0f} % over {lasted_s} s."
    seen, theirs = shown(main.seen, usual)
    text = f"{threads}: {label_of(main.channel)} was {seen} over {lasted_s} s"
    if against == "own past":
        return f"{text}; before, it was {theirs}."
    if against == "ranks":
        return f"{text}; {_others(explanation)} had {theirs}."
    return f"{text}; {theirs} was expected."


def _neighbours(explanation: Explanation) -> str:
    """The neighbours, unless the first sentence has them or they have no other value."""
    main, (against, usual) = explanation.ratios[0], baseline_of(explanation)
    if main.neighbours is None or against == "ranks" or usual is None or explanation.measure is not None:
        return ""
    return f"{_others(explanation).capitalize()} had {shown(main.neighbours, main.seen)[0]}."


def _others(explanation: Explanation) -> str:
    count, of = explanation.neighbours, explanation.neighbours_of
    return f"the other thread of the {of}" if count == 1 else f"the {count} other threads of the {of}"


def _of_job(explanation: Explanation, main: Ratio) -> bool:
    return main.neighbours is not None and explanation.neighbours_of == "job"


def title_of(event: Event, why: Explanation | None = None) -> str:
    """The title of an event, with the figures of its explanation."""
    subject = subject_of(event.jobs, event.node, event.threads)
    cause = event.cause or UNUSUAL
    if why is None:
        return write_title(subject, cause)
    against, usual = baseline_of(why)
    differs = usual is not None or cause != UNUSUAL or not _is_comparable(why)
    channel, value = why.channel, why.ratios[0].seen
    if (measure := why.measure) is not None:
        channel, value, differs = measure.channel, measure.value, True
        usual, against = measure.usual, measure.compared_with
    figures = Figures(
        threads=why.threads,
        of_threads=max(why.of_threads, why.threads),
        lasted_s=event.lasted_s,
        channel=channel if differs else "",
        value=value,
        usual=float("nan") if usual is None else usual,
        compared_with=against,
        known=why.known_fault,
        by_shape=why.by_shape,
        place=_place_of_odd_thread(event),
    )
    return write_title(subject, cause, figures)


def _place_of_odd_thread(event: Event) -> str:
    """Where the thread is that is unlike its job, if it is one."""
    if event.cause not in (HUNG_RANK, STRAGGLER) or event.threads != 1:
        return ""
    ((node, (cpu,)),) = event.places
    return f"{node} CPU {cpu}"


def _is_comparable(why: Explanation) -> bool:
    """Whether a value is known that the main channel could be compared with."""
    main = why.ratios[0]
    return main.before is not None or main.expected is not None or (main.neighbours is not None and why.of_threads > 0)
