"""What a policy was trained with: job records, machine, settings -> a record, and how it differs from another run.

A checkpoint holds this record, so that a training continues only on the data and with the settings it began with.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

import numpy as np

from clustertwin.workload.policies.trained_range import range_of, range_over
from clustertwin.workload.rl.training_sequences import TrainingData
from clustertwin.workload.simulator.machine_state import Records
from clustertwin.workload.simulator.simulate_log import SchedulingRules

#: The columns of a job record that the simulation reads and never writes.
_COLUMNS = ("submit_s", "run_s", "estimate_s", "request_s", "procs", "gpus", "user", "group", "queue")

#: Settings whose key in a checkpoint differs from the name of the field.
CHECKPOINT_KEYS = {
    "ppo_length": "length",
    "validation_sequences": "judged_on",
    "validate_every": "judge_every",
    "noise_std": "noise",
    "learning_rate": "rate",
}


def record_log(records: Records) -> dict[str, Any]:
    """The number of jobs of a log and the SHA-256 of their records."""
    digest = hashlib.sha256()
    for name in _COLUMNS:
        digest.update(np.ascontiguousarray(records[name]).tobytes())
    return {"jobs": len(records), "sha256": digest.hexdigest()}


def record_training(data: TrainingData, rules: SchedulingRules, settings: dict[str, Any]) -> dict[str, Any]:
    """The record of a training, as plain values. The keys are part of the checkpoint format."""
    own = range_of(np.concatenate([data.records, *data.further]), rules.procs)
    logs: dict[str, Any] = {
        "log": record_log(data.records),
        "held_out": [[int(first), int(last)] for first, last in data.held_out],
        "further": [record_log(records) for records in data.further],
    }
    if data.others:
        logs["others"] = [{**record_log(other.records), "procs": other.procs} for other in data.others]
    return {
        "data": logs,
        "range": asdict(range_over([own, *(range_of(other.records, other.procs) for other in data.others)])),
        "rules": asdict(rules),
        "settings": _with_checkpoint_keys(settings),
    }


def differences(recorded: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """What differs between the record of a checkpoint and the record of this call, one phrase each.

    An older checkpoint has no "data"; what it does not record is not compared.
    """
    phrases = []
    if "data" in recorded:
        then, now = recorded["data"], current["data"]
        if then["log"] != now["log"]:
            phrases.append(f"another log ({_log(then['log'])}, now {_log(now['log'])})")
        if then["held_out"] != now["held_out"]:
            phrases.append(f"other held-out jobs ({_ranges(then['held_out'])}, now {_ranges(now['held_out'])})")
        if then["further"] != now["further"]:
            phrases.append(f"other synthetic jobs ({_logs(then['further'])}, now {_logs(now['further'])})")
        if then.get("others", []) != now.get("others", []):
            others = [_logs(entry.get("others", [])) for entry in (then, now)]
            phrases.append(f"other logs of other machines ({others[0]}, now {others[1]})")
    if changed := _changed(recorded["rules"], current["rules"]):
        phrases.append(f"another machine or backfilling ({changed})")
    if changed := _changed(recorded["settings"], current["settings"]):
        phrases.append(f"other settings ({changed})")
    return phrases


def _with_checkpoint_keys(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        CHECKPOINT_KEYS.get(name, name): _with_checkpoint_keys(value) if isinstance(value, dict) else value
        for name, value in settings.items()
    }


def _changed(then: dict[str, Any], now: dict[str, Any]) -> str:
    fields = {key: name for name, key in CHECKPOINT_KEYS.items()}
    before, after = _flat(then), _flat(now)
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    names = [" ".join(fields.get(part, part) for part in key) for key in keys]
    return ", ".join(f"{name} {before.get(key)}, now {after.get(key)}" for key, name in zip(keys, names, strict=True))


def _flat(values: dict[str, Any], above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Nested values by the path of their keys."""
    flat: dict[tuple[str, ...], Any] = {}
    for name, value in values.items():
        flat |= _flat(value, (*above, name)) if isinstance(value, dict) else {(*above, name): value}
    return flat


def _log(log: dict[str, Any]) -> str:
    return f"{log['jobs']} jobs with SHA-256 {log['sha256'][:12]}"


def _logs(logs: list[dict[str, Any]]) -> str:
    return " and ".join(map(_log, logs)) or "none"


def _ranges(ranges: list[list[int]]) -> str:
    return " ".join(f"{first}:{last}" for first, last in ranges) or "none"
