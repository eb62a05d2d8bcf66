"""Another user of this machine against a real service on loopback that has no token: may read, changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request

import pytest
from tests.servers import free_address, running

#: Runs as another user. It also sends changes and disconnects at once, because a closed socket has no owner.
PROGRAM = """
import json, os, socket, sys, time
make, port = socket.socket, int(sys.argv[1])
os.setgroups([]); os.setgid(54321); os.setuid(54321)
window = json.dumps({"nodes": ["*"], "start_s": 0, "end_s": time.time() + 9999}).encode()
def ask(method, path, body=b"", stays=True):
    head = f"{method} {path} HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n"
    head += "Content-Type: application/json\\r\\n"
    with make() as client:
        client.settimeout(60)
        client.connect(("127.0.0.1", port))
        client.sendall(head.encode() + b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
        return client.recv(4096).split()[1].decode() if stays else ""
answers = [ask("GET", "/api/v1/snapshot"), ask("POST", "/api/v1/maintenance", window), ask("GET", "/actions")]
for _ in range(100):
    ask("POST", "/api/v1/maintenance", window, stays=False)
answers.append(ask("POST", "/api/v1/verdicts", b'{"ids": ["x"], "verdict": "dismissed"}'))
print(json.dumps(answers))
"""


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_local_user_changes_nothing_on_a_real_service(tmp_path):
    address = free_address()
    config = tmp_path / "twin.toml"
    config.write_text(f'[service]\nport = {address.rpartition(":")[2]}\nhome = "{tmp_path / "home"}"\n')
    command = [sys.executable, "-m", "clustertwin", "serve", "--config", str(config)]
    with running(tmp_path / "service", address, command, "/healthz") as server:
        port = address.rpartition(":")[2]
        done = subprocess.run([sys.executable, "-c", PROGRAM, port], capture_output=True, text=True, timeout=120)
        assert json.loads(done.stdout or "[]") == ["200", "403", "403", "403"], done.stderr
        for path in ("/api/v1/maintenance", "/api/v1/audit"):
            with urllib.request.urlopen(server.url + path, timeout=30) as answer:
                assert json.load(answer) == []
