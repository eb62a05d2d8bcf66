"""Run the rounds of a campaign: settings -> one recording per round. Complete rounds are kept, broken ones repeated.

DIR/campaign.json     the settings, which must not change when a campaign is resumed, and the host
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

from clustertwin.core import files
from clustertwin.core.channels import CPU, SPREAD
from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.launcher import Launcher
from clustertwin.telemetry.campaign.plan import AvailableCpus, CampaignSettings, PlannedJob, plan_round, split_of
from clustertwin.telemetry.campaign.sampler import Sampler
from clustertwin.telemetry.recording import Recorder

_BEFORE_S = 3  # recorded before the first job: the first samples may be late while code is compiled
_AFTER_S = 2  # recorded after the last job, so that its last second is complete

#: (jobs of the round, directory for their files, prefix of their ids) -> a launcher for them
MakeLauncher = Callable[[Sequence[PlannedJob], Path, str], Launcher]


@dataclass(frozen=True, slots=True)
class CampaignHost:
    """The recorded nodes, the CPUs that jobs can use, and how jobs are started."""

    nodes: Mapping[str, tuple[int, ...]]  # node -> its CPUs on this host
    available: AvailableCpus
    make_launcher: MakeLauncher
    via: str = "direct"
    scratch: Path | None = None  # None: below the campaign's directory


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """The state of the current round, reported once a second."""

    round: int
    split: str
    running: tuple[str, ...]
    done: int  # jobs of this round
    jobs: int


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """A complete round, and the jobs that failed."""

    round: int
    campaign: str
    split: str
    directory: Path
    failures: dict[str, str]
    kept: bool = False  # it was complete before this run


def run_rounds(
    out: Path,
    settings: CampaignSettings,
    host: CampaignHost,
    *,
    report: Callable[[RoundProgress], None] = lambda _: None,
    tick: Callable[[], float] | None = None,
) -> list[RoundOutcome]:
    """Run the rounds that are not complete yet; `tick` waits for the next second and returns the time."""
    tick = tick or _next_second
    files.make_directory(out)
    _check_same_campaign(out / "campaign.json", _document(settings, host))
    outcomes = []
    for number in range(settings.rounds):
        directory, complete = out / f"round-{number:03d}", out / f"round-{number:03d}.json"
        if complete.exists():
            outcomes.append(_read_outcome(complete, directory))
            continue
        if directory.exists():
            shutil.rmtree(directory)  # an interrupted round is repeated from its start
        jobs = plan_round(settings, number, host.available)
        campaign = f"{settings.seed}-{number:03d}"
        schema = CPU + SPREAD if settings.node_channels else CPU
        with (
            _round_scratch(host.scratch or out / "scratch", campaign) as scratch,
            Recorder.create(directory, host.nodes, schema, campaign=campaign, split=split_of(number)) as recorder,
            closing(host.make_launcher(jobs, scratch, campaign)) as launcher,
        ):
            sampler = Sampler(host.nodes, recorder, settings.node_channels)
            failures = _run_round(number, jobs, launcher, recorder, sampler, tick, report)
        outcome = RoundOutcome(number, campaign, split_of(number), directory, failures)
        _write_json(complete, {"outcome": _plain(outcome), "jobs": [asdict(job) for job in jobs]})
        outcomes.append(outcome)
    return outcomes


@contextmanager
def _round_scratch(scratch: Path, campaign: str) -> Iterator[Path]:
    """A temporary directory for one round; the scratch directory itself is removed too if this call created it."""
    created = not scratch.exists()
    scratch.mkdir(parents=True, exist_ok=True)
    # A cancelled batch job may still be writing to it.
    with TemporaryDirectory(prefix=f"campaign-{campaign}-", dir=scratch, ignore_cleanup_errors=True) as directory:
        yield Path(directory)
    if created:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_round(
    number: int,
    jobs: Sequence[PlannedJob],
    launcher: Launcher,
    recorder: Recorder,
    sampler: Sampler,
    tick: Callable[[], float],
    report: Callable[[RoundProgress], None],
) -> dict[str, str]:
    """Record while the jobs run; returns name -> reason of the jobs that failed."""
    failures: dict[str, str] = {}
    for _ in range(_BEFORE_S):
        tick()
        sampler.sample()
    seconds_left = _AFTER_S
    while seconds_left:
        now_s = tick()
        sampler.sample()
        for finished in launcher.step(now_s):
            for span in finished.spans:
                recorder.label(span)
            if finished.failure:
                failures[finished.name] = finished.failure
        report(RoundProgress(number, split_of(number), launcher.running, len(jobs) - launcher.pending, len(jobs)))
        seconds_left = _AFTER_S if launcher.pending else seconds_left - 1
    return failures


def _next_second() -> float:
    """Sleep until the next whole second of the clock, and return the time."""
    time.sleep(1.0 - time.time() % 1.0)
    return time.time()


def _document(settings: CampaignSettings, host: CampaignHost) -> dict[str, Any]:
    return {
        "settings": settings.to_json(),
        "via": host.via,
        "nodes": {node: list(cpus) for node, cpus in host.nodes.items()},
        "host": {"kernel": platform.release(), "machine": platform.machine()},
    }


def _check_same_campaign(path: Path, document: dict[str, Any]) -> None:
    """Write the campaign's document. A previous document may differ only in the number of rounds."""
    if path.exists():
        previous = orjson.loads(path.read_bytes())
        # The plan of a round does not depend on the number of rounds, so that more can be added later.
        old, new = ({**each["settings"], "via": each["via"], "nodes": each["nodes"]} for each in (previous, document))
        different = [name for name in new if name != "rounds" and old.get(name) != new[name]]
        if different:
            changes = "; ".join(f"{name} was {old.get(name)}, now {new[name]}" for name in different)
            raise SettingsError(f"{path.parent} holds a campaign with other settings ({changes}); choose another --out")
    _write_json(path, document)


def _plain(outcome: RoundOutcome) -> dict[str, Any]:
    return asdict(outcome) | {"directory": outcome.directory.name}


def _read_outcome(path: Path, directory: Path) -> RoundOutcome:
    plain = orjson.loads(path.read_bytes())["outcome"]
    return RoundOutcome(**plain | {"directory": directory, "kept": True})


def _write_json(path: Path, document: dict[str, Any]) -> None:
    files.write(path, orjson.dumps(document, option=orjson.OPT_INDENT_2))
