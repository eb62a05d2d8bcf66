"""Run the rounds of a campaign: settings -> one recording per round, complete rounds kept, broken ones done again.

DIR/campaign.json     the settings, which a resumed campaign must share, and the host
DIR/round-000/        a recording
DIR/round-000.json    its plan and outcome, written when the round is complete
"""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from clustertwin.core.channels import CPU, NODE
from clustertwin.core.errors import OutputError, SettingsError
from clustertwin.telemetry.campaign.launcher import Launcher
from clustertwin.telemetry.campaign.plan import CampaignSettings, Planned, Room, plan_round
from clustertwin.telemetry.campaign.sampler import Sampler
from clustertwin.telemetry.campaign.splits import split_of
from clustertwin.telemetry.recording import Recorder

_BEFORE_S = 3  # recorded before the first job: the first steps may have to be compiled, and are late then
_AFTER_S = 2  # recorded after the last job, so that its last second is there

#: (jobs of the round, directory for their files, prefix of their ids) -> what runs them
MakeLauncher = Callable[[Sequence[Planned], Path, str], Launcher]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a campaign is; one a second."""

    round: int
    split: str
    running: tuple[str, ...]
    done: int  # jobs of this round
    jobs: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A complete round: what was planned, and what went wrong."""

    round: int
    campaign: str
    split: str
    directory: Path
    failures: dict[str, str]
    kept: bool = False  # it was complete before this run


def run_rounds(
    out: Path,
    settings: CampaignSettings,
    nodes: Mapping[str, tuple[int, ...]],
    room: Room,
    make_launcher: MakeLauncher,
    *,
    via: str = "direct",
    scratch: Path | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    tick: Callable[[], float] | None = None,
) -> list[Outcome]:
    """Run what is not complete yet. `nodes` is what is recorded: node -> its CPUs on this host.

    `tick` waits for the next second and says which it is.
    """
    tick = tick or _next_second
    out.mkdir(parents=True, exist_ok=True)
    _agree(out / "campaign.json", _document(settings, nodes, via))
    outcomes = []
    for number in range(settings.rounds):
        directory, complete = out / f"round-{number:03d}", out / f"round-{number:03d}.json"
        if complete.exists():
            outcomes.append(_read_outcome(complete, directory))
            continue
        if directory.exists():
            shutil.rmtree(directory)  # it was killed: half a round is no round
        jobs = plan_round(settings, number, room)
        campaign = f"{settings.seed}-{number:03d}"
        schema = CPU + NODE if settings.node_channels else CPU
        with (
            _room_for_files(scratch or out / "scratch", campaign) as files,
            Recorder.create(directory, nodes, schema, campaign=campaign, split=split_of(number)) as recorder,
            closing(make_launcher(jobs, files, campaign)) as launcher,
        ):
            sampler = Sampler(nodes, recorder, settings.node_channels)
            failures = _run_round(number, jobs, launcher, recorder, sampler, tick, report)
        outcome = Outcome(number, campaign, split_of(number), directory, failures)
        _write_json(complete, {"outcome": _plain(outcome), "jobs": [asdict(job) for job in jobs]})
        outcomes.append(outcome)
    return outcomes


@contextmanager
def _room_for_files(scratch: Path, campaign: str) -> Iterator[Path]:
    """A directory of this round alone, gone afterwards, and its parent too if it was only for us."""
    ours = not scratch.exists()
    scratch.mkdir(parents=True, exist_ok=True)
    # A cancelled job of a batch system may still be writing its last.
    with TemporaryDirectory(prefix=f"campaign-{campaign}-", dir=scratch, ignore_cleanup_errors=True) as mine:
        yield Path(mine)
    if ours:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_round(
    number: int,
    jobs: Sequence[Planned],
    launcher: Launcher,
    recorder: Recorder,
    sampler: Sampler,
    tick: Callable[[], float],
    report: Callable[[Progress], None],
) -> dict[str, str]:
    """Record while the jobs run; name -> failure of those that did not work."""
    failures: dict[str, str] = {}
    for _ in range(_BEFORE_S):
        tick()
        sampler.sample()
    left = _AFTER_S
    while left:
        now_s = tick()
        sampler.sample()
        for over in launcher.step(now_s):
            for span in over.spans:
                recorder.label(span)
            if over.failure:
                failures[over.name] = over.failure
        report(Progress(number, split_of(number), launcher.running, len(jobs) - launcher.pending, len(jobs)))
        left = _AFTER_S if launcher.pending else left - 1
    return failures


def _next_second() -> float:
    """Sleep until the next whole second of the clock, and say which it is."""
    time.sleep(1.0 - time.time() % 1.0)
    return time.time()


def _document(settings: CampaignSettings, nodes: Mapping[str, tuple[int, ...]], via: str) -> dict[str, Any]:
    host = {"kernel": platform.release(), "machine": platform.machine()}
    return {"settings": settings.to_json(), "via": via, "nodes": {n: list(c) for n, c in nodes.items()}, "host": host}


def _agree(path: Path, document: dict[str, Any]) -> None:
    """Write the campaign's document, or see that the one that is there says the same, but for the number of rounds."""
    if not path.exists():
        _write_json(path, document)
        return
    before = orjson.loads(path.read_bytes())
    # Its plan does not depend on how many rounds there are: more of them may be asked for later.
    old, new = ({**each["settings"], "via": each["via"], "nodes": each["nodes"]} for each in (before, document))
    different = [name for name in new if name != "rounds" and old.get(name) != new[name]]
    if different:
        said = "; ".join(f"{name} was {old.get(name)}, now {new[name]}" for name in different)
        raise SettingsError(f"{path.parent} holds another campaign ({said}); choose another --out")
    _write_json(path, document)


def _plain(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome) | {"directory": outcome.directory.name}


def _read_outcome(path: Path, directory: Path) -> Outcome:
    kept = orjson.loads(path.read_bytes())["outcome"]
    return Outcome(**kept | {"directory": directory, "kept": True})


def _write_json(path: Path, document: dict[str, Any]) -> None:
    """Whole or not at all."""
    draft = path.with_suffix(".tmp")
    try:
        draft.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}") from error
