"""The evidence of one job on two nodes: two helpers, each with its own real MPI processes, and one finding."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import bcrypt
import pytest

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.service.act.evidence_sources import HelperSettings, from_helpers
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, ProcessEvidence, merge
from clustertwin.telemetry.diagnosis.helper_server import EvidenceRoutes, Take
from clustertwin.telemetry.diagnosis.job_processes import find_tree
from clustertwin.telemetry.diagnosis.odd_rank import find
from clustertwin.telemetry.diagnosis.stack_tools import tool
from clustertwin.telemetry.diagnosis.take_evidence import take
from clustertwin.telemetry.exporter.http.server import Server
from clustertwin.telemetry.exporter.http.webconfig import WebConfig

USERS = {"twin": bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()}
NODES = ("127.0.0.2", "127.0.0.3")
PROGRAM = Path(__file__).parents[3] / "benchmarks" / "mpi_program.py"
MPIEXEC = Path(sys.executable).with_name("mpiexec")


class Helpers:
    """The helper of each node, all on one port, as on a cluster."""

    def __init__(self, takes: dict[str, Take], stack: ExitStack) -> None:
        self.port = 0
        for node, take_job in takes.items():
            server = Server(node, self.port, WebConfig(users=USERS), EvidenceRoutes(take_job, USERS, 60))
            server.start()
            stack.callback(server.close)
            self.port = server.port

    def settings(self, tmp_path: Path) -> HelperSettings:
        (tmp_path / "password").write_text("secret\n")
        return HelperSettings(f"http://{{node}}:{self.port}", password_file=str(tmp_path / "password"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def part(node: str, ranks: range, **values) -> JobEvidence:
    waits = tuple(ProcessEvidence(node, 9 + r, r, "waits-in-mpi", "R", mpi_call="MPI_Allreduce") for r in ranks)
    return replace(JobEvidence("42", (node,), 0.0, 2.0, waits, size=4, wanted_nodes=2), **values)


def taking(evidence: JobEvidence) -> Take:
    return lambda job, owner: evidence


def test_the_password_is_not_sent_unencrypted_to_another_machine(tmp_path):
    (tmp_path / "password").write_text("secret")
    take = from_helpers(HelperSettings("http://{node}:9753", password_file=str(tmp_path / "password")))
    with pytest.raises(SourceError, match="n7: the password would cross the network unencrypted"):
        take("42", 0, ["n7"])


def test_a_helper_at_no_address_is_refused_at_the_start():
    with pytest.raises(SettingsError, match="is not an address"):
        from_helpers(HelperSettings("https://{node}:99999"))


def test_the_ranks_of_two_nodes_are_joined_and_the_odd_one_is_named_with_its_node(tmp_path, stack):
    odd = ProcessEvidence("x", 20, 3, "blocked", "S", wchan="pipe_read")
    second = replace(part("x", range(2, 3)), processes=(*part("x", range(2, 3)).processes, odd))
    helpers = Helpers({NODES[0]: taking(part("x", range(2))), NODES[1]: taking(second)}, stack)
    evidence = from_helpers(helpers.settings(tmp_path))("42", 0, NODES)
    assert [process.rank for process in evidence.processes] == [0, 1, 2, 3]
    finding = find(evidence)
    assert (finding.kind, finding.ranks) == ("blocked-io", (3,))
    assert finding.sentence.startswith("Rank 3 of 4 on 127.0.0.3 is blocked in the kernel")


def test_a_helper_speaks_for_its_own_node_only(tmp_path, stack):
    forged = part("x", range(4), nodes=NODES, wanted_nodes=1)
    helpers = Helpers({NODES[0]: taking(forged), NODES[1]: lambda job, owner: None}, stack)
    evidence = from_helpers(helpers.settings(tmp_path))("42", 0, NODES)
    assert (evidence.nodes, evidence.wanted_nodes) == ((NODES[0],), 2)
    assert find(evidence).kind == "unknown"


def test_the_clocks_of_nodes_do_not_tell_how_long_a_finding_holds(tmp_path, stack):
    """A rule waits for minutes. A node whose clock is ahead, or lies, made it act at the second look."""
    ahead = part("x", range(2), taken_s=9e10, window_s=9e10)
    helpers = Helpers({NODES[0]: taking(ahead), NODES[1]: taking(replace(ahead, window_s=-9.0))}, stack)
    evidence = from_helpers(helpers.settings(tmp_path), clock=lambda: 7.0)("42", 0, NODES)
    assert (evidence.taken_s, evidence.window_s) == (7.0, 0.0)
    evidence = from_helpers(helpers.settings(tmp_path), clock=lambda: 7.0)("42", 0, NODES[:1])
    assert (evidence.taken_s, evidence.window_s) == (7.0, 30.0)


def test_evidence_of_another_job_is_not_believed(tmp_path, stack):
    helpers = Helpers({node: taking(part(node, range(2), job="41")) for node in NODES}, stack)
    with pytest.raises(SourceError, match="evidence of another job"):
        from_helpers(helpers.settings(tmp_path))("42", 0, NODES)


def test_two_programs_with_the_same_ranks_are_not_one_job():
    finding = find(merge([part("n1", range(2)), part("n2", range(2))]))
    assert (finding.kind, finding.hang) == ("unknown", False)
    assert finding.sentence == "Rank 0 is on 2 nodes: the job runs several MPI programs."


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.skipif(not MPIEXEC.exists(), reason="needs the extra campaign")
@pytest.mark.skipif(tool("eu-stack") is None or os.uname().machine != "x86_64", reason="needs eu-stack and x86_64")
@pytest.mark.parametrize(("kind", "faulty", "sure"), [("blocked-io", 2, 0.75), ("mismatch", 1, 0.97)])
def test_the_faulty_rank_of_a_real_job_on_two_nodes_is_named(tmp_path, stack, kind, faulty, sure):
    # Over TCP the kernel counts the bytes of messages. Otherwise UCX finds that both nodes are one host.
    env = {**os.environ, **({"UCX_TLS": "tcp,self"} if sure > 0.9 else {})}
    # The launcher starts a proxy for each host. Ranks of different proxies exchange messages over the network.
    launcher = [str(MPIEXEC), "-launcher", "fork", "-hosts", "localhost,127.0.0.1", "-ppn", "2", "-n", "4"]
    program = [sys.executable, str(PROGRAM), kind, str(faulty), str(tmp_path)]
    job = subprocess.Popen([*launcher, *program], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end_s = time.monotonic() + 120
        while not (tmp_path / "fault").exists():
            assert time.monotonic() < end_s
            assert job.poll() is None
            time.sleep(0.1)
        time.sleep(1)
        proxies = [int(pid) for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]

        def of(proxy: int) -> Take:
            return lambda job, owner: take(job, find_tree(proxy, owner), "node")

        helpers = Helpers({node: of(proxy) for node, proxy in zip(NODES, proxies, strict=True)}, stack)
        evidence = from_helpers(helpers.settings(tmp_path))("42", os.getuid(), NODES)
    finally:
        for process in find_tree(job.pid).ranks:
            subprocess.run(["kill", "-KILL", str(process.pid)], check=False, stderr=subprocess.DEVNULL)
        job.kill()
        job.wait()
    finding = find(evidence)
    assert len({process.node for process in evidence.processes}) == 2
    assert (finding.kind, finding.hang, finding.ranks) == (kind, True, (faulty,)), finding.sentence
    assert f"Rank {faulty} of 4 on {NODES[faulty // 2]}" in finding.sentence
    assert finding.sure == sure
