"""Basic authentication: a user name and a password -> right or wrong, with a limit on what wrong passwords cost.

bcrypt is slow by design. One check runs at a time, so wrong passwords use one core at most. Few clients may wait for a
check, and few of them from one address. The others get `PasswordQueueFull` at once and hold no threads. A result is
cached under a keyed hash. Right results have a cache of their own: wrong passwords can neither delay nor displace them.
"""

from __future__ import annotations

import os
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from threading import Lock

MOST_WAITING = 12  # including the one that is checked
MOST_WAITING_OF_ADDRESS = 8
REMEMBERED = 128  # results of each cache
RIGHT_S = 900.0  # after the last use
WRONG_S = 60.0


class PasswordQueueFull(Exception):
    """Too many passwords are being checked."""


class Passwords:
    """The users and their bcrypt hashes."""

    def __init__(self, users: dict[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._users, self._clock = users, clock
        # For unknown names, with the highest cost in use: rejecting them takes as long as a wrong password.
        cost = max(int(hashed[4:6]) for hashed in users.values())
        self._nobody = f"$2b${cost:02d}$" + "CwTycUXWue0Thq9StjUM0u" + "." * 31
        self._key = os.urandom(32)
        self._right: OrderedDict[bytes, float] = OrderedDict()  # keyed hash -> when it is forgotten
        self._wrong: OrderedDict[bytes, float] = OrderedDict()
        self._waiting: Counter[str] = Counter()
        self._caches, self._checking = Lock(), Lock()

    def is_right(self, name: str, password: str, client: str = "") -> bool:
        """Whether the user has this password. `PasswordQueueFull` if too many clients wait for a check."""
        from hashlib import blake2b  # loads OpenSSL, 5 MB that an exporter without passwords does not need

        hashed = self._users.get(name, self._nobody)
        parts = "\0".join((name, hashed, password)).encode("utf-8", "surrogateescape")
        key = blake2b(parts, key=self._key).digest()
        with self._caches:
            known = self._cached(key)
            if known is not None:
                return known
            if self._waiting.total() >= MOST_WAITING or self._waiting[client] >= MOST_WAITING_OF_ADDRESS:
                raise PasswordQueueFull
            self._waiting[client] += 1
        try:
            with self._checking:
                with self._caches:
                    known = self._cached(key)  # another thread may have checked the same password
                return self._checked(key, name, password, hashed) if known is None else known
        finally:
            with self._caches:
                self._waiting[client] -= 1
                self._waiting = +self._waiting  # without the addresses that no longer wait

    def _checked(self, key: bytes, name: str, password: str, hashed: str) -> bool:
        is_right = _bcrypt_agrees(password, hashed) and name in self._users
        with self._caches:
            cache, lasts_s = (self._right, RIGHT_S) if is_right else (self._wrong, WRONG_S)
            cache[key] = self._clock() + lasts_s
            while len(cache) > REMEMBERED:
                cache.popitem(last=False)
        return is_right

    def _cached(self, key: bytes) -> bool | None:
        now_s = self._clock()
        if self._right.get(key, 0.0) > now_s:
            self._right[key] = now_s + RIGHT_S
            self._right.move_to_end(key)
            return True
        return False if self._wrong.get(key, 0.0) > now_s else None


def _bcrypt_agrees(password: str, hashed: str) -> bool:
    import bcrypt

    secret = password.encode("utf-8", "surrogateescape")[:72]  # bcrypt ignores what follows
    try:
        return bcrypt.checkpw(secret, hashed.encode())
    except ValueError:
        return False  # a NUL in the password, or a hash with an invalid salt
