"""Our nouns as plain JSON values: dataclasses, arrays and tuples -> dicts, lists and numbers; NaN -> null."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

import numpy as np

from clustertwin.service.store.event_store import Case


def plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        if np.issubdtype(value.dtype, np.floating):
            return _floats(value)
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not isfinite(value) else value


def _floats(values: np.ndarray[Any, np.dtype[np.floating]]) -> Any:
    """Four decimals are more than a ratio or a score means."""
    rounded = np.round(values.astype(np.float64), 4)
    if np.isfinite(rounded).all():
        return rounded.tolist()
    values_or_none = rounded.astype(object)
    values_or_none[~np.isfinite(rounded)] = None
    return values_or_none.tolist()


def case(one: Case, silenced: bool = False) -> dict[str, Any]:
    """An event as the API gives it."""
    event = one.event
    why = None
    if one.why is not None:
        why = {**plain(one.why), "channel": one.why.channel, "sentence": one.why.sentence}
    return {
        **plain(event),
        "places": [{"node": node, "cpus": list(cpus)} for node, cpus in event.places],
        "nodes": list(event.nodes),
        "threads": event.threads,
        "open": event.open,
        "why": why,
        "verdict": one.verdict,
        "who": one.who,
        "comment": one.comment,
        "vetted_s": one.vetted_s,
        "silenced": silenced,
    }
