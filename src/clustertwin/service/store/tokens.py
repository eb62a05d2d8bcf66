"""Tokens: each has a name and a role. Only the hash of a token is stored.

A token has 256 random bits and cannot be guessed, so one SHA-256 is enough. The role vet includes read, and admin
includes vet.
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
class TokenHolder:
    """The owner of a token."""

    name: str
    role: str
    made_s: float = 0.0

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


class Tokens:
    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, name: str, role: str, now_s: float) -> str:
        """Create a token for `name`. This is the only time the token itself is known."""
        if role not in ROLES:
            raise SettingsError(f"unknown role {role!r}; use one of {', '.join(ROLES)}")
        if not re.fullmatch(r"[\w.@-]{1,64}", name):
            raise SettingsError(f"{name!r} is not a valid name; use 1 to 64 letters, digits, and . _ - @")
        token = f"twin_{secrets.token_urlsafe(32)}"
        with self._db.transaction() as connection:
            if connection.execute("SELECT 1 FROM tokens WHERE name = ?", (name,)).fetchone():
                raise SettingsError(f"{name} already has a token; remove it first with `twin token remove {name}`")
            connection.execute("INSERT INTO tokens VALUES (?, ?, ?, ?)", (name, role, _hash(token), now_s))
            audit_log.append(connection, now_s, "", "token added", name, after={"role": role})
        return token

    def remove(self, name: str, now_s: float) -> None:
        with self._db.transaction() as connection:
            if not connection.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount:
                raise SettingsError(f"there is no token for {name!r}")
            audit_log.append(connection, now_s, "", "token removed", name)

    def all(self) -> list[TokenHolder]:
        rows = self._db.rows("SELECT name, role, made_s FROM tokens ORDER BY name")
        return [TokenHolder(row["name"], row["role"], row["made_s"]) for row in rows]

    def holder(self, token: str) -> TokenHolder | None:
        rows = self._db.rows("SELECT name, role, made_s FROM tokens WHERE hash = ?", (_hash(token),))
        return TokenHolder(rows[0]["name"], rows[0]["role"], rows[0]["made_s"]) if rows else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
