import json

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
