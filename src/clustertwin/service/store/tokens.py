"""Who may do what: tokens with a name and a role; only their hashes are kept.

A token is 256 random bits, so one SHA-256 is enough: there is nothing to guess. Roles hold each other: admin may all
that vet may, and vet all that read may.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Literal, get_args

from clustertwin.core.errors import SettingsError
from clustertwin.service.store import audit_log
from clustertwin.service.store.database import Database

Role = Literal["read", "vet", "admin"]
ROLES: tuple[str, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody with a token."""

    name: str
    role: str
    made_s: float = 0.0

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


class Tokens:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, name: str, role: str, now_s: float) -> str:
        """A new token for `name`; it is told this once and never again."""
        if role not in ROLES:
            raise SettingsError(f"no role {role!r}; there are {', '.join(ROLES)}")
        if not re.fullmatch(r"[\w.@-]{1,64}", name):
            raise SettingsError(f"{name!r}: a name has 1 to 64 letters, digits, and . _ - @")
        token = f"twin_{secrets.token_urlsafe(32)}"
        with self._db.transaction() as connection:
            if connection.execute("SELECT 1 FROM tokens WHERE name = ?", (name,)).fetchone():
                raise SettingsError(f"{name} has a token; `twin token remove {name}` first")
            connection.execute("INSERT INTO tokens VALUES (?, ?, ?, ?)", (name, role, _hash(token), now_s))
            audit_log.note(connection, now_s, "", "token added", name, after={"role": role})
        return token

    def remove(self, name: str, now_s: float) -> None:
        with self._db.transaction() as connection:
            if not connection.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount:
                raise SettingsError(f"nobody called {name!r} has a token")
            audit_log.note(connection, now_s, "", "token removed", name)

    def all(self) -> list[Holder]:
        rows = self._db.rows("SELECT name, role, made_s FROM tokens ORDER BY name")
        return [Holder(row["name"], row["role"], row["made_s"]) for row in rows]

    def holder(self, token: str) -> Holder | None:
        rows = self._db.rows("SELECT name, role, made_s FROM tokens WHERE hash = ?", (_hash(token),))
        return Holder(rows[0]["name"], rows[0]["role"], rows[0]["made_s"]) if rows else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
