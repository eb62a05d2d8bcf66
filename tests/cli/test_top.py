import json
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.terminal.thread_bars import ThreadBars


def drawn(screen: ThreadBars, width: int = 100, height: int = 30) -> str:
    console = Console(width=width, height=height, record=True, file=StringIO())
    console.print(screen)
    return console.export_text()


def trace(cpus: int = 2, valid: bool = True) -> Trace:
    values = np.tile(np.array([0.75, 0.25, 0, 0], np.float32), (cpus, 1, 1))
    spans = (JobSpan("slurm/42", "n1", (0, 1), 0, 9),)
    return Trace("n1", tuple(range(cpus)), 0, CPU, values, np.full((cpus, 1), valid), spans)


def test_before_two_readings_the_output_says_warming_up():
    assert "warming up" in drawn(ThreadBars())


def test_ratios_and_jobs_are_shown():
    screen = ThreadBars()
    screen.add(trace())
    text = drawn(screen)
    assert "user  75%" in text
    assert "job slurm/42 on threads 0-1" in text


def test_a_masked_second_is_unknown_not_idle():
    screen = ThreadBars()
    screen.add(trace(valid=False))
    assert "????" in drawn(screen)


def test_many_threads_fit_the_terminal():
    screen = ThreadBars()
    screen.add(trace(cpus=256))
    text = drawn(screen, width=160, height=40)
    assert "cpu255" in text
    assert len(text.splitlines()) <= 40


@pytest.mark.slow
def test_json_gives_every_threads_last_second(twin):
    result = twin("top", "--seconds", "2", "--json")
    assert result.returncode == 0, result.stderr
    threads = json.loads(result.stdout)["threads"]
    assert all(abs(sum(ratios.values()) - 1) < 1e-5 for ratios in threads.values() if ratios)


@pytest.mark.medium
@pytest.mark.parametrize("option", ["--url", "--exporter"])
@pytest.mark.parametrize("json_option", [(), ("--json",)])
def test_an_unreachable_address_is_an_error_and_never_shows_this_host(twin_here, option: str, json_option):
    result = twin_here("top", option, "http://127.0.0.1:1", *json_option)
    assert result.returncode == 1
    assert "http://127.0.0.1:1" in result.stderr
    assert result.stdout == ""


def test_url_and_exporter_exclude_each_other(twin_here):
    result = twin_here("top", "--url", "http://127.0.0.1:1", "--exporter", "http://127.0.0.1:1")
    assert (result.returncode, result.stdout) == (2, "")
