"""Accounts, users and QOS: `sacctmgr dump`, `sacctmgr show … -P` or a sacctmgr script -> associations and QOS."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clustertwin.workload.slurm.site.conf_lines import SiteError, logical_lines, read_text
from clustertwin.workload.slurm.site.quantities import UNLIMITED, parse_count, parse_limit_s, parse_number, parse_tres
from clustertwin.workload.slurm.site.slurm_site import PARENT_SHARES, Association, Qos, SiteReport, UsageLimits

#: Slurm's names of limits (lower case) -> fields of UsageLimits.
LIMIT_FIELDS = {
    "grptres": "group_tres", "grpjobs": "group_jobs", "grpsubmit": "group_submit", "grpsubmitjobs": "group_submit",
    "maxtres": "max_tres_job", "maxtresperjob": "max_tres_job",
    "mintres": "min_tres_job", "mintresperjob": "min_tres_job", "maxwall": "max_wall_s",
    "maxwalldurationperjob": "max_wall_s", "maxjobs": "max_jobs", "maxsubmit": "max_submit",
    "maxsubmitjobs": "max_submit", "maxtrespu": "max_tres_user", "maxtresperuser": "max_tres_user",
    "maxjobspu": "max_jobs_user", "maxjobsperuser": "max_jobs_user", "maxsubmitpu": "max_submit_user",
    "maxsubmitjobspu": "max_submit_user", "maxsubmitjobsperuser": "max_submit_user",
    "maxtrespa": "max_tres_account", "maxtresperaccount": "max_tres_account", "maxjobspa": "max_jobs_account",
    "maxjobsperaccount": "max_jobs_account", "maxsubmitpa": "max_submit_account",
    "maxsubmitjobspa": "max_submit_account", "maxsubmitjobsperaccount": "max_submit_account",
}  # fmt: skip
#: Older names of a limit on one TRES.
_ONE_TRES = {
    "grpcpus": ("grptres", "cpu"), "grpnodes": ("grptres", "node"), "grpmem": ("grptres", "mem"),
    "maxcpus": ("maxtres", "cpu"), "maxcpusperjob": ("maxtres", "cpu"), "maxnodes": ("maxtres", "node"),
    "maxnodesperjob": ("maxtres", "node"), "maxcpusperuser": ("maxtrespu", "cpu"),
    "maxnodesperuser": ("maxtrespu", "node"),
}  # fmt: skip
_NOT_MODELLED = {
    "grptresmins", "grptresrunmins", "grpwall", "maxtresmins", "maxtresminsperjob", "grpcpumins", "grpcpurunmins",
    "maxcpumins", "maxtresrunmins", "maxtresrunminspu", "maxtresrunminspa", "maxjobsaccrue", "grpjobsaccrue",
    "maxjobsaccruepu", "maxjobsaccruepa", "minpriothresh", "minpriothreshold", "usagethres", "usagethreshold",
    "limitfactor", "gracetime", "preemptexempttime", "maxtrespernode", "maxtrespn",
}  # fmt: skip
_NO_EFFECT = {
    "description", "descr", "organization", "org", "adminlevel", "coordinators", "defaultaccount", "defaultwckey",
    "wckeys", "name", "names", "account", "accounts", "cluster", "clusters", "user", "users", "parent", "lineage",
    "classification", "clusternodes", "tres", "id", "comment", "where", "set", "parentname", "parname", "parentid",
    "parid", "lft", "rgt", "flags", "share", "partition",
}  # fmt: skip


@dataclass(slots=True)
class AccountBook:
    """Associations and QOS while files are read, later lines over earlier ones."""

    report: SiteReport
    qos: dict[str, Qos] = field(default_factory=dict)
    associations: dict[tuple[str, str, str], Association] = field(default_factory=dict)

    def set_qos(self, name: str, given: dict[str, str], place: tuple[Path, int]) -> None:
        old = self.qos.get(name, Qos(name))
        changes: dict[str, Any] = {"limits": _limits(old.limits, given, place, self.report)}
        for key, value in given.items():
            if key == "priority":
                changes["priority"] = _number(value, place, key)
            elif key == "preempt":
                changes["preempt"] = _changed(old.preempt, value)
            elif key == "preemptmode":
                changes["preempt_mode"] = "" if value.lower() == "cluster" else value.lower()
            elif key == "usagefactor":
                changes["usage_factor"] = _limit("usage_factor", value or "1", place, key)
            elif key == "flags":
                changes["flags"] = _changed(old.flags, value)
        self.qos[name] = replace(old, **changes)

    def set_association(self, base: Association, given: dict[str, str], place: tuple[Path, int]) -> None:
        key = (base.account, base.user, base.partition)
        old = self.associations.get(key, base)
        changes: dict[str, Any] = {"limits": _limits(old.limits, given, place, self.report)}
        for name, value in given.items():
            if name in ("fairshare", "shares", "share"):
                changes["shares"] = PARENT_SHARES if value.lower() == "parent" else _number(value or "1", place, name)
            elif name in ("qos", "qoslevel"):
                changes["qos"] = _changed(old.qos or self._inherited_qos(base), value)
            elif name in ("defaultqos", "defqos"):
                changes["default_qos"] = value
            elif name == "priority" and value:
                self.report.add("not modelled", "priority of an association", _place(place))
        if base.parent != "root":
            changes["parent"] = base.parent
        self.associations[key] = replace(old, **changes)

    def _inherited_qos(self, entry: Association) -> tuple[str, ...]:
        """The QOS of the nearest account above that has a list of its own; Slurm gives `normal` to a new cluster."""
        for _ in range(100):  # accounts may be below themselves
            above = self.associations.get((entry.account if entry.user else entry.parent, "", ""))
            if above is None:
                break
            if above.qos:
                return above.qos
            entry = above
        return ("normal",) if "normal" in self.qos else ()

    def remove_user(self, name: str, accounts: Iterable[str]) -> None:
        """Remove the associations of a user in these accounts, or all of them if there are none."""
        chosen = set(accounts)
        for key in [key for key in self.associations if key[1] == name and (not chosen or key[0] in chosen)]:
            del self.associations[key]

    def remove_account(self, name: str) -> None:
        """Remove an account with its users and the accounts below it."""
        below = [name]
        while below:
            account = below.pop()
            accounts = (entry for entry in self.associations.values() if not entry.user)
            below += [entry.account for entry in accounts if entry.parent == account != entry.account]
            for key in [key for key in self.associations if key[0] == account]:
                del self.associations[key]


def read_accounts(paths: Iterable[Path], report: SiteReport) -> AccountBook:
    """Several files, one after the other; the first line tells what each is."""
    book = AccountBook(report)
    for path in paths:
        lines = list(logical_lines(read_text(path)))
        if not lines:
            continue
        first = lines[0][1]
        if "|" in first:
            _read_table(path, lines, book)
        elif re.match(r"(cluster|parent|account|user)\s*-\s*'?", first, re.IGNORECASE):
            _read_dump(path, lines, book)
        else:
            _read_script(path, lines, book)
    return book


def _read_dump(path: Path, lines: list[tuple[int, str]], book: AccountBook) -> None:
    parent = "root"
    for number, text in lines:
        match = re.match(r"(\w+)\s*-\s*('[^']*'|[^:']*)(?::(.*))?$", text)
        if match is None or (match[3] or "").count("'") % 2:
            raise SiteError(path, f"{text[:40]!r} is not a line of sacctmgr dump", number)
        kind, name = match[1].lower(), match[2].strip("'")
        given = _dump_pairs(match[3] or "", path, number)
        if kind == "parent":
            parent = name
        elif kind == "cluster":
            book.set_association(Association("root", parent=""), given, (path, number))
        elif kind == "account":
            book.set_association(Association(name, parent=parent), given, (path, number))
        elif kind == "user":
            base = Association(parent, name, partition=given.get("partition", ""))
            book.set_association(base, given, (path, number))
        else:
            raise SiteError(path, f"{match[1]!r} is not Cluster, Parent, Account or User", number)


def _dump_pairs(text: str, path: Path, line: int) -> dict[str, str]:
    pairs = {}
    for part in re.findall(r"(?:[^:']|'[^']*')+", text):
        key, equals, value = part.partition("=")
        if not equals:
            raise SiteError(path, f"{part!r} is not Key=value", line)
        pairs[key.strip().lower()] = value.strip().strip("'")
    return pairs


def _read_table(path: Path, lines: list[tuple[int, str]], book: AccountBook) -> None:
    """`sacctmgr --parsable2 show qos` or `show associations`: a header, then rows."""
    header = [name.strip().lower().replace(" ", "") for name in lines[0][1].strip("|").split("|")]
    if "account" in header and not {"parentname", "parname"} & set(header) and not book.associations:
        book.report.add(
            "assumed", "associations without the column ParentName: accounts are taken below root", path.name
        )
    for number, text in lines[1:]:
        cells = text.split("|")[: len(header)]
        if len(cells) < len(header):
            raise SiteError(path, f"{len(cells)} columns, the header has {len(header)}", number)
        given = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
        place = (path, number)
        if "account" in header:
            name = given.get("account", "root")
            parent = given.get("parentname", given.get("parname", "root"))  # sacctmgr heads the column with "Par Name"
            base = Association(name, given.get("user", ""), parent, given.get("partition", ""))
            book.set_association(base, given, place)
        elif "name" in header:
            if "name" not in given:
                raise SiteError(path, "a QOS without a name", number)
            book.set_qos(given["name"], given, place)
        else:
            raise SiteError(path, "a table of sacctmgr has the column Name (QOS) or Account (associations)", 1)


def _read_script(path: Path, lines: list[tuple[int, str]], book: AccountBook) -> None:
    for number, text in lines:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise SiteError(path, str(error), number) from error
        verb, noun = words[0].lower(), words[1].lower() if len(words) > 1 else ""
        if verb in ("list", "show", "exit", "quit"):
            continue
        if verb not in ("add", "create", "modify", "remove", "delete"):
            hint = "; print tables with sacctmgr --parsable2" if ";" in text or "\t" in text else ""
            raise SiteError(path, f"{words[0]!r} is not a command of sacctmgr{hint}", number)
        given, bare = _settings(words[2:])
        noun = noun if noun == "qos" else noun.removesuffix("s")
        keyed = [given.get(key, "") for key in _NAMES.get(noun, ())]
        names = [name for word in (*bare, *keyed) for name in _list(word)]
        if noun in _NOT_MODELLED_NOUNS:
            book.report.add("not modelled", f"sacctmgr {noun}", f"{path.name}:{number}")
            continue
        if not names:
            raise SiteError(path, f"no name of a {noun or 'QOS, account or user'}; write {verb} {noun} NAME …", number)
        for name in dict.fromkeys(names):
            _apply(verb, noun, name, given, (path, number), book)


def _settings(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The settings of a command, and its other words: names."""
    given: dict[str, str] = {}
    bare: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            bare += [word] if word.lower() not in ("set", "where") else []
        elif key[-1:] in ("+", "-"):  # qos+=high,low
            given[key[:-1].lower()] = ",".join(key[-1] + item for item in _list(value))
        else:
            given[key.lower()] = value
    return given, bare


