"""The pages of a small state made by hand, behind a client that needs no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.service import made

from clustertwin.service.pages import mount
from clustertwin.service.state import ServiceState


@pytest.fixture
def made_state(tmp_path: Path) -> Iterator[ServiceState]:
    state = made.state(tmp_path)
    yield state
    state.store.close()


@pytest.fixture
def client(made_state: ServiceState) -> TestClient:
    app = FastAPI()
    mount(app, made_state)
    return TestClient(app)
