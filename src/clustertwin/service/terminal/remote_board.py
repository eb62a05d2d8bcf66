"""Boards of a running service, through its API: snapshot, traces and open events -> boards. It accepts verdicts.

Nobody knows yet whether a clustertwin service answers at the address. An answer is read within a budget, a value of
another type is an error in one sentence, and control characters are spelled out: they would act on the terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event, Lock
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np

from clustertwin.core.errors import SourceError
from clustertwin.core.foreign_files import parse_json
from clustertwin.core.formatting import visible
from clustertwin.service.act.bounded_answer import PLAIN, body_of
from clustertwin.service.terminal.board import Board, EventLine, Heat, JobLine, NodeLine
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.socket_deadline import SocketDeadline
from clustertwin.telemetry.learning.night.verdicts import SETTLED

SECONDS = 300
EVENTS = 50
DEADLINE_S = 5.0
#: The snapshot of 20,000 nodes and their jobs is not longer.
MOST_BYTES = 64 << 20
#: What values of other types raise.
_ODD = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)


class RemoteBoards:
    """Queries the service once a second. After the first answer, it waits for a service that is unreachable."""

    vets = True

    def __init__(
        self, url: str, token: str = "", clock: Callable[[], float] = time.monotonic, client: httpx.Client | None = None
    ) -> None:
        """SettingsError if this is no address, or if the token would cross the network unencrypted."""
        self.watches = Endpoint(url, bearer_token=token).with_safe_token().url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = client or httpx.Client(base_url=url, headers=headers, timeout=DEADLINE_S)
        self._clock, self._stopped, self._node = clock, Event(), ""
        self._lock, self._deadline = Lock(), SocketDeadline()  # a verdict is sent from a thread of its own

    def boards(self) -> Iterator[Board]:
        answered = False
        while not self._stopped.is_set():
            asked_s = self._clock()
            try:
                yield self._board()
                answered = True
            except SourceError as error:
                if not answered:
                    raise
                yield Board(str(error))
            self._stopped.wait(max(1.0 - (self._clock() - asked_s), 0.05))

    def snapshot(self) -> dict[str, Any]:
        """All nodes, all jobs and the model, as the API returns them."""
        answer = self._ask("GET", "/snapshot")
        if not isinstance(answer, dict) or not isinstance(answer.get("nodes"), list):
            raise self._foreign()
        return answer

    def choose(self, node: str) -> None:
        self._node = node

    def vet(self, event_id: str, verdict: str) -> None:
        self._ask("POST", f"/events/{quote(event_id, safe='')}/verdict", {"verdict": verdict})

    def undo(self, event_id: str) -> None:
        self._ask("POST", f"/events/{quote(event_id, safe='')}/undo")

    def stop(self) -> None:
        self._stopped.set()

    def _board(self) -> Board:
        snapshot = _shown(self.snapshot())
        try:
            names = [str(node["node"]) for node in snapshot["nodes"]]
            shown = self._node if self._node in names else (names[0] if names else "")
            heat = None
            if shown not in ("", ".", ".."):  # no address can have these names
                heat = heat_of(_shown(self._ask("GET", f"/nodes/{quote(shown, safe='')}/traces?seconds={SECONDS}")))
            events = self._ask("GET", f"/events?open=true&limit={EVENTS}")["events"]
            return board_of(snapshot, heat, _shown(events))
        except _ODD as error:
            raise self._foreign() from error

    def _foreign(self) -> SourceError:
        return SourceError(f"{self.watches}: its answer is not that of a clustertwin service of this release")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        extensions = self._deadline.extensions
        try:
            with (
                self._lock,
                self._deadline.within(DEADLINE_S),
                self._client.stream(
                    method, f"/api/v1{path}", json=body, headers=PLAIN, extensions=extensions
                ) as answer,
            ):
                content = parse_json(body_of(answer, MOST_BYTES, time.monotonic() + DEADLINE_S))
        except httpx.ConnectError as error:
            raise SourceError(f"{self.watches}: no service answers here ({error}); is it running?") from error
        except httpx.HTTPError as error:
            reason = "no response in time" if self._deadline.has_passed else str(error) or type(error).__name__
            raise SourceError(f"{self.watches}: {reason}") from error
        except SourceError as error:
            raise SourceError(f"{self.watches}: {error}") from error
        except ValueError as error:
            raise SourceError(f"{self.watches}: not a clustertwin service ({answer.status_code}, no JSON)") from error
        if answer.is_error:
            detail = content.get("detail") if isinstance(content, dict) else None
            hint = "; set --token or CLUSTERTWIN_TOKEN" if answer.status_code == httpx.codes.UNAUTHORIZED else ""
            raise SourceError(f"{self.watches}: {visible(str(detail or answer.status_code)[:500])}{hint}")
        return content


def _shown(value: Any) -> Any:
    """The answer with every text made visible."""
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return visible(value) if isinstance(value, str) else value


def board_of(snapshot: dict[str, Any], heat: Heat | None, events: list[dict[str, Any]]) -> Board:
    """The API's answers -> a board."""
    now_s = snapshot["now_s"]
    state = snapshot["phase"]
    if state == "warming-up" and snapshot["ready_in_s"] is not None:
        state = f"warming up, first score in {snapshot['ready_in_s']} s"
    nodes = tuple(
        NodeLine(
            str(node["node"]),
            _whole(node["threads"]),
            str(node["phase"]),
            _or_nan(node["score"]),
            _whole(node["alarming"]),
        )
        for node in snapshot["nodes"]
    )
    jobs = tuple(
        JobLine(
            str(job["job"]),
            str(job["owner"]),
            ",".join(job["nodes"]),
            _whole(job["threads"]),
            _whole(now_s - job["since_s"]),
        )
        for job in snapshot["jobs"]
    )
    lines = tuple(
        EventLine(
            event_id=str(event["id"]),
            node=",".join(event["nodes"]),
            threads=_whole(event["threads"]),
            job=",".join(event["jobs"]),
            score=_or_nan(event["score"]),
            onset_s=_whole(event["onset_s"]),
            end_s=None if event["end_s"] is None else _whole(event["end_s"]),
            verdict=str(event["verdict"]),
            why=str(event["why"]["sentence"]) if event["why"] else "",
            title=str(event.get("title", "")),
        )
        for event in events
        if event["verdict"] not in SETTLED
    )
    return Board(". ".join((state, *snapshot["problems"])), nodes, heat, jobs, lines)


def heat_of(traces: dict[str, Any]) -> Heat:
    """The API's traces -> ratios for each channel."""
    cpus = tuple(_whole(cpu) for cpu in traces["cpus"])
    values = np.array(traces["values"], np.float32)  # (cpu, second, channel); null becomes NaN
    if values.shape[:1] != (len(cpus),):
        raise ValueError("each thread has one row")
    ratios = {name: values[:, :, i] for i, name in enumerate(traces["channels"])}
    now = {name: _or_nan(values[-1]) for name, values in traces.get("node_channels", {}).items() if values}
    ratios = {"busy": 1 - ratios["other"], **{name: ratios[name] for name in ("user", "system", "iowait")}}
    return Heat(str(traces["node"]), cpus, _whole(traces["end_s"]), ratios, now)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _whole(value: float) -> int:
    """A whole number of a size that can be formatted."""
    return int(float(value))
