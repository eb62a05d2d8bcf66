"""Who is at the other end of a loopback connection: the kernel's table of sockets, with real sockets and by hand."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from clustertwin.service.web import socket_owner
from clustertwin.service.web.local_users import peer_uid, rights, uid_in_tables

#: local, remote, state, queues, timer, retransmits, uid, timeout, inode
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2256 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 111 1 0 100 0 0 10 0
   1: 0100007F:2256 0100007F:D431 01 00000000:00000000 00:00000000 00000000     7        0 112 1 0 20 4 30 10 -1
   2: 0100007F:D431 0100007F:2256 01 00000000:00000000 02:00000A12 00000000  1000        0 113 2 0 20 4 30 10 -1
   3: 0100007F:D432 0100007F:2256 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   4: 0100007F:D433 0100007F:2256 01 00000000:00000000 00:00000000 00000000 65534        0 115 1 0 20 4 30 10 -1
"""
SERVER = ("127.0.0.1", 0x2256)


@pytest.mark.skipif(sys.byteorder == "big", reason="the table is of a little-endian machine")
@pytest.mark.parametrize(
    ("port", "uid"), [(0xD431, 1000), (0xD432, None), (0xD433, None), (0xD434, None), (0x2256, None)]
)
def test_the_owner_of_a_socket_by_hand(port, uid, tmp_path):
    """A closed socket belongs to nobody, not to root, and neither does one of an unmapped user."""
    (tmp_path / "tcp").write_text(TABLE)
    assert uid_in_tables(("127.0.0.1", port), SERVER, tmp_path) == uid


@pytest.mark.parametrize("client", [None, ("testclient", 5), ("", 0), ("10.0.0.1", 5)])
def test_no_address_is_no_user(client):
    assert peer_uid(client, SERVER) is None


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="this system has no /proc/net/tcp")
@pytest.mark.parametrize("way", [peer_uid, uid_in_tables])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_the_owner_of_a_real_connection_until_it_closes(host, way):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = "::1" if host == "::1" else "127.0.0.1"
    try:
        listener = socket.create_server((address, 0), family=socket.AF_INET6 if address == "::1" else socket.AF_INET)
    except OSError:
        pytest.skip(f"{address} is not available here")
    with listener, socket.socket(family) as client:
        client.connect((host, listener.getsockname()[1]))
        accepted, peer = listener.accept()
        with accepted:
            ends = peer[:2], accepted.getsockname()[:2]
            assert way(*ends) == os.geteuid()
            client.shutdown(socket.SHUT_WR)  # the process still has it
            assert way(*ends) == os.geteuid()
            client.close()
            assert way(*ends) is None


def test_a_socket_that_listens_is_nobody_at_the_other_end():
    """Else the owner of a program that listens on the client's port would be taken for the client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert peer_uid(listener.getsockname(), ("127.0.0.1", 9)) is None


def test_the_tables_are_read_if_the_kernel_answers_no_question(monkeypatch):
    def refused(*ends):
        raise PermissionError

    monkeypatch.setattr(socket_owner, "owner", refused)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        assert peer_uid(client.getsockname(), listener.getsockname()) == os.geteuid()


@pytest.mark.parametrize(
    ("answer", "reason"), [(b"", "too short"), (b"\0" * 16, "too short"), (b"\0" * 16 + b"\xff" * 4, "not permitted")]
)
def test_an_answer_that_is_too_short_or_a_refusal_is_an_os_error(answer, reason):
    with pytest.raises(OSError, match=reason):
        socket_owner.parse_answer(answer, (1, 2))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        listener.settimeout(60)
        become = "import os, socket; make = socket.socket; os.setuid(54321); mine = make()"
        program = f"{become}; mine.connect(('127.0.0.1', {port})); mine.recv(1)"
        process = subprocess.Popen([sys.executable, "-c", program])
        accepted, peer = listener.accept()
        with accepted:
            assert peer_uid(peer, accepted.getsockname()) == 54_321
            assert rights(54_321) == ("local user 54321", "read")
        process.wait(timeout=60)


def test_root_the_user_of_the_service_and_the_one_who_called_sudo_administer_it(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert rights(1000, {})[1] == rights(0, {})[1] == "admin"
    assert rights(1001, {"SUDO_UID": "1001"})[1] == "read"  # the service of an ordinary user
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert rights(1001, {"SUDO_UID": "1001"})[1] == "admin"
    assert rights(1002, {"SUDO_UID": "1001"})[1] == "read"
