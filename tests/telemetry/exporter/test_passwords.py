"""Passwords: right or wrong, and what a flood of wrong ones may cost."""

from __future__ import annotations

import threading
import time

import bcrypt
import httpx
import pytest

from clustertwin.telemetry.exporter.http import passwords as passwords_module
from clustertwin.telemetry.exporter.http import server as server_module
from clustertwin.telemetry.exporter.http.passwords import (
    MOST_WAITING,
    MOST_WAITING_OF_ADDRESS,
    REMEMBERED,
    RIGHT_S,
    PasswordQueueFull,
    Passwords,
)
from clustertwin.telemetry.exporter.http.webconfig import parse_web_config

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


def test_bcrypt_runs_once_for_each_password_also_for_unknown_users(monkeypatch):
    asked = []
    real = passwords_module._bcrypt_agrees
    monkeypatch.setattr(passwords_module, "_bcrypt_agrees", lambda *guess: asked.append(guess) or real(*guess))
    passwords = Passwords({"alice": HASH})
    for _ in range(3):
        assert passwords.is_right("alice", "secret")
        assert not passwords.is_right("alice", "wrong")
        assert not passwords.is_right("nobody", "secret")
    assert len(asked) == 3
    assert {hashed[4:6] for _, hashed in asked} == {"04"}  # the same cost for all


def test_cached_results_are_bounded_and_hold_no_password():
    passwords = Passwords({"alice": HASH})
    for i in range(REMEMBERED + 20):
        passwords.is_right("alice", f"guess-{i}")
    assert len(passwords._wrong) == REMEMBERED
    assert not any(b"guess" in key for key in passwords._wrong)


def test_wrong_passwords_do_not_displace_a_right_one(monkeypatch):
    passwords = Passwords({"alice": HASH})
    assert passwords.is_right("alice", "secret")
    for i in range(REMEMBERED + 20):
        passwords.is_right("alice", f"guess-{i}")
    monkeypatch.setattr(passwords_module, "_bcrypt_agrees", None)  # must not be asked
    assert passwords.is_right("alice", "secret")


def test_a_result_that_is_not_used_is_forgotten():
    now_s = [0.0]
    passwords = Passwords({"alice": HASH}, lambda: now_s[0])
    passwords.is_right("alice", "secret")
    now_s[0] = RIGHT_S + 1
    with passwords._caches:
        assert passwords._cached(next(iter(passwords._right))) is None


@pytest.fixture
def slow_bcrypt(monkeypatch):
    """bcrypt that waits until the test ends: every uncached check hangs."""
    release = threading.Event()
    real = passwords_module._bcrypt_agrees
    monkeypatch.setattr(passwords_module, "_bcrypt_agrees", lambda *guess: release.wait(60) and real(*guess))
    yield release
    release.set()


def test_a_known_password_does_not_wait_behind_wrong_ones_and_the_queue_is_bounded(slow_bcrypt):
    passwords = Passwords({"alice": HASH})
    slow_bcrypt.set()
    assert passwords.is_right("alice", "secret")
    slow_bcrypt.clear()

    def guess(i: int, client: str) -> None:
        passwords.is_right("alice", f"wrong-{i}", client)

    for i in range(MOST_WAITING_OF_ADDRESS):
        threading.Thread(target=guess, args=(i, "n1"), daemon=True).start()
    deadline = time.monotonic() + 50
    while passwords._waiting.total() < MOST_WAITING_OF_ADDRESS and time.monotonic() < deadline:
        time.sleep(0.01)
    assert passwords.is_right("alice", "secret", "n1")  # after waiting in vain it would be wrong
    with pytest.raises(PasswordQueueFull):
        passwords.is_right("alice", "another", "n1")
    for i in range(MOST_WAITING - MOST_WAITING_OF_ADDRESS):
        threading.Thread(target=guess, args=(i, "n2"), daemon=True).start()
    while passwords._waiting.total() < MOST_WAITING and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(PasswordQueueFull):
        passwords.is_right("alice", "another", "n3")


def test_a_flood_of_wrong_passwords_starts_few_threads_and_a_right_one_passes(tree, serve, slow_bcrypt):
    tree.node()
    server = serve(parse_web_config(f"basic_auth_users:\n  alice: {HASH}\n", "web.yml"))
    url = f"http://127.0.0.1:{server.port}/metrics"
    slow_bcrypt.set()
    with httpx.Client(verify=False, auth=("alice", "secret"), timeout=60) as known:
        assert known.get(url).status_code == 200
    slow_bcrypt.clear()
    before, codes = threading.active_count(), []

    def guess(i: int) -> None:
        try:
            codes.append(httpx.get(url, auth=("alice", f"wrong-{i}"), verify=False, timeout=120).status_code)
        except httpx.HTTPError:
            codes.append(0)

    flood = [threading.Thread(target=guess, args=(i,), daemon=True) for i in range(80)]
    most = 0
    for thread in flood:
        thread.start()
        served = threading.active_count() - before - sum(t.is_alive() for t in flood)
        most = max(most, served)
    # The others wait in vain, and so would this one.
    assert httpx.get(url, auth=("alice", "secret"), verify=False, timeout=50).status_code == 200
    assert not slow_bcrypt.is_set()
    assert most <= server_module.MAX_CONNECTIONS
    assert len(server._connections) <= server_module.MAX_CONNECTIONS
    slow_bcrypt.set()
    for thread in flood:
        thread.join(120)
    assert set(codes) <= {401, 503, 0}
    assert 503 in codes


def test_a_thread_that_cannot_start_leaves_the_server_listening(tree, serve, monkeypatch):
    tree.node()
    url = f"http://127.0.0.1:{serve().port}/metrics"
    with monkeypatch.context() as patch:

        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(httpx.HTTPError):
            httpx.get(url, verify=False, timeout=5)
    assert httpx.get(url, verify=False, timeout=60).status_code == 200
