"""Tokens: each has a name, a role and, if you like, an end. Only the hash of a token is stored.

A token has 256 random bits and cannot be guessed, so one SHA-256 is enough. The role vet includes read, and admin
includes all others. A login in a browser starts a session, which a logout ends. A session never outlives its token.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from clustertwin.core.errors import SettingsError
from clustertwin.service.store import audit_log
from clustertwin.service.store.database import Database

Role = Literal["push", "read", "vet", "admin"]
ROLES: tuple[str, ...] = get_args(Role)
#: What each role may do. `push` may send samples and nothing else: it is in the configuration of other programs.
_RIGHTS: dict[str, tuple[str, ...]] = {
    "push": ("push",),
    "read": ("read",),
    "vet": ("read", "vet"),
    "admin": ("push", "read", "vet", "admin"),
}
SESSION_S = 30 * 86_400.0
MOST_SESSIONS = 50  # of one token; the oldest ends
_LONGEST = 200  # characters of a token or session that are worth a hash


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The owner of a token."""

    name: str
    role: str
    made_s: float = 0.0
    expires_s: float | None = None  # None: never

    def may(self, role: str) -> bool:
        return role in _RIGHTS.get(self.role, ())


class Tokens:
    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._db, self._clock = database, clock

    def add(
        self, name: str, role: str, now_s: float, *, lasts_s: float | None = None, who: str = "", token: str = ""
    ) -> str:
        """Create a token for `name`. This is the only time the token itself is known.

        With `token`, that one is stored, so that many services can share one.
        """
        if role not in ROLES:
            raise SettingsError(f"unknown role {role!r}; use one of {', '.join(ROLES)}")
        if not re.fullmatch(r"[\w.@-]{1,64}", name):
            raise SettingsError(f"{name!r} is not a valid name; use 1 to 64 letters, digits, and . _ - @")
        if token and not re.fullmatch(r"[A-Za-z0-9_-]{40,200}", token):
            raise SettingsError("the token is not 40 to 200 letters, digits, _ and -; let `twin token add` make one")
        token = token or f"twin_{secrets.token_urlsafe(32)}"
        expires_s = None if lasts_s is None else now_s + lasts_s
        with self._db.transaction() as connection:
            if connection.execute("SELECT 1 FROM tokens WHERE name = ?", (name,)).fetchone():
                raise SettingsError(f"{name} already has a token; remove it first with `twin token remove {name}`")
            if connection.execute("SELECT 1 FROM tokens WHERE hash = ?", (_hash(token),)).fetchone():
                raise SettingsError("another name has this token")
            connection.execute(
                "INSERT INTO tokens (name, role, hash, made_s, expires_s) VALUES (?, ?, ?, ?, ?)",
                (name, role, _hash(token), now_s, expires_s),
            )
            connection.execute("INSERT OR REPLACE INTO access VALUES (1, 1)")
            after = {"role": role, "expires_s": expires_s}
            audit_log.append(connection, now_s, who, "token added", name, after=after)
        return token

    def remove(self, name: str, now_s: float, who: str = "") -> None:
        """Remove a token and end its sessions."""
        with self._db.transaction() as connection:
            row = connection.execute("DELETE FROM tokens WHERE name = ? RETURNING hash", (name,)).fetchone()
            if row is None:
                raise SettingsError(f"there is no token for {name!r}")
            connection.execute("DELETE FROM sessions WHERE token_hash = ?", (row["hash"],))
            audit_log.append(connection, now_s, who, "token removed", name)

    def all(self) -> list[TokenHolder]:
        """The owners of tokens, including those whose tokens have expired."""
        return [_holder(row) for row in self._db.rows("SELECT * FROM tokens ORDER BY name")]

    def valid(self) -> list[TokenHolder]:
        now_s = self._clock()
        return [holder for holder in self.all() if holder.expires_s is None or holder.expires_s > now_s]

    def holder(self, token: str) -> TokenHolder | None:
        """The owner of a token that has not expired."""
        if not token or len(token) > _LONGEST:
            return None
        query = "SELECT * FROM tokens WHERE hash = ? AND COALESCE(expires_s, 9e99) > ?"
        rows = self._db.rows(query, (_hash(token), self._clock()))
        return _holder(rows[0]) if rows else None

    def start_session(self, token: str) -> str | None:
        """A session for the owner of this token; None if the token is not valid."""
        if self.holder(token) is None:
            return None
        session, now_s, hashed = secrets.token_urlsafe(32), self._clock(), _hash(token)
        with self._db.transaction() as connection:
            connection.execute("DELETE FROM sessions WHERE expires_s <= ?", (now_s,))
            connection.execute(
                "DELETE FROM sessions WHERE hash IN"
                " (SELECT hash FROM sessions WHERE token_hash = ? ORDER BY made_s DESC LIMIT -1 OFFSET ?)",
                (hashed, MOST_SESSIONS - 1),
            )
            row = (_hash(session), hashed, now_s, now_s + SESSION_S)
            connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?)", row)
        return session

    def session_holder(self, session: str) -> TokenHolder | None:
        """The owner of a session that has neither ended nor expired."""
        if not session or len(session) > _LONGEST:
            return None
        now_s = self._clock()
        rows = self._db.rows(
            "SELECT tokens.* FROM sessions JOIN tokens ON tokens.hash = sessions.token_hash"
            " WHERE sessions.hash = ? AND sessions.expires_s > ? AND COALESCE(tokens.expires_s, 9e99) > ?",
            (_hash(session), now_s, now_s),
        )
        return _holder(rows[0]) if rows else None

    def end_session(self, session: str) -> None:
        if session and len(session) <= _LONGEST:
            with self._db.transaction() as connection:
                connection.execute("DELETE FROM sessions WHERE hash = ?", (_hash(session),))

    def needed(self) -> bool:
        """Whether every client needs a token. Once a token has existed, this stays so until `reopen`."""
        rows = self._db.rows("SELECT needs_token FROM access")
        return not rows or bool(rows[0]["needs_token"])

    def reopen(self, now_s: float, who: str = "") -> None:
        """Let clients on loopback in without a token again."""
        with self._db.transaction() as connection:
            if connection.execute("SELECT 1 FROM tokens").fetchone():
                raise SettingsError("there are tokens; remove all of them first with `twin token remove NAME`")
            connection.execute("INSERT OR REPLACE INTO access VALUES (1, 0)")
            audit_log.append(connection, now_s, who, "loopback opened", "tokens")


def _holder(row: sqlite3.Row) -> TokenHolder:
    return TokenHolder(row["name"], row["role"], row["made_s"], row["expires_s"])


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
