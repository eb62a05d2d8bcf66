"""Three nights in a row on a real cluster's recordings, told to a real MLflow server and to an embedded one."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from tests import servers
from tests.telemetry.learning.conftest import QUICK
from tests.telemetry.learning.test_registry import tracking_server

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Trace
from clustertwin.telemetry.learning.champions import champion_store
from clustertwin.telemetry.learning.champions.registry import Registry, embedded
from clustertwin.telemetry.learning.night.calendar_day import day_of
from clustertwin.telemetry.learning.night.challengers import Training
from clustertwin.telemetry.learning.night.nightly_cycle import Site, run
from clustertwin.telemetry.learning.night.verdicts import Told
from clustertwin.telemetry.recording.trace_archive import MemoryArchive

pytestmark = [pytest.mark.slow, pytest.mark.real]
LONG_S = 2700
#: As short as a night can be whose challengers are worth a duel.
SHORT = replace(QUICK, starts=("scratch", "warm"), training=Training(epochs=4, warm_epochs=2, windows=2000))


def read(path):
    """A recording's first three quarters of an hour: a trace for each node."""
    real = np.load(path)
    second = real["t"].astype(np.int64) - int(real["t"][0])
    taken = second < LONG_S
    ratio = np.nan_to_num(real["ratio"][:, :, taken].astype(np.float32))  # (node, cpu, time, mode)
    total = ratio.sum(-1, keepdims=True)
    values = np.zeros((*ratio.shape[:2], LONG_S, 4), np.float32)
    values[:, :, second[taken]] = ratio / np.where(total > 0.5, total, 1)
    valid = np.zeros(values.shape[:3], np.bool_)
    valid[:, :, second[taken]] = total[..., 0] > 0.5
    cpus = tuple(range(values.shape[1]))
    return [Trace(f"n{i}", cpus, int(real["t"][0]), CPU, values[i], valid[i]) for i in range(len(values))]


class Both:
    """Tells two registries the same."""

    def __init__(self, *books):
        self.books = books

    def enter(self, record):
        return " and ".join(book.enter(record) for book in self.books)

    def serve(self, version, directory, sha256):
        for book in self.books:
            book.serve(version, directory, sha256)


def follows_the_rule(home, night):
    """The smallest error serves, of those that may; what it was made from is written down."""
    rows = {row["name"]: row for row in night.contestants}
    better = [row for row in rows.values() if row["error"] < rows["champion"]["error"]]
    allowed = [row for row in better if row["name"] not in night.refused]
    assert (night.outcome == "promoted") == bool(allowed)
    if allowed:
        lineage = champion_store.find(home, night.champion).lineage
        assert lineage["challenger"] == min(allowed, key=lambda row: row["error"])["name"]
        assert (lineage["night"], lineage["champion_then"]) == (night.day, night.before)
        assert set(lineage["census"]["seen"]) == {"n0", "n1", "n2", "n3"}


def test_three_recorded_nights_follow_the_rule_and_stand_in_both_registries(
    data, tmp_path, monkeypatch, small_golden, capfd
):
    monkeypatch.setattr(servers, "READY_S", 120.0)
    days = [read(data / "telemetry" / "spark-cluster" / f"{name}.npz") for name in ("app5-37", "app6-49", "app9-3")]
    days.sort(key=lambda traces: traces[0].start_s)
    with tracking_server(tmp_path / "server") as server:
        here, there = Registry(embedded(tmp_path)), Registry(server.url)
        nights = []
        for traces in days:
            book = Both(here, there)
            site = Site(tmp_path, MemoryArchive(traces), Told(), SHORT, lambda book=book: book, lambda: small_golden)
            name = datetime.fromtimestamp(traces[0].start_s, UTC).date().isoformat()
            nights.append(run(site, day_of(name, UTC)))
            follows_the_rule(tmp_path, nights[-1])
        assert capfd.readouterr().out == ""  # MLflow's links would spoil the document of `--json`
        assert [night.registry for night in nights] == ["1 records sent"] * 3, nights
        assert all(after.before == before.champion for before, after in itertools.pairwise(nights))
        assert nights[0].outcome == "promoted"  # what shipped has never seen this cluster
        serving = champion_store.read_champion(tmp_path)
        assert here.champion() == there.champion() == nights[-1].champion == serving.version
        for registry in (here, there):
            registry.fetch(serving.version, tmp_path / "fetched" / registry.uri.partition(":")[0])
            assert champion_store.digest(tmp_path / "fetched" / registry.uri.partition(":")[0]) == serving.sha256
