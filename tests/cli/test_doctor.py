import json
import socket
import threading

import pytest

from clustertwin.doctor import EXTRAS, examine


def test_a_machine_without_proc_is_unfit(tmp_path):
    findings = {finding.name: finding for finding in examine(root=tmp_path)}
    assert not findings["/proc/stat"].ok
    assert findings["/proc/stat"].needed


def test_threads_are_counted_from_the_kernels_file(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  3 0 3 9\ncpu0 1 0 1 4\ncpu1 2 0 2 5\nintr 7\n")
    findings = {finding.name: finding for finding in examine(root=tmp_path)}
    assert findings["/proc/stat"].detail == "2 hardware threads"


def test_every_extra_of_the_package_is_looked_at():
    import tomllib
    from pathlib import Path

    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    users = set(declared["project"]["optional-dependencies"]) - {"all", "dev", "docs"}
    assert {"rl"} | set(EXTRAS) == users, "rl stands on workload and models; the others each have a line"


def test_a_server_that_does_not_answer_fails_the_examination(twin_here):
    result = twin_here("doctor", "--url", "http://127.0.0.1:9/-/ready", "--json")
    assert result.returncode == 1
    assert any(not finding["ok"] and finding["subject"] == "server" for finding in json.loads(result.stdout))


@pytest.mark.parametrize(
    "answer", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + 200 * b"a: b\r\n", b"HTTP/1.1 404 \x1b[2J\r\n\r\n"]
)
def test_a_server_that_does_not_answer_sensibly_is_a_finding(answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def respond() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(answer)

        thread = threading.Thread(target=respond)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        (found,) = [finding for finding in examine(urls=(url,)) if finding.subject == "server"]
        thread.join()
    assert not found.ok
    assert found.detail.isprintable()


def test_an_address_with_a_port_that_is_none_is_a_finding():
    assert not next(finding for finding in examine(urls=("http://h:x/",)) if finding.subject == "server").ok
