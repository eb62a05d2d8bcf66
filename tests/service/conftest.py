"""A small real service for tests: two simulated nodes with bad I/O, recorded, replayed and scored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from clustertwin.core.traces import Trace
from clustertwin.service.live.feeds.contract import Feed
from clustertwin.service.live.feeds.replay_feed import ReplayFeed
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.campaign.simulated_rounds import write_recording
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate


def campaign(seed: int, hours: float = 1.5, **settings: Any) -> list[Trace]:
    small = {"nodes": 2, "threads": 8, "job_types": ("np", "good-io", "mpi-4"), "hours": hours, **settings}
    return simulate(ClusterSettings(**small), read_signatures(), seed)


@pytest.fixture(scope="session")
def detector() -> Detector:
    """The bundled detector."""
    import torch

    from clustertwin.telemetry.detection.bundled import bundled

    torch.set_num_threads(1)
    return bundled()


@pytest.fixture(scope="session")
def bad_io(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Half an hour of two nodes; nearly every job does bad I/O."""
    directory = tmp_path_factory.mktemp("recordings") / "bad-io"
    anomalies = {"anomalies": ("bad-io",), "anomaly_ratio": 0.9, "idle_ratio": 0.0, "job_s": (900.0, 1200.0)}
    write_recording(directory, campaign(5, 0.5, **anomalies), "bad-io", "test")
    return Recording.open(directory)


class Clock:
    """A clock that a test sets."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="session", autouse=True)
def clients_in_this_process() -> Iterator[None]:
    """A client without a socket is this process itself, so it has the rights of its user."""
    from clustertwin.service.web import local_users

    with pytest.MonkeyPatch.context() as patch:
        of_socket = local_users.peer_uid
        patch.setattr(
            local_users,
            "peer_uid",
            lambda client, *rest: os.geteuid() if client and client[0] == "testclient" else of_socket(client, *rest),
        )
        yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> ServiceState:
    """One state for all tests, reset for each, so that they can share one app: building an app is slow."""
    nowhere = tmp_path_factory.mktemp("nowhere")
    return ServiceState(nowhere, Store(nowhere / "state.sqlite"))


@pytest.fixture(scope="session")
def app(stage: ServiceState) -> FastAPI:
    from clustertwin.service.application import create_app

    return create_app(stage)


@pytest.fixture
def state(tmp_path: Path, stage: ServiceState) -> Iterator[ServiceState]:
    store = Store(tmp_path / "home" / "state.sqlite")
    vars(stage).update(vars(ServiceState(tmp_path / "home", store)))
    yield stage
    store.close()


def ready(value: Any) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(value)
    return done


@pytest.fixture
def loop_of(state: ServiceState, detector: Detector) -> Callable[..., Loop]:
    """Builds a loop over a feed, with the bundled detector."""

    def build(feed: Feed, stride_s: int = 10, **options: Any) -> Loop:
        handover = ready(Handover(state.home, detector))
        return Loop(state, feed, handover, LoopSettings(stride_s=stride_s), **options)

    return build


@pytest.fixture(scope="session")
def watched(bad_io: Recording, detector: Detector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    """A loop that has scored all of the bad I/O, for tests that only read its state."""
    home, clock = tmp_path_factory.mktemp("watched"), Clock()
    state = ServiceState(home, Store(home / "state.sqlite"))
    champion = ready(Handover(home, detector))
    # The loop's own clock stands still, so scoring takes no time, even on a busy machine.
    loop = Loop(state, ReplayFeed(bad_io, 1.0, clock), champion, LoopSettings(stride_s=20), clock=lambda: 0.0)
    for clock.now_s in range(0, bad_io.end_s - bad_io.start_s + 20, 20):
        loop.turn()
    yield loop
    state.store.close()
