"""The policy: one TOML file -> rules that say which cause allows which action, who decides, and the limits.

Without a file, and in a file without rules, nothing is done. An unknown key is an error, and then nothing is done.

[[rule]]
name = "hung MPI jobs"
causes = ["stopped", "blocked-io"]   # kinds of `odd_rank.KINDS`
action = "cancel"                    # notify, hold, requeue, suspend, cancel, drain, reserve
mode = "ask"                         # advise, ask, auto
sure = 0.95                          # at least this
for = "10 min"                       # the same finding has been made for this long
partitions = ["batch"]               # empty: all
accounts = []                        # empty: all
most_per_day = 5
signal = "TERM"                      # of cancel
grace = "30 s"                       # then KILL; at most 1 h
reserve = "4 h"                      # how long a reservation for maintenance lasts
"""

from __future__ import annotations

import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from clustertwin.core.durations import parse_duration
from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.foreign_files import parse_toml
from clustertwin.telemetry.diagnosis.odd_rank import KINDS

Verb = Literal["notify", "hold", "requeue", "suspend", "cancel", "drain", "reserve"]
VERBS: tuple[str, ...] = get_args(Verb)
Mode = Literal["advise", "ask", "auto"]
MODES: tuple[str, ...] = get_args(Mode)
SIGNALS = ("TERM", "INT", "USR1", "USR2", "KILL")
#: `auto` needs at least this, whatever the file says.
LEAST_SURE_FOR_AUTO = 0.9
#: Nothing else is looked at while a cancelled job has its grace.
LONGEST_GRACE_S = 3600.0
#: What cannot be undone, and what undoes the rest.
UNDO: dict[str, str] = {
    "notify": "A message cannot be unsent.",
    "hold": "`scontrol release JOB` undoes this.",
    "requeue": "This cannot be undone: the work since the start, or since the last checkpoint, is lost.",
    "suspend": "`scontrol resume JOB` undoes this.",
    "cancel": "This cannot be undone: the work since the start, or since the last checkpoint, is lost.",
    "drain": "`scontrol update nodename=NODE state=resume` undoes this.",
    "reserve": "The reservation ends by itself; `scontrol delete reservationname=NAME` ends it before.",
}


class PolicyFileError(InputError, SettingsError):
    """A policy that is not valid. Nothing is done while it is not."""


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    causes: tuple[str, ...]
    action: Verb
    mode: Mode = "advise"
    sure: float = 0.95
    for_s: float = 600.0
    partitions: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    most_per_day: int = 5
    signal: str = "TERM"
    grace_s: float = 30.0
    reserve_s: float = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class ActionPolicy:
    rules: tuple[Rule, ...] = ()


def read_policy(path: Path | None) -> ActionPolicy:
    """Read the file. None: no file, no rules."""
    if path is None:
        return ActionPolicy()
    try:
        if path.stat().st_mode & stat.S_IWOTH:
            raise PolicyFileError(path, f"everyone can write it, and so decide what is done; run chmod o-w {path}")
        return parse_policy(path.read_text(), path)
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyFileError(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


def parse_policy(text: str, where: object = "policy") -> ActionPolicy:
    try:
        tables = parse_toml(text)
    except ValueError as error:
        raise PolicyFileError(where, str(error)) from error
    if unknown := sorted(tables.keys() - {"rule"}):
        raise PolicyFileError(where, f"there is no setting {unknown[0]}; the file has only [[rule]] tables")
    entries = tables.get("rule", [])
    if not isinstance(entries, list):
        raise PolicyFileError(where, "write [[rule]], with two brackets")
    rules = tuple(_rule(entry, where, number) for number, entry in enumerate(entries, 1))
    names = [rule.name for rule in rules]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise PolicyFileError(where, f"two rules have the name {twice!r}")
    return ActionPolicy(rules)


def check_names(policy: ActionPolicy, partitions: Collection[str], where: object = "policy") -> None:
    """Raise if a rule names a partition that Slurm does not have."""
    for rule in policy.rules:
        if unknown := next((name for name in rule.partitions if name not in partitions), None):
            raise PolicyFileError(
                where, f"rule {rule.name!r}: Slurm has no partition {unknown!r}; it has {', '.join(sorted(partitions))}"
            )


def _rule(entry: Any, where: object, number: int) -> Rule:
    if not isinstance(entry, dict):
        raise PolicyFileError(where, f"rule {number} is not a table")
    name = f"rule {entry.get('name')!r}" if isinstance(entry.get("name"), str) else f"rule {number}"
    keys = {
        "name": str, "causes": list, "action": str, "mode": str, "sure": (int, float), "for": str, "partitions": list,
        "accounts": list, "most_per_day": int, "signal": str, "grace": str, "reserve": str,
    }  # fmt: skip
    for key, value in entry.items():
        if key not in keys:
            raise PolicyFileError(where, f"{name}: there is no setting {key}; the settings are {', '.join(keys)}")
        if not isinstance(value, keys[key]) or isinstance(value, bool):  # type: ignore[arg-type]
            raise PolicyFileError(where, f"{name}: {key} has the wrong type")
        if isinstance(value, list) and not all(isinstance(text, str) for text in value):
            raise PolicyFileError(where, f"{name}: {key} must be a list of texts")
    for key in ("name", "causes", "action"):
        if not entry.get(key):
            raise PolicyFileError(where, f"{name}: {key} is missing")
    rule = Rule(
        name=entry["name"],
        causes=tuple(entry["causes"]),
        action=entry["action"],
        mode=entry.get("mode", "advise"),
        sure=float(entry.get("sure", 0.95)),
        for_s=_duration(entry.get("for", "10 min"), f"{name}: for", where),
        partitions=tuple(entry.get("partitions", ())),
        accounts=tuple(entry.get("accounts", ())),
        most_per_day=entry.get("most_per_day", 5),
        signal=entry.get("signal", "TERM"),
        grace_s=_duration(entry.get("grace", "30 s"), f"{name}: grace", where),
        reserve_s=_duration(entry.get("reserve", "4 h"), f"{name}: reserve", where),
    )
    _check(rule, name, where)
    return rule


def _check(rule: Rule, name: str, where: object) -> None:
    choices = [(rule.action, VERBS, "action"), (rule.mode, MODES, "mode"), (rule.signal, SIGNALS, "signal")]
    choices += [(cause, tuple(KINDS), "cause") for cause in rule.causes]
    for value, allowed, key in choices:
        if value not in allowed:
            raise PolicyFileError(where, f"{name}: unknown {key} {value!r}; use one of {', '.join(allowed)}")
    if not 0 < rule.sure <= 1:
        raise PolicyFileError(where, f"{name}: sure must be above 0 and at most 1")
    if rule.mode == "auto" and rule.sure < LEAST_SURE_FOR_AUTO:
        raise PolicyFileError(where, f"{name}: mode auto needs sure of at least {LEAST_SURE_FOR_AUTO}")
    if rule.grace_s > LONGEST_GRACE_S:
        raise PolicyFileError(where, f"{name}: grace must be at most {LONGEST_GRACE_S / 3600:.0f} h")
    if not 1 <= rule.most_per_day <= 10_000:
        raise PolicyFileError(where, f"{name}: most_per_day must be between 1 and 10000")


def _duration(text: str, what: str, where: object) -> float:
    try:
        return parse_duration(text)
    except SettingsError as error:
        raise PolicyFileError(where, f"{what}: {error}") from error
