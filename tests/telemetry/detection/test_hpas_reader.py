"""Recordings by LDMS of any application: other threads, another order of modes, gaps, unknown rows, idle ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend("benchmarks")  # as `python benchmarks/questions.py` sees it
    import questions

    return questions


def test_an_application_with_idle_ranks_gaps_and_another_order_is_read_by_name_and_time(
    questions, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    seconds = np.r_[0:100, 110:400]  # ten seconds are missing
    ratio = np.zeros((6, len(seconds), 4), np.float16)
    ratio[:, :, 3] = 1  # idle
    ratio[:2, 20:380] = [0.1, 0.0, 0.9, 0.0]  # two of six ranks work
    ratio[0, 50] = np.nan
    np.savez(
        tmp_path / "other.npz",
        t=1.7e9 + seconds,
        ratio=ratio,
        modes=np.array(["system", "iowait", "user", "other"]),
        node=np.full((len(seconds), 2), 3.0),
        node_names=np.array(["context_switches", "procs_running"]),
        memory_kb=np.tile([40.0, 100.0], (len(seconds), 1)),
        memory_names=np.array(["MemAvailable", "MemTotal"]),
        anomalies=np.array([("memleak", 150, 250)], dtype=[("kind", "<U12"), ("start_s", "<i4"), ("end_s", "<i4")]),
    )
    run = questions.read_hpas(tmp_path / "other.npz")
    trace, names = run.trace, run.trace.node_channels.schema.names
    assert trace.values.shape == (6, 400, 4)
    assert trace.values[0, 200] == pytest.approx([0.9, 0.1, 0, 0], abs=1e-3)
    assert not trace.valid[:, 100:110].any()
    assert not trace.valid[0, 50]
    assert trace.valid[1, 50]
    assert (trace.spans[0].start_s, trace.spans[0].end_s) == (21, 390)
    assert trace.node_channels.values[200, names.index("memory_used")] == pytest.approx(0.6)
    assert np.isnan(trace.node_channels.values[105]).all()
    assert [(fault.kind, fault.start_s, fault.end_s) for fault in run.faults] == [("memleak", 150, 250)]
    every_other = dict(np.load(tmp_path / "other.npz"))
    for name in ("t", "node", "memory_kb"):
        every_other[name] = every_other[name][::2]
    every_other["ratio"] = every_other["ratio"][:, ::2]
    np.savez(tmp_path / "slow.npz", **every_other)
    slow = questions.read_hpas(tmp_path / "slow.npz").trace
    assert slow.valid[1, :100].all()
    assert not slow.valid[:, 100:110].any()
    assert sum(len(moment) for moment in questions.live(trace)) == 6 * 40


def _save(path: Path, faults: list[tuple[str, int, int]], **other: np.ndarray) -> Path:
    """Four ranks that work for 400 s; without the tables of the node and of memory."""
    rng = np.random.default_rng(len(path.stem))
    user = np.clip(0.9 + rng.normal(0, 0.01, (4, 400)), 0, 1)
    for _, start_s, end_s in faults:
        user[:, start_s:end_s] = 0.3
    ratio = np.stack([user, np.zeros_like(user), np.zeros_like(user), 1 - user], axis=-1)
    dtype = [("kind", "<U12"), ("start_s", "<i4"), ("end_s", "<i4")]
    np.savez(path, t=np.arange(400.0), ratio=ratio, anomalies=np.array(faults, dtype=dtype), **other)
    return path


def test_a_recording_without_memory_and_run_queue_is_read(questions, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    names = {"memory_names": np.array(["MemAvailable", "MemTotal"]), "memory_kb": np.tile([40.0, 100.0], (400, 1))}
    assert questions.read_hpas(_save(tmp_path / "a.npz", [])).trace.node_channels is None
    memory_only = questions.read_hpas(_save(tmp_path / "b.npz", [], **names)).trace.node_channels
    assert memory_only.schema.names == ("memory_used",)


def test_three_faults_overlap_if_two_of_them_do(questions, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    faults = [("x", 100, 150), ("y", 200, 300), ("z", 250, 350)]
    assert questions.read_hpas(_save(tmp_path / "a_xyz.npz", faults)).order == "overlapping"
    assert questions.read_hpas(_save(tmp_path / "a_xy.npz", faults[:2])).order == "in sequence"


@pytest.mark.medium
def test_each_application_is_compared_with_its_own_healthy_run(  # type: ignore[no-untyped-def]
    questions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _save(tmp_path / "first.npz", [])
    for name in ("first_slow-1", "second-slow-1"):
        _save(tmp_path / f"{name}.npz", [("slow", 200, 380)])
    questions.hpas(tmp_path, "all")
    first, second = capsys.readouterr().out.split("second: 1 runs")
    assert "first: 1 runs, healthy run known: first\n" in first
    assert second.startswith(", healthy run known: none")
    assert first.count("events: 1 of 1 found, 0 false") >= 1
    assert "events: 1 of 1 found, 0 false" in second
    with pytest.raises(SystemExit, match="no recording with faults"):
        questions.hpas(tmp_path / "empty", "all")
