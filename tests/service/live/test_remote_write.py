"""Pushed samples as a feed: names that two targets claim, what is named, and a real Prometheus that pushes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.pushed import literal_block, series
from tests.servers import (
    binary,
    document,
    exporter,
    free_address,
    node_exporter,
    prometheus,
    running,
    scrape_config,
)
from tests.telemetry.ingest.sources.test_real_servers import Proc

from clustertwin.core.traces import Trace
from clustertwin.service.live.feeds.contract import NAMED
from clustertwin.service.live.feeds.remote_write_feed import (
    MOST_BODIES,
    MOST_WAITING_BYTES,
    SILENT_S,
    UNUSED_READINGS,
    QueueFull,
    RemoteWriteFeed,
)
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.tokens import Tokens

pytest.importorskip("cramjam", reason="pip install 'clustertwin[remote-write]'")

T = 1_700_000_000.0


class Site:
    """A feed with a clock, and the pushes of its senders."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.clock.now_s = T
        self.feed = RemoteWriteFeed(clock=clock)
        self.traces: list[Trace] = []

    def push(self, who: str, instance: str, name: str, dialect: str = "twin", value: float = 0.0) -> None:
        """One scrape of a node with one thread, which is busy for the part `value` of each second."""
        info = {"twin": ("twin_node_info", "node"), "node": ("node_uname_info", "nodename")}[dialect]
        at_s = self.clock.now_s
        rows = [series({"__name__": info[0], "instance": instance, info[1]: name}, [(round(at_s * 1000), 1.0)])]
        for mode, share in (("user", value), ("idle", 1 - value)):
            labels = {"__name__": f"{dialect}_cpu_seconds_total", "cpu": "0", "instance": instance, "mode": mode}
            rows.append(series(labels, [(round(at_s * 1000), share * (at_s - T + 1))]))
        assert self.feed.submit(who, literal_block(b"".join(rows))).result() == ""

    def watch(self, *pushes: tuple[Any, ...], seconds: int = 12, step_s: float = 1.0) -> None:
        for _ in range(seconds):
            for push in pushes:
                self.push(*push)
            self.traces += self.feed.take()
            self.clock.now_s += step_s


@pytest.fixture
def site(clock):
    site = Site(clock)
    yield site
    site.feed.close()


def test_a_sender_with_many_nodes_leaves_the_threads_of_the_loop_to_another(site):
    site.feed.limit_threads(8)
    for number in range(10):
        site.push("liar", f"liar:{number}", f"liar-{number}")
    site.watch(("alpha", "n1:9752", "n1"), *(("liar", f"liar:{i}", f"liar-{i}") for i in range(10)))
    assert "n1" in busy(site.traces)
    assert len(busy(site.traces)) == 8
    assert "liar pushes more than its share; its newest nodes are left out" in site.feed.problems


def test_what_is_left_out_of_a_sender_is_named_before_the_nodes_that_are_refused(site):
    site.feed.limit_threads(8)
    site.watch(("alpha", "n1:9752", "n1"), *(("liar", f"liar:{i}", f"liar-{i}") for i in range(30)), seconds=1)
    assert site.feed.problems[0] == "liar pushes more than its share; its newest nodes are left out"
    assert len(site.feed.problems) == NAMED + 1


def test_a_node_that_was_left_out_for_a_while_is_taken_in_again(site):
    """It was refused for a minute: 'says that it is n7, but n7:9752 (pushed by beta) has that name'."""
    many = [("beta", f"n{i}:9752", f"n{i}") for i in range(8)]
    site.feed.limit_threads(8)
    site.watch(*many)
    site.watch(("alpha", "x:9752", "x"), *many, seconds=3)
    assert "beta pushes more than its share; its newest nodes are left out" in site.feed.problems
    site.feed.limit_threads(16)
    site.watch(("alpha", "x:9752", "x"), *many, seconds=12)
    begun = len(site.traces)
    site.watch(("alpha", "x:9752", "x"), *many, seconds=3)
    assert busy(site.traces[begun:]).keys() == {"x", *(f"n{i}" for i in range(8))}
    assert not any("has that name" in problem for problem in site.feed.problems)


