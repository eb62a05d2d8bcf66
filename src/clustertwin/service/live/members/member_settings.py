"""One joined cluster: its name, the address of its service, and who may see it here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemberSettings:
    name: str
    url: str  # of its service
    link: str = ""  # its address for a browser; empty: `url`
    token_file: str = ""  # a token of its service, with the role read
    ca_file: str = ""
    readers: tuple[str, ...] = ()  # names of this service's tokens that see it; empty: every token

    @property
    def address(self) -> str:
        return (self.link or self.url).rstrip("/")

    def is_shown_to(self, who: str, role: str) -> bool:
        return not self.readers or role == "admin" or who in self.readers
