"""Boards of a running service, through its API: snapshot, traces and open events -> boards. It accepts verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np

from clustertwin.core.errors import SourceError
from clustertwin.service.terminal.board import Board, EventLine, Heat, JobLine, NodeLine
from clustertwin.telemetry.learning.night.verdicts import SETTLED

SECONDS = 300
EVENTS = 50


class RemoteBoards:
    """Queries the service once a second. After the first answer, it waits for a service that is unreachable."""

    vets = True

    def __init__(
        self, url: str, token: str = "", clock: Callable[[], float] = time.monotonic, client: httpx.Client | None = None
    ) -> None:
        self.watches = url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = client or httpx.Client(base_url=url, headers=headers, timeout=5.0)
        self._clock, self._stopped, self._node = clock, Event(), ""

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
        return self._ask("GET", "/snapshot")

    def choose(self, node: str) -> None:
        self._node = node

    def vet(self, event_id: str, verdict: str) -> None:
        self._ask("POST", f"/events/{quote(event_id, safe='')}/verdict", {"verdict": verdict})

    def undo(self, event_id: str) -> None:
        self._ask("POST", f"/events/{quote(event_id, safe='')}/undo")

    def stop(self) -> None:
        self._stopped.set()

    def _board(self) -> Board:
        snapshot = self.snapshot()
        names = [node["node"] for node in snapshot["nodes"]]
        shown = self._node if self._node in names else (names[0] if names else "")
        heat = None
        if shown:
            heat = heat_of(self._ask("GET", f"/nodes/{quote(shown, safe='')}/traces?seconds={SECONDS}"))
        return board_of(snapshot, heat, self._ask("GET", f"/events?open=true&limit={EVENTS}")["events"])

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            answer = self._client.request(method, f"/api/v1{path}", json=body)
            content = answer.json()
        except httpx.ConnectError as error:
            raise SourceError(f"{self.watches}: no service answers here ({error}); is it running?") from error
        except httpx.HTTPError as error:
            raise SourceError(f"{self.watches}: {error or type(error).__name__}") from error
        except ValueError as error:
            raise SourceError(f"{self.watches}: not a clustertwin service ({answer.status_code}, no JSON)") from error
        if answer.is_error:
            raise SourceError(f"{self.watches}: {content.get('detail', answer.status_code)}")
        return content


def board_of(snapshot: dict[str, Any], heat: Heat | None, events: list[dict[str, Any]]) -> Board:
    """The API's answers -> a board."""
    now_s = snapshot["now_s"]
    state = snapshot["phase"]
    if state == "warming-up" and snapshot["ready_in_s"] is not None:
        state = f"warming up, first score in {snapshot['ready_in_s']} s"
    nodes = tuple(
        NodeLine(node["node"], node["threads"], node["phase"], _or_nan(node["score"]), node["alarming"])
        for node in snapshot["nodes"]
    )
    jobs = tuple(
        JobLine(job["job"], job["owner"], ",".join(job["nodes"]), job["threads"], int(now_s - job["since_s"]))
        for job in snapshot["jobs"]
    )
    lines = tuple(
        EventLine(
            event_id=event["id"],
            node=",".join(event["nodes"]),
            threads=event["threads"],
            job=",".join(event["jobs"]),
            score=_or_nan(event["score"]),
            onset_s=event["onset_s"],
            end_s=event["end_s"],
            verdict=event["verdict"],
            why=event["why"]["sentence"] if event["why"] else "",
            title=event.get("title", ""),
        )
        for event in events
        if event["verdict"] not in SETTLED
    )
    return Board(". ".join((state, *snapshot["problems"])), nodes, heat, jobs, lines)


def heat_of(traces: dict[str, Any]) -> Heat:
    """The API's traces -> ratios for each channel."""
    values = np.array(traces["values"], np.float32)  # (cpu, second, channel); null becomes NaN
    ratios = {name: values[:, :, i] for i, name in enumerate(traces["channels"])}
    now = {name: _or_nan(values[-1]) for name, values in traces.get("node_channels", {}).items() if values}
    ratios = {"busy": 1 - ratios.pop("other"), **ratios}
    return Heat(traces["node"], tuple(traces["cpus"]), traces["end_s"], ratios, now)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