@pytest.mark.parametrize("length", [1, MOST_WAITING_BYTES // 16])
def test_a_sender_whose_bodies_never_end_leaves_room_for_another(site, length):
    with ExitStack() as slow:
        with suppress(QueueFull):
            for _ in range(MOST_BODIES):
                slow.enter_context(site.feed.reserved("liar", length))
        with site.feed.reserved("alpha", length):
            site.watch(("alpha", "n1:9752", "n1"))
    assert "n1" in busy(site.traces)
    with site.feed.reserved("liar", length):
        pass  # there is room again
    assert not [*site.feed._bodies_of, *site.feed._bytes_of]  # nothing is kept of names that are gone


def busy(traces: list[Trace]) -> dict[str, set[float]]:
    found: dict[str, set[float]] = {}
    for trace in traces:
        found.setdefault(trace.node, set()).update(np.round(trace.values[0, :, 0], 3).tolist())
    return found


def test_pushed_scrapes_become_traces_of_whole_seconds(site):
    site.watch(("site", "n1:9752", "n1", "twin", 0.25), ("site", "n2:9100", "n2", "node", 0.5))
    assert busy(site.traces) == {"n1": {0.25}, "n2": {0.5}}
    assert len({trace.start_s for trace in site.traces if trace.node == "n1"}) >= 9
    assert site.feed.problems == ()
    assert site.feed.faults.gap == site.feed.faults.late == 0


@pytest.mark.parametrize("second", [("other", "n1:9752"), ("site", "liar:9752")])
def test_a_second_target_of_one_name_is_refused_and_named(site, second):
    site.watch(("site", "n1:9752", "n1", "twin", 0.25), (*second, "n1", "twin", 1.0))
    assert busy(site.traces) == {"n1": {0.25}}
    (problem,) = site.feed.problems
    assert problem == (
        f"{second[1]} (pushed by {second[0]}): says that it is n1, but n1:9752 (pushed by site) has that name; "
        "its data is refused"
    )


def test_a_name_is_free_when_its_holder_has_been_silent_for_a_minute(site):
    site.watch(("site", "n1:9752", "n1", "twin", 0.25))
    site.watch(("other", "n9:9752", "n1", "twin", 1.0), seconds=90)
    assert busy(site.traces)["n1"] == {0.25, 1.0}
    assert site.feed.problems == ()


def test_our_exporter_is_preferred_to_node_exporter_on_the_same_node(site):
    site.watch(("site", "n1:9100", "n1", "node", 1.0), seconds=9)
    begun = len(site.traces)
    assert begun
    both = ("site", "n1:9100", "n1", "node", 1.0), ("site", "n1:9752", "n1", "twin", 0.25)
    site.watch(*both, seconds=20)
    assert busy(site.traces[-5:]) == {"n1": {0.25}}
    assert site.feed.problems == ()


def test_a_silent_sender_is_named(site):
    assert site.feed.problems == ()
    site.clock.now_s += SILENT_S + 1
    assert site.feed.problems == ("nothing has been pushed for 16 s since the start: read the log of the sender",)
    site.watch(("site", "n1:9752", "n1"), seconds=1)
    assert site.feed.problems == ()


def test_a_silent_sender_is_named_after_the_clock_was_set_back_too(site):
    site.watch(("site", "n1:9752", "n1"))
    site.clock.now_s -= 3600
    assert any("nothing has been pushed for" in problem for problem in site.feed.problems)


def test_a_node_that_is_scraped_every_15_s_is_named(site):
    site.watch(("site", "n1:9752", "n1"), seconds=UNUSED_READINGS + 2, step_s=15.0)
    assert site.feed.problems == ("n1: its samples give no second of data; scrape it once a second",)


def test_dropped_samples_are_named_for_a_minute(site):
    site.watch(("site", "n1:9752", "n1"), seconds=3)
    site.clock.now_s -= 400
    site.push("site", "n1:9752", "n1")
    site.clock.now_s += 400
    old = literal_block(
        series({"__name__": "twin_cpu_seconds_total", "cpu": "0", "instance": "n1:9752", "mode": "user"}, [(5, 1.0)])
    )
    site.feed.submit("site", old).result()
    site.feed.take()
    assert site.feed.problems == ("1 samples were dropped in the last minutes: older than 300 s",)
    site.watch(("site", "n1:9752", "n1"), seconds=62)
    assert site.feed.problems == ()


@pytest.mark.real
@pytest.mark.slow
def test_what_a_real_prometheus_pushes_is_what_is_read_from_it(tmp_path: Path):
    """Two services watch the same exporters: one reads Prometheus, Prometheus pushes to the other."""
    proc, stop = Proc(tmp_path / "root"), threading.Event()
    proc.start_job()

    def move() -> None:
        while not stop.wait(0.1):
            proc.move(10)

    mover = threading.Thread(target=move)
    mover.start()
    pulled, pushed = free_address(), free_address()
    tokens = Tokens((store := Store(tmp_path / "pushed" / "state.sqlite")).database)
    push_token, read_token = tokens.add("site", "push", time.time()), tokens.add("ada", "read", time.time())
    store.close()
    with ExitStack() as stack:
        stack.callback(mover.join)
        stack.callback(stop.set)
        slurm = stack.enter_context(exporter(tmp_path / "slurm", "--node=slurm", f"--path.rootfs={proc.root}"))
        host = stack.enter_context(exporter(tmp_path / "host", "--node=host"))
        other = stack.enter_context(node_exporter(tmp_path / "node"))
        config = json.loads(scrape_config({"twin": [slurm.address, host.address], "node": [other.address]}))
        config["remote_write"] = [
            {
                "url": f"http://{pushed}/api/v1/write",
                "authorization": {"credentials": push_token},
                "queue_config": {"batch_send_deadline": "1s"},
            }
        ]
        server = stack.enter_context(prometheus(tmp_path / "prometheus", {}, config=json.dumps(config)))
        for name, address, source in (
            ("pulled", pulled, f'kind = "prometheus"\nurl = "{server.url}"\nmatch = \'job="twin"\''),
            ("pushed", pushed, 'kind = "remote-write"'),
        ):
            port = address.rpartition(":")[2]
            file = tmp_path / f"{name}.toml"
            file.write_text(f'[service]\nport = {port}\nhome = "{tmp_path}/{name}"\n[source]\n{source}\n')
            command = [sys.executable, "-m", "clustertwin", "serve", "--config", str(file), "--json"]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            document(process.stdout)

        def get(address: str, path: str) -> Any:
            head = {"Authorization": f"Bearer {read_token}"} if address == pushed else {}
            return httpx.get(f"http://{address}/api/v1/{path}", headers=head, timeout=60).raise_for_status().json()

        def scored(address: str) -> set[str]:
            return {node["node"] for node in get(address, "nodes") if node["threads"] > node["unknown"]}

        wanted = {"slurm", "host"}
        give_up_s = time.monotonic() + 400
        while not (wanted <= scored(pulled) and wanted <= scored(pushed)) and time.monotonic() < give_up_s:
            time.sleep(1)
        assert wanted <= scored(pulled)
        assert wanted <= scored(pushed)
        assert get(pushed, "snapshot")["problems"] == []
        for node in sorted(wanted):
            assert (
                same_seconds(*(get(address, f"nodes/{node}/traces?seconds=100") for address in (pulled, pushed))) >= 60
            )

        def jobs_of(address: str) -> dict[str, Any]:
            return {job["job"]: (job["nodes"], job["threads"]) for job in get(address, "jobs")}

        # A job of this host may begin or end between two requests.
        while (jobs := (jobs_of(pulled), jobs_of(pushed)))[0] != jobs[1] and time.monotonic() < give_up_s:
            time.sleep(1)
        assert jobs[0] == jobs[1]
        assert jobs[0]["17"] == (["slurm"], 2)  # this host may run jobs of its own


def same_seconds(one: dict[str, Any], other: dict[str, Any]) -> int:
    """The number of seconds that two services both have with the same values to the last digit; 0 if others differ.

    A sampler at the half second is a hair from either second, so one service may label all of them one higher. On a
    busy host a sample comes late: a read that begins there may take it for the next second, so three may differ.
    """
    assert one["cpus"] == other["cpus"]
    assert one["channels"] == other["channels"]
    found = []
    for shift_s in (0, 1, -1):
        begin_s = max(one["start_s"], other["start_s"] + shift_s)
        end_s = min(one["end_s"], other["end_s"] + shift_s) - 3  # the newest are not complete in both
        a = np.array(one["values"], float)[:, begin_s - one["start_s"] : end_s - one["start_s"]]
        b = np.array(other["values"], float)[
            :, begin_s - other["start_s"] - shift_s : end_s - other["start_s"] - shift_s
        ]
        both = ~np.isnan(a).any((0, 2)) & ~np.isnan(b).any((0, 2))
        same = both & (a == b).all((0, 2))
        found.append(int(same.sum()) if (both & ~same).sum() <= 3 else 0)
    return max(found)


@pytest.mark.real
@pytest.mark.slow
def test_what_vmagent_pushes_is_used(tmp_path: Path):
    """Another sender of the same protocol, with batches of its own."""
    pushed, agent = free_address(), free_address()
    tokens = Tokens((store := Store(tmp_path / "home" / "state.sqlite")).database)
    push_token, read_token = tokens.add("site", "push", time.time()), tokens.add("ada", "read", time.time())
    store.close()
    config = tmp_path / "twin.toml"
    port = pushed.rpartition(":")[2]
    config.write_text(f'[service]\nport = {port}\nhome = "{tmp_path}/home"\n[source]\nkind = "remote-write"\n')
    with ExitStack() as stack:
        host = stack.enter_context(exporter(tmp_path / "exporter", "--node=n1"))
        command = [sys.executable, "-m", "clustertwin", "serve", "--config", str(config), "--json"]
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        document(process.stdout)
        (tmp_path / "scrape.yml").write_text(scrape_config({"twin": [host.address]}))
        options = [
            f"-promscrape.config={tmp_path / 'scrape.yml'}",
            f"-remoteWrite.url=http://{pushed}/api/v1/write",
            f"-remoteWrite.bearerToken={push_token}",
            f"-remoteWrite.tmpDataPath={tmp_path / 'queue'}",
            f"-httpListenAddr={agent}",
        ]
        stack.enter_context(running(tmp_path / "agent", agent, [binary("vmagent"), *options], "/health"))
        head, give_up_s, found = {"Authorization": f"Bearer {read_token}"}, time.monotonic() + 200, {}
        while time.monotonic() < give_up_s:
            found = httpx.get(f"http://{pushed}/api/v1/snapshot", headers=head, timeout=60).json()
            if found["nodes"] and found["ready_in_s"] is not None and found["ready_in_s"] < 95:
                break
            time.sleep(1)
        assert [node["node"] for node in found["nodes"]] == ["n1"]
        assert found["ready_in_s"] < 95  # several seconds have arrived
        assert found["problems"] == []
        lines = httpx.get(f"http://{pushed}/metrics", headers=head, timeout=60).text.splitlines()
        assert "twin_pushed_refused_series_total 0" in lines
