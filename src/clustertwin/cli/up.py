"""`twin up`: watch this machine, or replay a recording, in the browser."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home
from clustertwin.cli.output import Json, err, print_json
from clustertwin.service.live import stride
from clustertwin.service.web.binding import Binding

app = group()

NIGHTLY = "02:30"


@app.command()
def up(
    replay: Path | None = typer.Option(None, "--replay", help="Replay this recording instead of watching this host."),
    speed: float = typer.Option(20.0, "--speed", min=0.1, max=1000.0, help="Speed of the replay; 1 is real time."),
    port: int = typer.Option(Binding().port, "--port", min=0, max=65535, help="Port on loopback; 0: any free port."),
    browser: bool = typer.Option(True, "--browser/--no-browser", help="Open the page in a browser."),
    stride_s: int = typer.Option(stride.DEFAULT_S, "--stride-s", min=1, max=30, help="Seconds between two scorings."),
    learn: bool = typer.Option(
        True, "--learn/--no-learn", help=f"Learn every night at {NIGHTLY} from the data of the day before."
    ),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Watch every thread of this machine: record it, score it, and serve the page on loopback. Ctrl-C stops it."""
    one_core()
    from clustertwin.core.extras import require

    require("pydantic", "service")
    from clustertwin.service.config import LearningSection, ScoringSection, ServiceConfig, ServiceSection
    from clustertwin.service.serving import run, state_home

    config = ServiceConfig(
        service=ServiceSection(port=port, home=str(home)),
        scoring=ScoringSection(stride_s=stride_s),
        learning=LearningSection(nightly=NIGHTLY if learn else ""),
    )

    def ready(binding: Binding) -> None:
        watched = f"a replay of {replay}" if replay else "this machine"
        print_address(binding, state_home(config.home, replay is not None), json, watched)
        if browser:
            open_browser(binding.url)

    run(config, (replay, speed) if replay else None, ready)


def one_core() -> None:
    """Let numpy and torch use one thread. They read the variable when they are imported, so set it before.

    torch.set_num_threads applies only to the thread that calls it. In other threads a matrix product would use a thread
    for each core, and each of them would spin while it waits.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def open_browser(url: str) -> None:
    """Open a page in the browser of this desktop; nothing happens where there is no desktop."""
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)


def print_address(binding: Binding, home: Path, json: bool, watched: str) -> None:
    """Where the page is, what it shows, and how to see it from a desk if this is a shell on another machine."""
    if json:
        print_json({"url": binding.url, "home": str(home), "pid": os.getpid()})
        return
    err.print(f"clustertwin is running at {binding.url}   (Ctrl-C stops it; data in {home})", soft_wrap=True)
    err.print(f"It watches {watched}. The first scores come after about two minutes of data.", soft_wrap=True)
    if os.environ.get("SSH_CONNECTION") and binding.loopback:
        here = f"ssh -L {binding.port}:127.0.0.1:{binding.port} {os.uname().nodename}"
        err.print(f"To open the page on your own computer, run there: {here}", soft_wrap=True)
