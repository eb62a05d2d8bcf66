"""What a service tells a service that joins it: one JSON document a request, with limits on both ends.

It has all nodes and the newest open events, but neither threads nor jobs: a million threads are 7,813 nodes of 128
threads, which is about 800 KB.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from clustertwin.core.errors import SourceError
from clustertwin.core.foreign_files import parse_json
from clustertwin.core.formatting import visible
from clustertwin.telemetry.ingest.counters import NAME_CHARS

MOST_NODES = 20_000
MOST_EVENTS = 200
MOST_PROBLEMS = 20
#: Of the nodes of one event.
MOST_PLACES = 20
SENTENCE_CHARS = 1000
#: A node has 6, and a newer service may say more.
MOST_VALUES = 20 * MOST_NODES

Name = Annotated[str, StringConstraints(max_length=NAME_CHARS), AfterValidator(visible)]
Sentence = Annotated[str, StringConstraints(max_length=SENTENCE_CHARS), AfterValidator(visible)]
Count = Annotated[int, Field(ge=0, le=2**40)]
#: JSON has no NaN: an unknown number is null.
Known = Annotated[float, Field(allow_inf_nan=False)]
Number = Annotated[float, BeforeValidator(lambda value: float("nan") if value is None else value)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer service may say more


class MemberNode(_Part):
    node: Name
    phase: Name
    threads: Count
    score: Number  # the highest of its threads
    alarming: Count  # threads above the threshold
    unknown: Count  # threads without a score

    @model_validator(mode="after")
    def _parts_of_a_whole(self) -> MemberNode:
        if self.alarming + self.unknown > self.threads:
            raise ValueError("more threads are anomalous or unknown than there are")
        return self


class MemberEvent(_Part):
    """An open event that no verdict has settled."""

    id: Name
    title: Sentence
    nodes: Annotated[tuple[Name, ...], Field(max_length=MOST_PLACES, fail_fast=True)]  # the first ones
    threads: Count
    job: Name
    score: Number
    onset_s: Known


class MemberSummary(_Part):
    """One cluster at one second."""

    now_s: Known
    phase: Name
    lag_s: Known
    stride_s: Count
    scoring_s: Known
    scored_s: Known | None  # the end of the newest second that has scores
    threshold: Number
    model: Name
    jobs: Count
    open_events: Count
    problems: Annotated[tuple[Sentence, ...], Field(max_length=MOST_PROBLEMS + 1, fail_fast=True)]
    events: Annotated[tuple[MemberEvent, ...], Field(max_length=MOST_EVENTS, fail_fast=True)]  # the newest
    nodes: Annotated[tuple[MemberNode, ...], Field(max_length=MOST_NODES, fail_fast=True)]  # highest score first

    @property
    def threads(self) -> int:
        return sum(node.threads for node in self.nodes)

    @property
    def alarming(self) -> int:
        return sum(node.alarming for node in self.nodes)

    @property
    def unknown(self) -> int:
        return sum(node.unknown for node in self.nodes)


def parse_summary(body: bytes, where: str) -> MemberSummary:
    """The summary of a service; `SourceError` for anything else.

    pydantic would read JSON itself, but its errors hold a copy of the document each.
    """
    try:
        return MemberSummary.model_validate(parse_json(body, MOST_VALUES))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "document"
        reason = f"{place}: {first['msg']}"
    except ValueError as error:
        reason = f"document: {error}"
    raise SourceError(f"{where}: not the summary of a clustertwin service: {reason}")
