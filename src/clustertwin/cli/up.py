"""`twin up`: this machine, or a recording played again, live in the browser."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home
from clustertwin.cli.output import Json, err, print_json

if TYPE_CHECKING:
    from clustertwin.service.web.access import Binding

app = group()


@app.command()
def up(
    replay: Path | None = typer.Option(None, "--replay", help="Play this recording instead of watching this host."),
    speed: float = typer.Option(20.0, "--speed", min=0.1, max=1000.0, help="How many times as fast as it happened."),
    port: int = typer.Option(8790, "--port", min=0, max=65535, help="On loopback; 0: any that is free."),
    browser: bool = typer.Option(True, "--browser/--no-browser", help="Open the page."),
    stride_s: int = typer.Option(5, "--stride-s", min=1, max=30, help="Seconds between two scorings."),
    learn: bool = typer.Option(True, "--learn/--no-learn", help="Learn from the day before, every night at 02:30."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Watch every thread of this machine: record it, score it, and serve the page on loopback. Ctrl-C ends it."""
    one_core()
    from clustertwin.config import Config, Learning, Scoring, Service
    from clustertwin.service.serving import run, state_of

    config = Config(
        service=Service(port=port, home=str(home.expanduser())),
        scoring=Scoring(stride_s=stride_s),
        learning=Learning(nightly="02:30" if learn else ""),
    )

    def told(binding: Binding) -> None:
        tell(binding, state_of(config.home, replay is not None), json)
        if browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            webbrowser.open(binding.url)

    run(config, (replay, speed) if replay else None, told)


def one_core() -> None:
    """To score takes one core; numpy and torch read this when they are loaded, so it is said before.

    torch.set_num_threads holds for the thread that calls it: in others a product of matrices goes on with a thread for
    each core, and every one of them spins while it waits.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def tell(binding: Binding, home: Path, json: bool) -> None:
    if json:
        print_json({"url": binding.url, "home": str(home), "pid": os.getpid()})
    else:
        err.print(f"clustertwin watches: [bold]{binding.url}[/]   (Ctrl-C ends it; state in {home})")
