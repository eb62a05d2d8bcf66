"""Is a day fit to learn from? Its census, the last one, and how strange the champion finds it -> reasons why not."""

from __future__ import annotations

from dataclasses import dataclass

from clustertwin.telemetry.learning.night.night_data import Census, Material


@dataclass(frozen=True, slots=True)
class Limits:
    fewest_windows: int = 1000
    fewest_moments: int = 3  # of each role: of three quarters of an hour so many can be had
    coverage: float = 0.5  # of the nodes of the last night must be there, each with this part of its seconds
    drift: float = 0.5  # the part of the day that may alarm without a person calling it the new normal


@dataclass(frozen=True, slots=True)
class Finding:
    """`skip` is why the day teaches nothing, empty if it does; `notes` are worth a look."""

    skip: str
    notes: tuple[str, ...] = ()


def check(
    census: Census, material: Material, alarming: float, before: Census | None, changed: bool, limits: Limits = Limits()
) -> Finding:
    """`alarming` is the part of the day that the champion finds strange; `changed`: a person called it normal."""
    notes = []
    well = [node for node, part in census.seen.items() if part >= limits.coverage]
    notes += [f"{node}: {part:.0%} of its seconds are valid" for node, part in census.seen.items() if part < 0.5]
    if not census.seen:
        return Finding("an empty day: no samples", tuple(notes))
    if not well:
        return Finding("no node has enough valid seconds", tuple(notes))
    if census.windows < limits.fewest_windows:
        return Finding(f"{census.windows} usable windows, {limits.fewest_windows} are needed", tuple(notes))
    counts = [len(material.train), len(material.validation), len(material.held_out)]
    if min(counts) < limits.fewest_moments:
        return Finding(f"{min(counts)} moments of a role, {limits.fewest_moments} are needed", tuple(notes))
    if before is not None:
        known = set(before.seen)
        missing = sorted(known - set(well))
        if len(known) - len(missing) < limits.coverage * len(known):
            return Finding(f"{len(missing)} of {len(known)} nodes are missing: {_some(missing)}", tuple(notes))
        if missing:
            notes.append(f"missing since the last night: {_some(missing)}")
        total = max(sum(before.job_types.values()), 1)
        gone = [name for name, n in before.job_types.items() if n > 0.1 * total and name not in census.job_types]
        if gone:
            notes.append(f"job types that were common and did not run: {_some(gone)}")
    if alarming > limits.drift and not changed:
        why = f"{alarming:.0%} of the day alarms, more than {limits.drift:.0%}: drifted beyond reason"
        return Finding(f"{why}; call the events the new normal, or confirm them", tuple(notes))
    return Finding("", tuple(notes))


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
