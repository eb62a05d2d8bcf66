"""A client for the pages of the sample state. It needs no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.service import sample_state

from clustertwin.service.live.snapshot import ServiceState


@pytest.fixture
def published(tmp_path: Path, stage: ServiceState) -> Iterator[ServiceState]:
    vars(stage).update(vars(sample_state.state(tmp_path)))
    yield stage
    stage.store.close()


@pytest.fixture
def client(app: FastAPI, published: ServiceState) -> TestClient:
    return TestClient(app, base_url="http://127.0.0.1")
