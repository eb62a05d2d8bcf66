"""A log + a secret -> the same log without people: users, groups and queues become pseudonyms, free words disappear.

The pseudonym of a word depends on the secret alone: logs anonymised with one secret can be joined, and nobody without
it can test whether a name is in them. The secret is stored nowhere.
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
PEOPLE = ("user", "group", "queue")


def pseudonym(word: str, kind: str, secret: bytes) -> str:
    """`ann`, `user` -> `user-6b1f0c2d9e3a`; the kind keeps a user from looking like the group of the same name."""
    digest = hmac.new(secret, f"{kind}:{word}".encode(), "sha256").hexdigest()
    return f"{kind}-{digest[:12]}"


def anonymise(jobs: Jobs, secret: bytes) -> Jobs:
    """Ids count from 1; the header, the machine's name and every word are gone; times, sizes and fates stay."""
    if len(secret) < LEAST_SECRET_BYTES:
        raise SettingsError(f"a secret of {len(secret)} bytes can be guessed; use at least {LEAST_SECRET_BYTES}")
    codes: dict[str, Any] = {}
    names = {}
    for kind in PEOPLE:
        codes[kind], names[kind] = _recode(getattr(jobs, kind), jobs.names.get(kind), kind, secret)
    machine = Machine(jobs.machine.nodes, jobs.machine.cpus_per_node, jobs.machine.gpus_per_node)
    known = {kind: words for kind, words in names.items() if words}
    return replace(jobs, id=np.arange(1, len(jobs) + 1), header=(), machine=machine, names=known, **codes)


def _recode(
    codes: NDArray[np.int64], names: tuple[str, ...] | None, kind: str, secret: bytes
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """New codes in the order of the pseudonyms, so that not even the order of the old ones is left."""
    distinct, place = np.unique(codes, return_inverse=True)
    words = [pseudonym(names[code] if names else str(code), kind, secret) for code in distinct if code >= 0]
    ordered = sorted(words)
    new = [-1] * int((distinct < 0).sum()) + [ordered.index(word) for word in words]
    return np.array(new, dtype=np.int64)[place], tuple(ordered)
