"""Did a new stage of the program begin, or another program? Signals and the past -> signs that a fault does not show.

A rank that hangs or is slow keeps its memory, touches no new memory and transfers nothing. A program that ends some of
its processes gives their memory back; one that begins another stage often reads more, or starts processes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.questions.job_parts import JobParts, S, Signals, rate_of
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.detection.questions.usual import Usual
from clustertwin.telemetry.moments.moment import Moment

_PART_OF_MEMORY = 0.03  # of what the job has: noise is less
_MORE_FAULTS = 2.0  # times the page faults of its half minute with the most, and 100 a second
_NEARLY_ALL = 0.2  # of the memory that the job always had: what is left is that of its script and launchers
_BEGUN_S = 20  # seconds after which the next program has its memory
_OTHER_SIZE = 1.25  # a program that has this many times the memory, or that part of it, is another one


def gave_memory_back(now: Signals, own: Usual) -> NDArray[np.bool_]:
    """(part,) whether the job has given back memory that it had all the time."""
    i = S["memory"]
    return np.asarray(now[:, i] < own.lowest[:, i] - _PART_OF_MEMORY * own.centre[:, i])


def another_program_began(
    moment: Moment, parts: JobParts, own: Usual, age_s: NDArray[np.int64], settings: QuestionSettings
) -> NDArray[np.bool_]:
    """(part,) whether the job had nearly no memory a while ago, and has clearly more or less now than it ever had.

    A program that is run again takes as much as before. One that frees all of its memory again and again goes on. One
    that ended and is not followed by another, or only by a loop that waits, leaves the job without memory.
    """
    channels = moment.job_channels
    if channels is None or "job_memory" not in channels.schema.names:
        return np.zeros(len(parts), np.bool_)
    unknown = np.full((1, channels.values.shape[1]), np.nan, np.float32)
    memory = np.vstack([channels.values[:, :, channels.schema.index("job_memory")], unknown])[parts.channel_row]
    begun = np.arange(memory.shape[1], 0, -1) <= (age_s - settings.start_s)[:, None]
    low = begun & (memory < _NEARLY_ALL * own.lowest[:, S["memory"], None])  # (part, second)
    times = (np.diff(low.astype(np.int8), axis=1, prepend=0) == 1).sum(1)
    ended = low[:, -2 * _BEGUN_S :].any(1) & ~low[:, -_BEGUN_S:].any(1) & (times == 1)
    level = memory[:, -_BEGUN_S // 2 :].mean(1)
    lowest, highest = own.lowest[:, S["memory"]], own.highest[:, S["memory"]]
    return np.asarray(ended & ((level > _OTHER_SIZE * highest) | (level < lowest / _OTHER_SIZE)))


def transfers_more_than_ever(signals: Signals, usual: Usual, settings: QuestionSettings) -> NDArray[np.bool_]:
    """(part,) whether the job transfers more than ever: a new stage began."""
    i = S["traffic"]
    return np.asarray(signals[:, i] > usual.highest[:, i] + settings.least_traffic)


def had_memory_before(now: Signals, own: Usual) -> NDArray[np.bool_]:
    """(part,) whether the job had as much memory before: it gave some back and takes it again."""
    return np.asarray(now[:, S["memory"]] < own.highest[:, S["memory"]])


def faults_more_than_ever(signals: Signals, own: Usual) -> NDArray[np.bool_]:
    """(part,) whether the job touches new memory much faster than ever: it starts processes, or a new stage began."""
    i = S["page_faults"]
    return np.asarray(rate_of(signals[:, i]) > _MORE_FAULTS * rate_of(own.highest[:, i]) + 1)
