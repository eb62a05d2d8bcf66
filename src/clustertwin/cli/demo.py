"""`twin demo`: simulate a small cluster, let a job hang, and show the event that explains it."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clustertwin.cli.app import group
from clustertwin.cli.options import options
from clustertwin.cli.output import Json, err, print_json

if TYPE_CHECKING:
    from clustertwin.telemetry.campaign.demo_cluster import DemoStory

app = group()

#: Seconds after which the demo gives up waiting for its event. It usually takes ten to twenty.
PATIENCE_S = 300.0


@dataclass(frozen=True)
class DemoOptions:
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the event in a browser.")] = True
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0: any free port.")] = 0
    speed: Annotated[float, typer.Option(min=1, max=200, help="Speed of the replay; 1 is real time.")] = 40.0
    stop: Annotated[bool, typer.Option("--stop", help="Stop when the event is explained, instead of serving it.")] = (
        False
    )
    json: bool = Json


@app.command()
@options(DemoOptions)
def demo(options: DemoOptions) -> None:
    """Simulate a small cluster on which a job hangs, and open the page of the event that explains it."""
    from clustertwin.cli.up import one_core
    from clustertwin.core.extras import require

    teller = _Teller(time.monotonic())
    one_core()
    for module in ("pydantic", "fastapi", "torch"):
        require(module, "service")
    with tempfile.TemporaryDirectory(prefix="clustertwin-demo-") as directory:
        _play(options, Path(directory), teller)


def _play(options: DemoOptions, directory: Path, teller: _Teller) -> None:
    """Simulate, serve and tell. The directory holds the recording and the home of the service."""
    from clustertwin.core.errors import TwinError
    from clustertwin.service.config import LearningSection, ServiceConfig, ServiceSection
    from clustertwin.service.serving import run
    from clustertwin.service.web.binding import Binding
    from clustertwin.telemetry.campaign.demo_cluster import write_demo

    story = write_demo(directory / "recording")
    teller.begin(story)
    _compile(story)
    teller.tell("The detector is loaded; its loops were compiled if this is the first run.")
    config = ServiceConfig(
        service=ServiceSection(port=options.port, home=str(directory / "home")), learning=LearningSection(nightly="")
    )
    failures: list[str] = []

    def ready(binding: Binding) -> None:
        teller.tell(f"The service watches at {binding.url}. The replay runs at {options.speed:g} × real time.")
        threading.Thread(target=follow, args=(binding.url,), name="demo", daemon=True).start()

    def follow(url: str) -> None:
        event = _wait_for_event(url, story)
        if event is None:
            failures.append(f"the demo found no event of job {story.victim.job} within {PATIENCE_S:g} s")
        else:
            _show(event, f"{url}/events/{event['id']}", story, options, teller)
        if event is None or options.stop:
            os.kill(os.getpid(), signal.SIGTERM)  # the service stops as it does under systemd

    try:
        run(config, (story.directory, options.speed), ready)
    finally:
        if failures:
            raise TwinError(failures[0])


def _compile(story: DemoStory) -> None:
    """Score one moment, so that the replay does not run ahead while the loops of a new install are compiled."""
    from clustertwin.telemetry.detection.bundled import bundled
    from clustertwin.telemetry.moments.moment import LENGTH_S, moments
    from clustertwin.telemetry.recording import Recording

    recording = Recording.open(story.directory)
    end_s = recording.start_s + LENGTH_S
    moment, _ = next(moments([recording.trace(node, end_s=end_s) for node in recording.nodes]))
    bundled().score(moment)


def _show(event: dict[str, Any], page: str, story: DemoStory, options: DemoOptions, teller: _Teller) -> None:
    """Tell the event, print it if JSON is wanted, and open its page."""
    if options.json:
        print_json({"url": page, "seconds": teller.seconds(), "fault": asdict(story.fault), "event": event})
    teller.tell(f"Minute {story.clock(event['seen_s'])}: the twin opens an event for job {story.victim.job}:")
    for line in (event.get("title"), event["why"]["sentence"]):
        if line:
            teller.say(line)
    if options.stop:
        teller.tell("The demo stops and removes its data. Without --stop, you judge the event on its page.")
    else:
        teller.tell(f"Judge it: {page}")
        teller.say("Ctrl-C stops the demo and removes its data. `twin up` watches this machine.")
    if options.browser and not options.stop:
        from clustertwin.cli.up import open_browser

        open_browser(page)


class _Teller:
    """Print what happens, with the seconds since the start."""

    def __init__(self, begun_s: float) -> None:
        self._begun_s = begun_s

    def seconds(self) -> float:
        return round(time.monotonic() - self._begun_s, 1)

    def begin(self, story: DemoStory) -> None:
        settings, victim = story.settings, story.victim
        self.tell(
            f"Simulated {settings.nodes} nodes with {settings.threads} threads each: {story.jobs} jobs in "
            f"{settings.hours * 60:g} minutes."
        )
        self.tell(
            f"Job {victim.job}, {len(victim.cpus)} MPI ranks on {victim.node}, hangs at minute "
            f"{story.clock(story.fault.onset_s)}. The detector is not told."
        )

    def tell(self, text: str) -> None:
        err.print(f"{self.seconds():5.1f} s  {text}", highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        err.print(f"         {text}", highlight=False, soft_wrap=True)


def _wait_for_event(url: str, story: DemoStory) -> dict[str, Any] | None:
    """The first event of the victim, as the API returns it; None if there is none in time.

    It is returned once its explanation looks at a window that lies wholly after the fault.
    """
    import httpx

    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            answer = httpx.get(f"{url}/api/v1/events", timeout=5.0).json()
        except (httpx.HTTPError, ValueError):
            answer = {"events": []}  # the service does not answer yet
        for event in reversed(answer["events"]):  # the newest come first
            explained = event["why"] is not None and event["why"]["start_s"] >= story.fault.onset_s
            if story.victim.job in event["jobs"] and explained:
                return dict(event)
        time.sleep(0.3)
    return None