#: What a command is about -> the keys that may hold its name, beside a name without a key.
_NAMES = {
    "qos": ("name", "names"),
    "cluster": ("name", "names", "cluster", "clusters"),
    "account": ("name", "names", "account", "accounts"),
    "user": ("name", "names", "user", "users"),
}
_NOT_MODELLED_NOUNS = {"coordinator", "federation", "resource", "wckey"}


def _apply(verb: str, noun: str, name: str, given: dict[str, str], place: tuple[Path, int], book: AccountBook) -> None:
    removes = verb in ("remove", "delete")
    if noun == "qos":
        if removes:
            book.qos.pop(name, None)
        else:
            book.set_qos(name, given, place)
    elif noun == "cluster":
        book.set_association(Association("root", parent=""), given, place)
    elif noun == "account":
        if removes:
            book.remove_account(name)
        else:
            book.set_association(Association(name, parent=given.get("parent", "root")), given, place)
    elif noun == "user":
        accounts = _list(given.get("account", given.get("accounts", given.get("defaultaccount", ""))))
        if removes:
            book.remove_user(name, accounts)
            return
        existing = [(key[0], key[2]) for key in book.associations if key[1] == name]
        for account, partition in [(account, given.get("partition", "")) for account in accounts] or existing:
            book.set_association(Association(account, name, partition=partition), given, place)
    else:
        raise SiteError(place[0], f"{noun!r} is not a QOS, cluster, account or user", place[1])


