"""A night's results -> the lineage of a version and the record for the registry: enough to repeat the night."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from clustertwin import __version__
from clustertwin.telemetry.learning.champions.registry import NightRecord, RegisteredVersion
from clustertwin.telemetry.learning.champions.version_store import DIRECTORY as MODELS
from clustertwin.telemetry.learning.duel.golden_set import GoldenSetResult
from clustertwin.telemetry.learning.night.day_census import DayCensus
from clustertwin.telemetry.learning.night.night_run import NightResult, NightRun
from clustertwin.telemetry.learning.night.training_plan import TrainingPlan
from clustertwin.telemetry.learning.night.verdicts import VettedSpan

_LONGEST_PARAM = 500  # characters that MLflow accepts


def lineage(
    run: NightRun,
    result: NightResult,
    census: DayCensus,
    plan: TrainingPlan,
    verdicts: Sequence[VettedSpan],
    challenger: str,
) -> dict[str, Any]:
    """Data, parents, settings and measurements of one challenger."""
    contestant = next(row for row in result.contestants if row["name"] == challenger)
    start = plan.start_directory(challenger)
    moments = sorted((run.directory / "moments").glob("*.safetensors"))
    return {
        "night": result.day,
        "challenger": challenger,
        "champion_then": result.before,
        "started_from": start.name if start else "",
        "epochs": plan.epochs[challenger],
        "replayed": plan.replayed,
        "census": asdict(census),
        "moments_sha256": {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in moments},
        "verdicts": dict(Counter(span.verdict for span in verdicts)),
        "error": contestant["error"],
        "bits": contestant["bits"],
        "false_alarms": contestant["false_alarms"],
        "false_events": contestant["false_events"],
        "raised": contestant["raised"],
        "detection": GoldenSetResult(**contestant["detection"]).to_json(),
        "clustertwin": __version__,
        "command": run.context.command,
    }


def night_record(
    run: NightRun, result: NightResult, census: DayCensus, plan: TrainingPlan, stored: dict[str, Any]
) -> NightRecord:
    """The night as the registry stores it. `stored` names the version of the best challenger; it can be empty."""
    params = {
        "day": result.day,
        "outcome": result.outcome,
        "because": result.because,
        "champion_before": result.before,
        "champion": result.champion,
        "nodes": str(len(census.seen)),
        "replayed": ",".join(plan.replayed),
        "clustertwin": __version__,
    } | {key: str(value) for key, value in asdict(run.settings).items()}
    metrics = {
        "windows": float(census.windows),
        "independent_windows": float(census.independent_windows),
        "thread_hours": census.thread_hours,
        "jobs": float(census.jobs),
        "programs": float(len(census.job_types)),
        "threads": float(census.threads),
    }
    metrics |= {f"seconds.{step}": seconds for step, seconds in result.seconds.items()}
    version = stored.get("version", "")
    return NightRecord(
        name=result.day,
        params={key: value[:_LONGEST_PARAM] for key, value in params.items()},
        metrics=metrics,
        runs={row["name"]: _contestant_metrics(row) for row in result.contestants},
        files=str(run.directory / "report"),
        model=str(run.home / MODELS / version) if version else "",
        version=version,
        sha256=stored.get("sha256", ""),
        others={
            name: RegisteredVersion(str(run.home / MODELS / row["version"]), row["version"], row["sha256"])
            for name, row in stored.get("others", {}).items()
        },
    )


def _contestant_metrics(row: dict[str, Any]) -> dict[str, float]:
    result = GoldenSetResult(**row["detection"])
    return {
        "error": row["error"],
        "bits": row["bits"],
        "false_alarms": row["false_alarms"],
        "false_events": row["false_events"],
        "raised": row["raised"],
        "detection": result.mean_recall,
        "informedness": result.informedness,
    } | {f"recall.{kind}": recall for kind, recall in result.recall.items()}
