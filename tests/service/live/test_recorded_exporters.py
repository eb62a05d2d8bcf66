"""A real service of two real exporters records both, and continues after a kill."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from tests import servers

from clustertwin.telemetry.recording import Recording


@pytest.mark.real
@pytest.mark.slow
def test_a_service_of_two_exporters_records_them_and_continues_after_a_kill(tmp_path):
    """Two real exporters of this host, under two names, and a real service: killed, and then ended."""
    with (
        servers.exporter(tmp_path / "a", "--node", "n1") as a,
        servers.exporter(tmp_path / "b", "--node", "n2") as b,
    ):
        config = tmp_path / "twin.toml"
        config.write_text(
            f"[service]\nhome = '{tmp_path / 'home'}'\nport = 0\n[recording]\ncluster = true\n"
            f"[source]\nkind = 'exporters'\nurls = ['{a.url}', '{b.url}']\n"
        )
        command = [sys.executable, "-m", "clustertwin", "serve", "--config", config, "--json"]
        journals = [tmp_path / f"home/recording/{node}/journal" for node in ("n1", "n2")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            deadline_s = time.monotonic() + 150
            while not all(journal.exists() for journal in journals) and time.monotonic() < deadline_s:
                time.sleep(0.5)
            service.kill()
        before = Recording.open(tmp_path / "home/recording")
        assert all(before.trace(node).valid.any(0).sum() >= 45 for node in ("n1", "n2"))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            assert servers.document(service.stdout)
            time.sleep(12)
            service.terminate()
            assert service.wait(30) == 0
    after = Recording.open(tmp_path / "home/recording")
    for node in ("n1", "n2"):
        was, now = before.trace(node), after.trace(node)
        assert now.valid.sum() > was.valid.sum() + 5
        same = slice(was.start_s - now.start_s, was.end_s - now.start_s)
        assert np.array_equal(now.values[:, same], was.values)
