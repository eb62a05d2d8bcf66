"""What each part of the API and each page declares: its addresses, its routes and the roles they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.tokens import Role

#: The longest body of a request, unless a group takes longer ones.
MAX_BODY_BYTES = 1 << 20
#: … and of a form. The event loop itself takes forms apart, which can need a second for a megabyte.
MAX_FORM_BYTES = 1 << 16
#: What a person searches for. Each word is compared with every job or node while the loop waits, so it is short.
Search = Annotated[str, Query(max_length=300)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteGroup:
    """The routes of one subject. Reading needs `read_role`, unless the group is public."""

    paths: tuple[str, ...]  # each route that changes something has one of these paths, or a path below one
    router: Callable[[ServiceState], APIRouter]
    public: bool = False  # no token needed
    change_role: Role = "vet"  # needed by requests that change something
    read_role: Role = "read"  # needed by all other requests
    body_bytes: int = MAX_BODY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(RouteGroup):
    """A page for a browser. Its first path is its address."""

    title: str
    body_bytes: int = MAX_FORM_BYTES
    key: str = ""  # press `g`, then this key, to open the page; a page without a key is not in the navigation bar

    @property
    def path(self) -> str:
        return self.paths[0]
