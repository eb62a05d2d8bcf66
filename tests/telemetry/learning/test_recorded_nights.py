"""Three nights on recordings of a real cluster, registered on a real MLflow server and in an embedded database."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from tests import servers
from tests.telemetry.learning.conftest import QUICK
from tests.telemetry.learning.test_mlflow_registry import tracking_server

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Trace
from clustertwin.telemetry.learning.champions import champion_store, version_store
from clustertwin.telemetry.learning.champions.mlflow_registry import MlflowRegistry, embedded_uri
from clustertwin.telemetry.learning.duel.duel_rule import DuelRule
from clustertwin.telemetry.learning.night.calendar_day import day_of
from clustertwin.telemetry.learning.night.challengers import ChallengerTraining
from clustertwin.telemetry.learning.night.night_run import NightContext
from clustertwin.telemetry.learning.night.nightly_cycle import run_night
from clustertwin.telemetry.learning.night.verdicts import FixedVerdicts
from clustertwin.telemetry.recording.trace_archive import MemoryArchive

pytestmark = [pytest.mark.slow, pytest.mark.real]
LONG_S = 2700
#: The shortest training whose challengers reconstruct better. It sees fewer imposed faults than the bundled detector.
#: The gate would keep that one and register nothing, so the reconstruction error alone decides here.
SHORT = replace(
    QUICK,
    starts=("scratch", "warm"),
    training=ChallengerTraining(epochs=4, warm_epochs=2, windows=2000),
    rule=DuelRule(gate=False),
)


def read(path):
    """The first 45 minutes of a recording: one trace per node."""
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
    """Sends everything to several registries."""

    def __init__(self, *registries):
        self.registries = registries

    def add_night(self, record):
        return " and ".join(registry.add_night(record) for registry in self.registries)

    def set_champion(self, version, directory, sha256):
        for registry in self.registries:
            registry.set_champion(version, directory, sha256)


def follows_the_rule(home, night):
    """The allowed challenger with the smallest error wins, and its lineage is stored."""
    rows = {row["name"]: row for row in night.contestants}
    better = [row for row in rows.values() if row["error"] < rows["champion"]["error"]]
    allowed = [row for row in better if row["name"] not in night.refused]
    assert (night.outcome == "promoted") == bool(allowed)
    if allowed:
        lineage = version_store.find_version(home, night.champion).lineage
        assert lineage["challenger"] == min(allowed, key=lambda row: row["error"])["name"]
        assert (lineage["night"], lineage["champion_then"]) == (night.day, night.before)
        assert set(lineage["census"]["seen"]) == {"n0", "n1", "n2", "n3"}


def test_three_recorded_nights_follow_the_rule_and_are_in_both_registries(data, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(servers, "READY_S", 120.0)
    days = [read(data / "telemetry" / "spark-cluster" / f"{name}.npz") for name in ("app5-37", "app6-49", "app9-3")]
    days.sort(key=lambda traces: traces[0].start_s)
    with tracking_server(tmp_path / "server") as server:
        local, remote = MlflowRegistry(embedded_uri(tmp_path)), MlflowRegistry(server.url)
        nights = []
        for traces in days:
            context = NightContext(
                tmp_path,
                MemoryArchive(traces),
                FixedVerdicts(),
                SHORT,
                open_registry=lambda: Both(local, remote),
            )
            name = datetime.fromtimestamp(traces[0].start_s, UTC).date().isoformat()
            nights.append(run_night(context, day_of(name, UTC)))
            follows_the_rule(tmp_path, nights[-1])
        assert capfd.readouterr().out == ""  # links printed by MLflow would break the document of `--json`
        assert [night.registry for night in nights] == ["1 record sent"] * 3, nights
        assert all(after.before == before.champion for before, after in itertools.pairwise(nights))
        assert nights[0].outcome == "promoted"  # the bundled model was not trained on this cluster
        serving = champion_store.read_champion(tmp_path)
        assert local.champion() == remote.champion() == nights[-1].champion == serving.version
        for registry in (local, remote):
            registry.fetch(serving.version, tmp_path / "fetched" / registry.uri.partition(":")[0])
            assert version_store.digest(tmp_path / "fetched" / registry.uri.partition(":")[0]) == serving.sha256
