"""`import clustertwin as ct`: its names, their types, and how results open in pandas, Arrow, xarray and notebooks."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clustertwin as ct
from clustertwin.api.job_logs import _as_slurm
from clustertwin.core.tables import html_table
from clustertwin.workload.simulator.scheduling_metrics import MeanInterval

STUB = Path(ct.__file__).with_suffix(".pyi")


def test_every_name_of_the_table_can_be_used_and_is_listed():
    for name in ct.__all__:
        assert getattr(ct, name) is not None
        assert name in dir(ct)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        ct.nonsense  # noqa: B018


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(AttributeError, match="did you mean 'simulate_site'"):
        ct.simulate_siet  # noqa: B018


def test_completion_offers_public_names_only():
    assert dir(ct) == sorted(ct.__all__)


def test_arguments_of_another_kind_are_named():
    log = ct.example_log(50)
    with pytest.raises(ct.TwinError, match=r"generate\(log, generator='lublin'\)"):
        ct.generate(log, "lublin")
    with pytest.raises(ct.TwinError, match="procs is a whole number of cpus, not '64'"):
        ct.simulate(log, procs="64")


def test_a_mean_prints_as_a_number_and_its_interval():
    assert str(MeanInterval(2357.1, 1541.8, 3289.8)) == "2,357 (95 %: 1,542 to 3,290)"
    metrics = ct.simulate(ct.example_log(50)).metrics()
    assert f"mean wait {metrics.wait_s} s, bounded slowdown {metrics.bounded_slowdown}" in repr(metrics)
    assert str(MeanInterval(3.6851, 2.8951, 4.591)) == "3.69 (95 %: 2.9 to 4.59)"


def test_type_checkers_know_the_same_names():
    stub = ast.parse(STUB.read_text())
    names = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names == set(ct.__all__) - {"__version__"}


@pytest.mark.slow
def test_a_type_checker_sees_every_name_and_finds_a_mistake(tmp_path: Path):
    mypy = pytest.importorskip("mypy.api")
    calls = "".join(f"reveal_type(ct.{name})\n" for name in ct.__all__)
    (tmp_path / "use.py").write_text(f"import clustertwin as ct\n{calls}ct.read_log(5)\nct.simulate(1.5).wait_s\n")
    out, _, _ = mypy.run([str(tmp_path / "use.py"), "--cache-dir", str(tmp_path / "cache")])
    revealed = [line for line in out.splitlines() if "Revealed type" in line]
    assert len(revealed) == len(ct.__all__)
    assert not [line for line in revealed if '"Any"' in line]
    assert sum("[arg-type]" in line for line in out.splitlines()) == 2


ORDERS = {
    "gymnasium first": "import gymnasium, clustertwin",
    "clustertwin first": "import clustertwin, gymnasium",
    "only gymnasium": "import gymnasium",
}


@pytest.mark.slow
@pytest.mark.parametrize("imports", ORDERS.values(), ids=ORDERS)
def test_gymnasium_finds_the_environment_by_itself(imports: str):
    code = (
        f"{imports}\nfrom clustertwin.workload.example_log import example_log\n"
        "env = gymnasium.make('clustertwin:clustertwin/Schedule-v0', jobs=example_log(300), procs=128, length=32)\n"
        "print(env.reset(seed=0)[0].shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "(64, 10)", done.stderr


def test_importing_clustertwin_does_not_import_gymnasium():
    code = "import sys, clustertwin; sys.exit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_log_streams_to_arrow_with_nulls_for_unknown_values():
    pa = pytest.importorskip("pyarrow")
    jobs = replace(ct.Jobs.build([0, 1, 2], [5, 5, -1], cpus=[4, -1, 8], user=[1, 0, -1]), names={"user": ("a", "b")})
    table = pa.RecordBatchReader.from_stream(jobs).read_all()
    assert table["cpus"].to_pylist() == [4, None, 8]
    assert table["user"].to_pylist() == ["b", "a", None]
    assert table["status"].to_pylist() == ["unknown"] * 3
    assert table["run_s"].null_count == 1


def test_a_schedule_is_a_table_of_its_jobs():
    schedule = ct.simulate(ct.Jobs.build([0, 0], [10, 5], request_s=[10, 5], cpus=[4, 4]), procs=4)
    frame = schedule.to_pandas()
    assert frame["wait_s"].tolist() == [0.0, 10.0]
    assert frame["end_s"].tolist() == [10.0, 15.0]
    assert schedule.to_arrow().num_rows == 2
    assert "2 jobs, fcfs" in schedule._repr_html_()


@pytest.mark.slow
def test_a_scorecard_is_a_table_of_its_numbers():
    log = ct.example_log(400)
    card = ct.compare(log, ct.generate(log, seed=1))
    values = card.to_pandas().set_index("measure").value
    assert values["load.ratio"] == pytest.approx(card.load.ratio)
    assert len(values) == card.to_arrow().num_rows > 20


def test_traces_open_in_xarray_and_pandas_with_the_same_numbers():
    cluster = ct.simulate_cluster(nodes=2, threads=8, minutes=2)
    dataset, frame = cluster.to_xarray(), cluster.to_pandas()
    assert dict(dataset.sizes) == {"thread": 16, "time_s": 120, "channel": 4}
    assert np.allclose(dataset.ratio.sum("channel"), 1, atol=1e-5)
    second = frame[(frame.node == "n02") & (frame.cpu == 3)].sort_values("time_s")
    mine = dataset.ratio.sel(channel="user")[(dataset.node == "n02") & (dataset.cpu == 3)]
    assert np.allclose(mine[0], second["user"])
    assert cluster.caption() == f"2 nodes, 16 threads, 120 s, {len({span.job for span in cluster.jobs})} jobs"


def test_a_table_in_a_notebook_is_short_and_escaped():
    shown = html_table("<b>", {"<i>": np.array(["<script>"] * 100)})
    assert "<script>" not in shown
    assert shown.count("&lt;script&gt;") == 8
    assert "92 more rows" in shown


def test_a_fault_that_no_job_can_have_is_refused():
    with pytest.raises(ct.TwinError, match="no job can have the fault hung-rank"):
        ct.simulate_cluster(nodes=1, threads=4, minutes=2, fault="hung-rank", job_types=("np",))
    with pytest.raises(ct.TwinError, match="unknown fault 'nonsense'"):
        ct.simulate_cluster(fault="nonsense")


@pytest.mark.slow
def test_a_learned_policy_schedules(tmp_path: Path):
    log = ct.example_log(1500)
    policy = ct.train_policy(log, tmp_path / "policy.safetensors", rounds=1, hold_out=[(1200, 1500)])
    assert len(ct.simulate(log.take(slice(1200, 1500)), policy=policy)) == 300


def test_a_log_of_nodes_takes_whole_nodes_of_a_site():
    """Each of its jobs was one task, and a job of unknown run time ended a second before its start."""
    two_nodes, running = _as_slurm(ct.Jobs.build([0, 1], [50, -1], request_s=[60, 60], nodes=[2, 1])).jobs
    assert (two_nodes.nodes_min, two_nodes.nodes_max, two_nodes.exclusive) == (2, 2, True)
    assert running.run_s == math.inf


@pytest.mark.slow
def test_a_job_log_runs_on_a_site(tmp_path: Path):
    from tests.cli.test_sched_site import SITE

    (tmp_path / "site.toml").write_text(SITE)
    log = ct.Jobs.build([0, 1], [50, 50], request_s=[60, 60], cpus=[4, 8], user=[0, 1])
    frame = ct.simulate_site(log, tmp_path / "site.toml").to_pandas()
    assert frame["state"].tolist() == ["ended", "ended"]
    assert frame["user"].tolist() == ["user0", "user1"]
    assert frame["start_s"][1] >= frame["end_s"][0]


@pytest.mark.slow
def test_this_host_is_recorded():
    host = ct.record_host(seconds=8)
    assert len(host) == 1
    assert host.to_xarray().sizes["time_s"] >= 1


def test_every_public_check_is_in_one_place():
    from clustertwin import testing

    assert {"check_view", "check_model", "check_generator"} <= set(testing.__all__)


def test_a_result_prints_as_one_line():
    assert repr(ct.example_log(300)).startswith("<Jobs: 300 jobs in ")
    assert "\n" not in repr(ct.simulate_cluster(minutes=1))
