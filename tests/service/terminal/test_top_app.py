"""The screen of `twin top`, driven by textual's pilot, without a terminal and without a network."""

import asyncio
import threading

import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SourceError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.terminal.board import Board, EventLine, Heat, JobLine, NodeLine
from clustertwin.service.terminal.local_board import LocalBoards, board_of

pytest.importorskip("textual")
from clustertwin.service.terminal.heatstrip import LABEL, LEVELS, HeatStrip, quantise
from clustertwin.service.terminal.top_app import TopApp


def trace(start_s: int, user: float, cpus: tuple[int, ...] = (0, 1), valid: bool = True) -> Trace:
    values = np.tile(np.array([user, 0, 0, 1 - user], np.float32), (len(cpus), 1, 1))
    return Trace("n1", cpus, start_s, CPU, values, np.full((len(cpus), 1), valid), (JobSpan("42", "n1", (0,), 0, 99),))


class Scripted:
    """A source that gives its boards and then waits until it is stopped."""

    watches, vets = "a test", True

    def __init__(self, *boards: Board) -> None:
        self._boards, self._stopped = boards, threading.Event()
        self.judged: list[tuple[str, str]] = []
        self.chosen = ""

    def boards(self):
        yield from self._boards
        self._stopped.wait(10)

    def choose(self, node):
        self.chosen = node

    def vet(self, event_id, verdict):
        self.judged.append((event_id, verdict))

    def undo(self, event_id):
        self.judged.append((event_id, "undo"))

    def stop(self):
        self._stopped.set()


def full(job: str = "42") -> Board:
    ratios = {name: np.full((2, 30), 0.5, np.float32) for name in ("busy", "user", "system", "iowait")}
    events = tuple(EventLine(f"e{i}", "n1", 2, job, 5.0, 100, None, "", f"iowait was {i} %") for i in (1, 2))
    nodes = (NodeLine("n1", 2, "watching", 5.0, 2), NodeLine("n2", 2, "stale", np.nan, 0))
    return Board("watching", nodes, Heat("n1", (0, 1), 130, ratios), (JobLine(job, "ada", "n1", 2, 60),), events)


def drive(feed, act):
    """Run `act(app, pilot)` when the boards have arrived."""

    async def run() -> TopApp:
        app = TopApp(feed)
        async with app.run_test(size=(120, 40)) as pilot:
            for _ in range(200):
                if app.board.heat is not None or app.return_code:
                    break
                await pilot.pause(0.01)
            await act(app, pilot)
        return app

    return asyncio.run(run())


def test_a_board_fills_every_pane():
    async def act(app, pilot):
        assert [app._table(name).row_count for name in ("nodes", "jobs", "events")] == [2, 1, 2]
        assert "iowait was 1 %" in str(app.query_one("#why").render())

    drive(Scripted(full()), act)


@pytest.mark.medium
def test_keys_give_and_undo_a_verdict_for_the_selected_event():
    feed = Scripted(full())

    async def act(app, pilot):
        app._table("events").focus()
        await pilot.press("down", "c", "u")
        for _ in range(200):
            if len(feed.judged) == 2:
                return
            await pilot.pause(0.01)

    drive(feed, act)
    assert sorted(feed.judged) == [("e2", "confirmed"), ("e2", "undo")]


@pytest.mark.medium
def test_the_selected_node_is_requested():
    feed = Scripted(full())

    async def act(app, pilot):
        app._table("nodes").focus()
        await pilot.press("down")
        await pilot.pause()

    drive(feed, act)
    assert feed.chosen == "n2"


def test_m_shows_another_channel():
    async def act(app, pilot):
        await pilot.press("m")
        assert app.query_one(HeatStrip).channel == "user"

    drive(Scripted(full()), act)


def test_a_hostile_job_name_is_text_not_markup():
    async def act(app, pilot):
        assert "[red]x[/]" in str(app._table("jobs").get_row_at(0)[0])

    drive(Scripted(full("[red]x[/]")), act)


def test_a_source_that_fails_ends_the_screen_with_its_code():
    class Broken(Scripted):
        def boards(self):
            raise SourceError("nobody is there")
            yield

    async def act(app, pilot):
        await pilot.pause()

    assert drive(Broken(), act).return_code == 1


def test_more_threads_than_lines_share_lines():
    async def act(app, pilot):
        strip = app.query_one(HeatStrip)
        ratios = {"busy": np.ones((64, 5), np.float32)}
        strip.show(Heat("n1", tuple(range(64)), 5, ratios), "busy")
        line = strip.render_line(0)
        assert line.text[-1] == "▀"
        assert line.text[LABEL] == "·"  # there is no earlier data

    drive(Scripted(full()), act)


def test_levels_cover_the_ratios_and_mark_unknown_values():
    assert quantise(np.array([0, 1, np.nan], np.float32)).tolist() == [0, LEVELS - 1, -1]


def test_without_a_service_threads_are_shown_without_scores():
    boards = list(LocalBoards(iter([trace(10, 0.25), trace(11, 0.75)]), "this host").boards())
    last = boards[-1]
    assert last.heat.ratios["busy"].tolist() == [[0.25, 0.75], [0.25, 0.75]]
    assert np.isnan(last.nodes[0].score)
    assert last.jobs[0].job == "42"


def test_a_gap_and_a_masked_second_are_unknown():
    busy = board_of([trace(10, 0.5), trace(12, 0.5, valid=False), trace(13, 0.5, cpus=(0, 1, 2))]).heat.ratios["busy"]
    assert np.isnan(busy).tolist() == [[False, True, True, False]] * 2 + [[True, True, True, False]]


def test_a_clock_that_jumps_leaves_the_board_as_long_as_the_last_minutes():
    """The seconds between were unknown cells: a node whose clock jumps by a year filled the memory."""
    assert board_of([trace(10, 0.5), trace(10 + 86_400, 0.5)]).heat.ratios["busy"].shape == (2, 1)
