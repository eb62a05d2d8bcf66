"""The tests of actions: fewer futures than the service draws, since each is a simulation for each choice."""

from __future__ import annotations

from functools import partial

import pytest

from clustertwin.service.act import hand


@pytest.fixture(autouse=True)
def few_futures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand, "ActionSettings", partial(hand.ActionSettings, futures=10))
