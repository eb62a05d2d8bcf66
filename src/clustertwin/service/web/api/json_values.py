"""Convert values for JSON: dataclasses, arrays and tuples -> dicts, lists and numbers; NaN -> null."""

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
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        if np.issubdtype(value.dtype, np.floating):
            return _floats(value)
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not isfinite(value) else value


def _floats(values: np.ndarray[Any, np.dtype[np.floating]]) -> Any:
    """Round to four decimals: ratios and scores are not more precise than that."""
    rounded = np.round(values.astype(np.float64), 4)
    if np.isfinite(rounded).all():
        return rounded.tolist()
    values_or_none = rounded.astype(object)
    values_or_none[~np.isfinite(rounded)] = None
    return values_or_none.tolist()


def case_json(case: Case, silenced: bool = False, in_shadow: bool = False) -> dict[str, Any]:
    """An event with its explanation and its verdict, as the API returns it."""
    event = case.event
    why = None
    if case.why is not None:
        why = {
            **plain(case.why),
            "channel": case.why.channel,
            "sentence": case.why.sentence,
            "next_step": case.why.next_step,
        }
    return {
        **plain(event),
        "places": [{"node": node, "cpus": list(cpus)} for node, cpus in event.places],
        "nodes": list(event.nodes),
        "threads": event.threads,
        "open": event.open,
        "why": why,
        "verdict": case.verdict,
        "who": case.who,
        "comment": case.comment,
        "vetted_s": case.vetted_s,
        "silenced": silenced,
        "in_shadow": in_shadow,  # it would have been raised: nobody was notified
    }
