"""A night's results -> where a version came from, and what the registry is told: complete enough to repeat it."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clustertwin import __version__
from clustertwin.telemetry.learning.champions.registry import Record
from clustertwin.telemetry.learning.duel.golden_set import Detection
from clustertwin.telemetry.learning.night.night_data import Census
from clustertwin.telemetry.learning.night.step_log import Night
from clustertwin.telemetry.learning.night.verdicts import Vetted


def lineage_of(
    night: Night,
    census: Census,
    plan: dict[str, Any],
    best: str,
    directory: Path,
    said: list[Vetted],
    fence: int,
    command: str,
) -> dict[str, Any]:
    """Data, parents, settings and what was measured."""
    mine = next(row for row in night.contestants if row["name"] == best)
    return {
        "night": night.day,
        "challenger": best,
        "champion_then": night.before,
        "started_from": Path(plan["starts"][best]).name if best in plan["starts"] else "",
        "epochs": plan["epochs"][best],
        "replayed": plan["replayed"],
        "census": asdict(census),
        "moments_sha256": {path.stem: _sha256(path) for path in sorted((directory / "moments").glob("*.safetensors"))},
        "verdicts": dict(Counter(vetted.verdict for vetted in said)),
        "error": mine["error"],
        "false_alarms": mine["false_alarms"],
        "detection": Detection(**mine["detection"]).to_json(),
        "fence": fence,
        "clustertwin": __version__,
        "command": command,
    }


def record_of(
    night: Night,
    census: Census,
    plan: dict[str, Any],
    settings: dict[str, Any],
    directory: Path,
    entered: dict[str, Any],
    home: Path,
) -> Record:
    """The night as the registry keeps it."""
    params = {
        "day": night.day,
        "outcome": night.outcome,
        "because": night.because[:500],
        "champion_before": night.before,
        "champion": night.champion,
        "nodes": str(len(census.seen)),
        "replayed": ",".join(plan["replayed"])[:500],
        "clustertwin": __version__,
    }
    params |= {key: str(value)[:500] for key, value in settings.items()}
    metrics = {"windows": float(census.windows), "threads": float(census.threads)}
    metrics |= {f"seconds.{step}": seconds for step, seconds in night.seconds.items()}
    runs = {row["name"]: _metrics(row) for row in night.contestants}
    version = entered.get("version", "")
    return Record(
        name=night.day,
        params=params,
        metrics=metrics,
        runs=runs,
        files=str(directory),
        model=str(home / "models" / version) if version else "",
        version=version,
        sha256=entered.get("sha256", ""),
    )


def _metrics(row: dict[str, Any]) -> dict[str, float]:
    seen = Detection(**row["detection"])
    return {
        "error": row["error"],
        "false_alarms": row["false_alarms"],
        "detection": seen.mean,
        "sight": seen.sight,
    } | {f"recall.{kind}": value for kind, value in seen.recall.items()}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
