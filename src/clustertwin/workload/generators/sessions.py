"""A user's jobs in time -> sessions: stretches of work without a long pause, none longer than half a working day.

Boundaries by the pause between submissions follow Zakay and Feitelson (2012), who find an hour. What a log calls one
user may be many (an account of a portal, "unknown"): such a user never pauses, so long stretches are cut at their
longest pauses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


#: Arrays of thousands of jobs are cut too: what is done with a session takes time in its length.
MOST_JOBS = 500


def starts(submit_s: Floats, user: Ints, pause_s: float = 3600.0, longest_s: float = 4 * 3600.0) -> Ints:
    """The index of each session's first job; jobs sorted by user, then by time.

    >>> starts(np.array([0.0, 10, 5000, 5010, 7]), np.array([1, 1, 1, 1, 2])).tolist()
    [0, 2, 4]
    """
    gap_s = np.diff(submit_s, prepend=submit_s[:1])
    first = np.append(True, (np.diff(user) != 0) | (gap_s[1:] > pause_s))
    begins = np.flatnonzero(first)
    todo = list(zip(begins.tolist(), np.append(begins[1:], len(user)).tolist(), strict=True))
    found = []
    while todo:
        begin, end = todo.pop()
        if submit_s[end - 1] - submit_s[begin] > longest_s:
            cut = begin + 1 + int(np.argmax(gap_s[begin + 1 : end]))
        elif end - begin > MOST_JOBS:
            quarter = (end - begin) // 4
            cut = begin + quarter + int(np.argmax(gap_s[begin + quarter : end - quarter]))
        else:
            found.append(begin)
            continue
        todo += [(begin, cut), (cut, end)]
    return np.sort(np.array(found, dtype=np.int64))
