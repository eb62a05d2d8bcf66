"""The data of the heat maps and of the scatter plot: known answers for small cases."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest
from tests.service.sample_state import EVENT, NOW_S, snapshot

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan
from clustertwin.service.live.score_history import NodeScores
from clustertwin.service.live.snapshot import ScoreHistory
from clustertwin.service.web.pages import canvas_data, embedding, thread_reconstruction
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import assemble


def decoded(picture, rows: int) -> np.ndarray:
    return np.frombuffer(b64decode(picture["levels"]), np.uint8).reshape(rows, -1)


def test_levels_span_the_byte_and_keep_255_for_unknown():
    assert canvas_data.levels(np.array([0, 0.5, 1, 2, np.nan])).tolist() == [0, 127, 254, 254, 255]


def test_the_threshold_is_the_middle_of_the_scale():
    history = ScoreHistory(np.array([9_990, 10_000]), ("n1", "n2"), np.array([[3.0, 6.0], [np.nan, 0.0]], np.float32))
    picture = decoded(canvas_data.cluster(replace(snapshot(), history=history, stride_s=10)), 2)
    assert picture[:, -2:].tolist() == [[127, 165], [255, 0]]


def test_scores_of_6_and_28_have_clearly_different_levels():
    ratios = canvas_data.score_ratios(np.array([0, 1.5, 3, 6, 28, 30, 300, np.nan], np.float32), 3.0)
    assert canvas_data.levels(ratios).tolist() == [0, 64, 127, 165, 250, 254, 254, 255]


def test_the_cluster_picture_has_the_share_of_unusual_threads():
    picture = canvas_data.cluster(snapshot())
    assert (picture["alarming_threads"], picture["threads"]) == ([2, 0], [2, 2])


def test_a_node_is_coloured_by_the_share_of_its_unusual_threads_not_by_its_strangest_one():
    """One thread of 32 with a score of 28 is not as red as 32 threads with a score of 6."""
    score = np.array([[28.0], [6.0], [1.5]], np.float32)
    share = np.array([[1 / 32], [1.0], [0.0]], np.float32)
    nodes = tuple(replace(snapshot().nodes[0], node=name) for name in ("one", "all", "none"))
    history = ScoreHistory(np.array([10_000]), ("one", "all", "none"), score, share)
    picture = canvas_data.cluster(replace(snapshot(), nodes=nodes, history=history, stride_s=10))
    one, every, none = decoded(picture, 3)[:, -1].tolist()
    assert none < 127 < one < 160 < every == 254
    strangest = decoded(picture | {"levels": picture["score_levels"]}, 3)[:, -1].tolist()
    assert strangest[0] > strangest[1]


def test_scores_from_before_the_clock_was_set_back_are_not_drawn():
    """They lay to the right of the last column, which ended in an error for as long as the clock had been ahead."""
    scores = NodeScores(3600)
    for end_s in (9_000, 10_000, 10_010, 9_020):
        history = scores.add(end_s, snapshot().nodes)
    assert history.times_s.tolist() == [9_000, 9_020]
    picture = canvas_data.cluster(replace(snapshot(), history=history, stride_s=10))
    assert picture["end_s"] == 9_020


def test_the_history_has_the_share_of_unusual_threads_of_each_node():
    history = NodeScores(3600).add(10_000, snapshot().nodes)
    assert history.nodes == ("n1", "n2")
    assert history.share[:, -1].tolist() == [1.0, 0.0]


def test_unusual_threads_are_listed_highest_score_first():
    assert canvas_data.unusual_threads(snapshot(), "n1") == [(0, 4.5), (1, 4.0)]
    assert canvas_data.unusual_threads(snapshot(), "n2") == []


def test_two_scorings_in_one_column_show_the_higher_score():
    times = np.arange(0, 7200, 10)
    score = np.zeros((1, len(times)), np.float32)
    score[0, -2] = 3.0
    history = ScoreHistory(times, ("n1",), score)
    picture = canvas_data.cluster(replace(snapshot(), nodes=snapshot().nodes[:1], history=history, stride_s=10))
    assert picture["step_s"] == 30
    assert decoded(picture, 1)[0, -1] == 127


def test_a_pause_between_scorings_is_unknown():
    history = ScoreHistory(np.array([0, 100]), ("n1",), np.zeros((1, 2), np.float32))
    picture = decoded(
        canvas_data.cluster(replace(snapshot(), nodes=snapshot().nodes[:1], history=history, stride_s=10)), 1
    )
    assert picture[0, -11:].tolist() == [0] + [255] * 9 + [0]


def test_scorings_a_little_late_leave_no_gap():
    history = ScoreHistory(np.arange(0, 400, 13), ("n1",), np.zeros((1, 31), np.float32))
    picture = decoded(
        canvas_data.cluster(replace(snapshot(), nodes=snapshot().nodes[:1], history=history, stride_s=10)), 1
    )
    assert set(picture[0, -39:].tolist()) == {0}


def test_busy_is_the_share_that_is_not_idle_and_invalid_seconds_are_unknown():
    now = snapshot()
    now.moment.values[0, -1] = (0.5, 0.25, 0, 0.25)
    now.moment.valid[1, -1] = False
    picture = decoded(canvas_data.node(now, "n1", "busy"), 2)
    assert picture[:, -1].tolist() == [round(0.75 * 254), 255]


def test_jobs_are_bands_over_neighbouring_threads():
    block = ("n1", (0, 1, 2, 3), np.zeros((4, 300, 4), np.float32), np.ones((4, 300), np.bool_))
    spans = [JobSpan("a", "n1", (0, 1, 3), 9_900, 99_999), JobSpan("b", "n1", (2,), 9_950, 99_999)]
    now = replace(snapshot(), moment=assemble(NOW_S, CPU, [block], spans))
    bands = canvas_data.node(now, "n1", "busy")["bands"]
    assert [(band["name"], band["rows"], band["from_s"]) for band in bands] == [
        ("a", [0, 1], 9_900),
        ("b", [2, 2], 9_950),
        ("a", [3, 3], 9_900),
    ]


def test_without_a_detector_a_thread_has_no_reconstruction():
    picture = thread_reconstruction.thread(None, snapshot().moment, "n1", 0)
    assert set(picture["channels"]["iowait"]["expected"]) == {None}
    assert picture["channels"]["iowait"]["seen"][-1] == 0.0


def test_a_reconstruction_covers_the_last_window(detector):
    window = thread_reconstruction.reconstruct(detector, snapshot().moment, 0)
    assert window.shape == (100, len(CPU))
    assert window.sum(1) == pytest.approx(np.ones(100), abs=1e-5)


def test_too_few_seconds_are_not_reconstructed(detector):
    moment = snapshot().moment
    moment.valid[0, -50:] = False
    assert thread_reconstruction.reconstruct(detector, moment, 0) is None


def spread(n: int = 40) -> tuple[Scores, np.ndarray]:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 3)).astype(np.float32) * np.array([5, 1, 0.1], np.float32)
    score = np.zeros(n, np.float32)
    return Scores(score, score[:, None], ("v",), score, z), z


def test_the_first_axis_has_the_largest_variance():
    _, z = spread()
    axes = embedding.principal("m", z)
    assert abs(np.corrcoef(axes.place(z)[:, 0], z[:, 0])[0, 1]) > 0.99
    assert axes.explained[0] > axes.explained[1]


def test_axes_stay_while_the_model_stays():
    scores, z = spread(4)
    now = replace(snapshot(), scores=scores)
    _, first = embedding.points(now, None)
    _, again = embedding.points(replace(now, scores=replace(scores, embedding=z[::-1] * 2)), first)
    assert again is first
    _, other = embedding.points(replace(now, model=replace(now.model, version="new")), first)
    assert other is not first


def test_an_unusual_thread_does_not_determine_an_axis():
    scores, z = spread()
    z[0, 2] = 1000
    scores.score[0] = 9
    many = np.zeros(40, np.int32)
    moment = replace(snapshot().moment, node=many, cpu=many, job=many - 1)
    _, axes = embedding.points(replace(snapshot(), scores=scores, scored=moment, events=()), None)
    assert np.abs(axes.directions[2]).max() < 0.1


def test_points_know_their_thread_and_open_events_their_rows():
    scores, _ = spread(4)
    picture, _ = embedding.points(replace(snapshot(), scores=scores), None)
    assert [(p["node"], p["cpu"]) for p in picture["points"]] == [("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1)]
    assert picture["regions"] == [{"id": "e1", "name": "job 17", "rows": [0, 1]}]


def test_the_nearest_group_is_first_and_has_its_distance():
    scores, z = spread(4)
    z[:] = [[0, 0, 0], [0, 2, 0], [3, 1, 0], [9, 1, 0]]  # the event's two threads have their centre at (0, 1, 0)
    moment = replace(snapshot().moment, jobs=("17", "18"), job=np.array([0, 0, 1, -1], np.int32))
    now = replace(snapshot(), scores=scores, scored=moment)
    picture = embedding.nearest(now, EVENT)
    assert [(near.group, near.threads, near.distance) for near in picture] == [("job 18", 1, 3.0), ("no job", 1, 9.0)]
    assert embedding.nearest(now, replace(EVENT, end_s=NOW_S)) == []
