"""A log and a secret -> the same log with pseudonyms for users, groups and queues, and without any free text.

A pseudonym depends only on the word and the secret. Logs anonymised with the same secret can be joined. Without the
secret, nobody can test whether a name occurs in a log. The secret is not stored.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs, Machine

LEAST_SECRET_BYTES = 16
PSEUDONYMISED = ("user", "group", "queue")


def pseudonym(word: str, kind: str, secret: bytes) -> str:
    """`ann`, `user` -> `user-6b1f0c2d9e3a`. A user and a group of the same name get different pseudonyms."""
    digest = hmac.new(secret, f"{kind}:{word}".encode(), "sha256").hexdigest()
    return f"{kind}-{digest[:12]}"


def anonymise(jobs: Jobs, secret: bytes) -> Jobs:
    """Number the jobs from 1, remove header and machine name, and replace all names. Times, sizes and status stay."""
    if len(secret) < LEAST_SECRET_BYTES:
        reason = f"a secret of {len(secret)} bytes can be guessed; use at least {LEAST_SECRET_BYTES} bytes"
        raise SettingsError(reason)
    codes: dict[str, Any] = {}
    names = {}
    for kind in PSEUDONYMISED:
        codes[kind], names[kind] = _recode(getattr(jobs, kind), jobs.names.get(kind), kind, secret)
    machine = Machine(jobs.machine.nodes, jobs.machine.cpus_per_node, jobs.machine.gpus_per_node)
    known = {kind: words for kind, words in names.items() if words}
    return replace(jobs, id=np.arange(1, len(jobs) + 1), header=(), machine=machine, names=known, **codes)


def _recode(
    codes: NDArray[np.int64], names: tuple[str, ...] | None, kind: str, secret: bytes
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """New codes in the order of the pseudonyms, which hides the order of the old codes."""
    distinct, index = np.unique(codes, return_inverse=True)
    words = [pseudonym(names[code] if names else str(code), kind, secret) for code in distinct if code >= 0]
    ordered = sorted(words)
    place = {word: number for number, word in reversed(list(enumerate(ordered)))}  # of two equal ones, the first
    new = [-1] * int((distinct < 0).sum()) + [place[word] for word in words]
    return np.array(new, dtype=np.int64)[index], tuple(ordered)