def _limits(old: UsageLimits, given: dict[str, str], place: tuple[Path, int], report: SiteReport) -> UsageLimits:
    changes: dict[str, Any] = {}
    for key, text in given.items():
        name, value = key, text
        if key in _ONE_TRES and text:
            name, tres = _ONE_TRES[key]
            value = f"{tres}={text}"
        if name in LIMIT_FIELDS:
            field_name = LIMIT_FIELDS[name]
            limit = _limit(field_name, value, place, key)
            if isinstance(limit, dict):  # a list changes the TRES that it names, and no others
                named = {part.partition("=")[0].strip().lower() for part in value.split(",")}
                before = changes.get(field_name, getattr(old, field_name))
                limit = {tres: amount for tres, amount in before.items() if tres not in named} | limit
            changes[field_name] = limit
        elif key in _NOT_MODELLED:
            if value and value not in ("-1", "1.000000", "0.000000", "0", "00:00:00"):
                report.add("not modelled", f"limit {key}", _place(place))
        elif key not in _NO_EFFECT | _KNOWN:
            report.add("unknown", f"sacctmgr {key}", _place(place))
    return replace(old, **changes)


_KNOWN = {
    "priority", "preempt", "preemptmode", "usagefactor", "fairshare", "shares", "qos", "qoslevel",
    "defaultqos", "defqos",
}  # fmt: skip


def _limit(name: str, text: str, place: tuple[Path, int], key: str) -> Any:
    try:
        if "tres" in name:
            return parse_tres(text)
        if name == "max_wall_s":
            return parse_limit_s(text) if text else math.inf
        if name == "usage_factor":
            return parse_number(text)
        return math.inf if text.lower() in UNLIMITED | {""} else float(parse_count(text))
    except ValueError as error:
        raise SiteError(place[0], f"{key}={text}: {error}", place[1]) from error


def _number(text: str, place: tuple[Path, int], key: str) -> int:
    try:
        return parse_count(text)
    except ValueError as error:
        raise SiteError(place[0], f"{key}={text[:40]}: {error}", place[1]) from error


def _list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


def _changed(old: tuple[str, ...], text: str) -> tuple[str, ...]:
    """A QOS list, or changes to one: `+high,-low`."""
    words = _list(text)
    if not any(word[0] in "+-" for word in words):
        return words
    kept = [name for name in old if f"-{name}" not in words]
    return (*kept, *(word[1:] for word in words if word[0] == "+" and word[1:] not in kept))


def _place(place: tuple[Path, int]) -> str:
    return f"{place[0].name}:{place[1]}"
