"""A user's jobs in time -> sessions: periods of work without a long pause, none longer than half a working day.

A pause of more than an hour between submissions ends a session (Zakay and Feitelson, 2012). One user of a log may stand
for many people, such as the account of a portal or "unknown". Such a user has no pauses, so long sessions are also cut
at their longest pause.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


#: Job arrays of thousands of jobs are cut as well: the cost of an exchange grows with the length of a session.
MOST_JOBS = 500


def session_starts(
    submit_s: Floats, user: Ints, pause_s: float = 3600.0, longest_s: float = 4 * 3600.0, most_jobs: int = MOST_JOBS
) -> Ints:
    """The index of the first job of each session. The jobs are sorted by user, then by time.

    >>> session_starts(np.array([0.0, 10, 5000, 5010, 7]), np.array([1, 1, 1, 1, 2])).tolist()
    [0, 2, 4]
    """
    gap_s = np.diff(submit_s, prepend=submit_s[:1])
    first = np.append(True, (np.diff(user) != 0) | (gap_s[1:] > pause_s))
    begins = np.flatnonzero(first)
    unchecked = list(zip(begins.tolist(), np.append(begins[1:], len(user)).tolist(), strict=True))
    starts = []
    while unchecked:
        begin, end = unchecked.pop()
        if submit_s[end - 1] - submit_s[begin] > longest_s:
            cut = begin + 1 + int(np.argmax(gap_s[begin + 1 : end]))
        elif end - begin > most_jobs:
            quarter = (end - begin) // 4
            cut = begin + quarter + int(np.argmax(gap_s[begin + quarter : end - quarter]))
        else:
            starts.append(begin)
            continue
        unchecked += [(begin, cut), (cut, end)]
    return np.sort(np.array(starts, dtype=np.int64))
