"""A site from a directory of Slurm's files, from one slurm.conf or from a short TOML file: path -> SlurmSite.

A directory holds slurm.conf (with gres.conf, topology.conf and included files), and any of sacctmgr.script,
sacctmgr.dump, *.dump, qos.txt, assoc.txt. reservations.toml lists advance reservations.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from clustertwin.core.foreign_files import parse_toml
from clustertwin.workload.slurm.site.account_tree import AccountBook, read_accounts
from clustertwin.workload.slurm.site.conf_lines import SiteError, read_text
from clustertwin.workload.slurm.site.quantities import (
    expand_hosts,
    parse_gres,
    parse_limit_s,
    parse_memory_mb,
    parse_tres,
)
from clustertwin.workload.slurm.site.slurm_conf import read_slurm_conf
from clustertwin.workload.slurm.site.slurm_site import (
    PARENT_SHARES,
    AdvanceReservation,
    Association,
    NodeGroup,
    Preemption,
    PriorityWeights,
    Qos,
    SchedulerParameters,
    SlurmPartition,
    SlurmSite,
    UsageLimits,
)

ACCOUNT_FILES = ("qos.txt", "sacctmgr.dump", "*.dump", "assoc.txt", "associations.txt", "sacctmgr.script")


def read_site(path: Path) -> SlurmSite:
    """A directory, a slurm.conf or a TOML file."""
    if path.suffix == ".toml":
        return parse_site(read_text(path), path)
    conf = path / "slurm.conf" if path.is_dir() else path
    if not conf.is_file():
        raise SiteError(path, "no slurm.conf here; a site is a directory with slurm.conf, a slurm.conf or a .toml file")
    site = read_slurm_conf(conf)
    if conf.name != "slurm.conf":  # the accounts beside it belong to another file
        return with_accounts(site, AccountBook(site.report))
    found = dict.fromkeys(file for pattern in ACCOUNT_FILES for file in sorted(conf.parent.glob(pattern)))
    book = read_accounts(found, site.report)
    site = with_accounts(site, book)
    reservations = conf.parent / "reservations.toml"
    if reservations.is_file():
        table = _toml(read_text(reservations), reservations)
        if unknown := table.keys() - {"reservations"}:
            raise SiteError(reservations, f"unknown table {min(unknown)!r}; write [[reservations]]")
        site = replace(site, reservations=_reservations(table, reservations, site.node_names))
    return site


def with_accounts(site: SlurmSite, book: AccountBook) -> SlurmSite:
    """The site with the accounts and QOS of a book; a QOS that is named but not defined is an error."""
    associations = tuple(book.associations.values())
    named = {name for partition in site.partitions if (name := partition.qos)}
    named |= {name for association in associations for name in association.qos}
    missing = named - book.qos.keys() - {"normal"}
    if book.qos and missing:
        raise SiteError(site.name or "site", f"QOS {sorted(missing)[0]} is used, but not defined")
    if not book.qos and named:
        site.report.add("not modelled", "QOS without a definition (no sacctmgr file)", count=len(named))
    return replace(site, qos=tuple(book.qos.values()), associations=associations)


def parse_site(text: str, where: Path | str) -> SlurmSite:
    """The short form: tables [[nodes]], [[partitions]], [[qos]], [[accounts]], [[reservations]], [scheduler], …"""
    table = _toml(text, where)
    known = {"name", "nodes", "partitions", "qos", "accounts", "reservations", "scheduler", "priority", "preemption",
             "settings"}  # fmt: skip
    if table.keys() - known:
        raise SiteError(
            where, f"unknown table {sorted(table.keys() - known)[0]!r}; known are {', '.join(sorted(known))}"
        )
    try:
        groups = tuple(_node_group(dict(row)) for row in table.get("nodes", []))
        names = tuple(name for group in groups for name in group.names)
        partitions = tuple(_toml_partition(dict(row), names) for row in table.get("partitions", []))
        site = SlurmSite(
            table.get("name", ""),
            groups,
            partitions or (SlurmPartition("batch", names, default=True),),
            qos=tuple(_toml_qos(dict(row)) for row in table.get("qos", [])),
            associations=tuple(_toml_account(dict(row)) for row in table.get("accounts", [])),
            reservations=_reservations(table, where, names),
            scheduler=SchedulerParameters(**table.get("scheduler", {})),
            priority=PriorityWeights(**table.get("priority", {})),
            preemption=Preemption(**table.get("preemption", {})),
            **table.get("settings", {}),
        )
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise SiteError(where, str(error).removeprefix("SlurmSite.__init__() ")) from error
    if not groups:
        raise SiteError(where, "no [[nodes]] table; a site needs nodes")
    return site


def _toml(text: str, where: Path | str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError as error:
        raise SiteError(where, str(error)) from error


def _node_group(row: dict[str, Any]) -> NodeGroup:
    return NodeGroup(
        tuple(expand_hosts(row.pop("names"))),
        memory_mb=parse_memory_mb(str(row.pop("memory", "1"))),
        gres=parse_gres(row.pop("gres", "")),
        **_with_lists(NodeGroup, row),
    )


def _with_lists(kind: type, row: dict[str, Any]) -> dict[str, Any]:
    """The table with its lists as tuples. A text in their place is refused: its letters would be the names."""
    names = [each.name for each in fields(kind) if each.type == "tuple[str, ...]" and each.name in row]
    if wrong := next((name for name in names if not isinstance(row[name], list)), None):
        raise ValueError(f"{wrong} must be a list of texts, as in {wrong} = ['{row[wrong]}']")
    return row | {name: tuple(map(str, row[name])) for name in names}


def _toml_partition(row: dict[str, Any], names: tuple[str, ...]) -> SlurmPartition:
    nodes = expand_hosts(row.pop("nodes")) if "nodes" in row else names
    if set(nodes) - set(names):
        raise ValueError(f"partition {row['name']}: node {sorted(set(nodes) - set(names))[0]} is not defined")
    for key in ("max_time", "default_time"):
        if key in row:
            row[f"{key}_s"] = parse_limit_s(str(row.pop(key)))
    return SlurmPartition(nodes=tuple(nodes), **_with_lists(SlurmPartition, row))


def _toml_limits(row: dict[str, Any]) -> UsageLimits:
    limits: dict[str, Any] = {}
    for name in UsageLimits.__dataclass_fields__:
        if name in row:
            value = row.pop(name)
            limits[name] = parse_tres(value) if isinstance(value, str) else float(value)
    return UsageLimits(**limits)


def _toml_qos(row: dict[str, Any]) -> Qos:
    limits = _toml_limits(row)
    return Qos(limits=limits, **_with_lists(Qos, row))


def _toml_account(row: dict[str, Any]) -> Association:
    limits = _toml_limits(row)
    if row.get("shares") == "parent":
        row["shares"] = PARENT_SHARES
    return Association(limits=limits, **_with_lists(Association, row))


def _reservations(table: dict[str, Any], where: Path | str, names: tuple[str, ...]) -> tuple[AdvanceReservation, ...]:
    rows, reservations = table.get("reservations", []), []
    if not isinstance(rows, list):
        raise SiteError(where, "reservations are tables [[reservations]]")
    for number, row in enumerate(rows, 1):
        try:
            reservations.append(_reservation(dict(row), names))
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            name = row.get("name", number) if isinstance(row, dict) else number
            raise SiteError(where, f"reservation {name!r}: {error}") from error
    return tuple(reservations)


def _reservation(row: dict[str, Any], names: tuple[str, ...]) -> AdvanceReservation:
    if unknown := row.keys() - _RESERVATION:
        raise ValueError(f"unknown key {min(unknown)!r}; known are {', '.join(sorted(_RESERVATION))}")
    nodes = names if row.get("nodes", "ALL") == "ALL" else tuple(expand_hosts(row["nodes"]))
    if unknown_nodes := set(nodes) - set(names):
        raise ValueError(f"unknown node {min(unknown_nodes)}")
    start_s = float(row["start_s"])
    end_s = float(row.get("end_s", start_s + float(row.get("duration_s", math.inf))))
    if not start_s < end_s:
        raise ValueError(f"start_s {start_s:g} is not before its end, {end_s:g}")
    lists = _with_lists(AdvanceReservation, {key: row.get(key, []) for key in ("users", "accounts")})
    return AdvanceReservation(
        row.get("name", ""), nodes, start_s, end_s, maintenance=bool(row.get("maintenance", False)), **lists
    )


_RESERVATION = {"name", "nodes", "start_s", "end_s", "duration_s", "users", "accounts", "maintenance"}
