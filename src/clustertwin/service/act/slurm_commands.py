"""Slurm's commands: a job's id -> what Slurm knows of it; an action -> the exact commands, and whether it is done.

Ids of jobs and names of nodes come from exporters. They are checked before they become arguments.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.core.foreign_files import read_output
from clustertwin.telemetry.diagnosis.evidence import clean

TIMEOUT_S = 20.0
MOST_BYTES = 64 << 20  # the queue of a large site
_JOB = re.compile(r"[0-9]{1,10}(?:_[0-9]{1,8})?(?:\+[0-9]{1,4})?")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FIELD = re.compile(r"(\w[\w:/]*)=(\S*)")
#: What squeue prints of a job, in this order. The name, the comment and the directory of a job are texts of its user,
#: who could write anything into them, so they are not asked for.
FACTS = ("JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset", "UserID", "UserName", "Account",
         "Partition", "State", "StartTime", "NodeList", "TimeLimit", "PriorityLong", "RestartCnt")  # fmt: skip
_DAYS = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,6})")
#: What Slurm's commands print, in several lines, without a controller or without a configuration.
_UNREACHABLE = ("Unable to contact slurm controller", "fetch_config", "Could not establish a configuration source")
#: Arguments -> standard output. Raises `SourceError` if the command fails or does not answer.
RunCommand = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job as Slurm knows it. Job id and start time together name one run."""

    job: str
    user: str
    uid: int
    account: str
    partition: str
    state: str
    start_s: float
    nodes: tuple[str, ...]
    limit_s: float | None
    priority: int
    restarts: int
    name: str = ""  # for commands: the id of a task with its array, because a plain id may mean the whole array
    id_on_nodes: str = ""  # SLURM_JOB_ID of its processes
    het_job: str = ""  # the heterogeneous job that it is a component of

    @property
    def target(self) -> str:
        return check_job(self.name or self.job)


def run_command(arguments: Sequence[str]) -> str:
    """Run a command of Slurm. Its times count seconds: local times are ambiguous, and sites set their own format."""
    environment = {**os.environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
    try:
        done = read_output(list(arguments), MOST_BYTES, TIMEOUT_S, environment)
    except FileNotFoundError as error:
        raise SourceError(f"{arguments[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"Slurm does not answer: {arguments[0]} took longer than {TIMEOUT_S:.0f} s") from error
    except OSError as error:
        raise SourceError(f"Slurm does not answer: {arguments[0]}: {error.strerror}") from error
    output, errors = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))  # names have any bytes
    if done.returncode:
        if any(text in errors for text in _UNREACHABLE):
            raise SourceError(f"Slurm does not answer: {arguments[0]} does not reach slurmctld")
        reason = clean(" ".join((errors or output).split()))
        raise SourceError(f"{arguments[0]} failed: {reason or f'exit code {done.returncode}'}")
    return output


def describe(arguments: Sequence[str], run: RunCommand = run_command) -> str:
    """A command as a person would type it, or the request that `run` makes of it."""
    spoken: Callable[[Sequence[str]], str] = getattr(run, "describe", " ".join)
    return spoken(arguments)


def check_job(job: str) -> str:
    if not _JOB.fullmatch(job):
        raise SettingsError(f"{job[:64]!r} is not the id of a Slurm job")
    return job


def check_node(node: str) -> str:
    if not _NODE.fullmatch(node):
        raise SettingsError(f"{node[:64]!r} is not the name of a node")
    return node


def facts_command(job: str, mark: str) -> list[str]:
    """The question about a job. Slurm prints `mark` after each field, and only Slurm and the caller know it."""
    form = ",".join(f"{name}:{mark}" for name in FACTS)
    return ["squeue", "--noheader", "--all", "--states=all", f"--Format={form}", f"--jobs={check_job(job)}"]


def mark_of(command: Sequence[str]) -> str:
    """The mark of a question about a job; empty for another command.

    >>> mark_of(facts_command("42", "|x|"))
    '|x|'
    """
    form = next((word for word in command if word.startswith("--Format=")), "")
    return form.partition(":")[2].partition(",")[0]


def read_facts(job: str, run: RunCommand = run_command) -> JobFacts:
    """What Slurm knows of a job now."""
    mark = f"|{secrets.token_hex(8)}|"
    fields = record_of(job, run(facts_command(job, mark)), mark)
    hosts = fields["NodeList"]
    known = hosts not in ("", "(null)", "None", "N/A")
    return parse_facts(job, fields, tuple(run(["scontrol", "show", "hostnames", hosts]).split()) if known else ())


def record_of(job: str, text: str, mark: str) -> dict[str, str]:
    """The fields of one job. For an array or a heterogeneous job, squeue prints a record for each part.

    Users choose some texts, such as the account where Slurm does not check it. A text may look like other fields or
    like another job, but it cannot contain the mark.

    >>> record_of("8", "".join(f"{name}|x|" for name in ("7", *FACTS[1:])) + "\\n" + "8|x|" * 15, "|x|")["State"]
    '8'
    """
    *fields, rest = text.split(mark)
    records = [dict(zip(FACTS, fields[i:], strict=False)) for i in range(0, len(fields), len(FACTS))]
    for record in records:
        record["JobID"] = record["JobID"].removeprefix("\n")  # the end of the record before
    found = [record for record in records if job in (record["JobID"], _task(record), _component(record))]
    if len(found) != 1 or len(fields) % len(FACTS) or rest.strip():
        raise SourceError(f"Slurm's answer about job {job} cannot be read")
    return found[0]


def parse_facts(job: str, fields: Mapping[str, str], nodes: tuple[str, ...]) -> JobFacts:
    """Read the values of `FACTS`."""
    own_id, uid = fields["JobID"], fields["UserID"]
    if not (own_id.isdecimal() and uid.isdecimal() and len(uid) <= 10 and fields["State"]):
        raise SourceError(f"Slurm's answer about job {job} cannot be read")
    return JobFacts(
        job=job,
        user=clean(fields["UserName"]),
        uid=int(uid),
        account=_known(fields["Account"]),
        partition=clean(fields["Partition"]),
        state=clean(fields["State"]),
        start_s=unix_s(fields["StartTime"]),
        nodes=nodes,
        limit_s=_duration(fields["TimeLimit"]),
        priority=_count(fields["PriorityLong"], -1),
        restarts=_count(fields["RestartCnt"], 0),
        name=_task(fields) or own_id,
        id_on_nodes=own_id,
        het_job=fields["HetJobID"] if _component(fields) else "",
    )


def _task(fields: Mapping[str, str]) -> str:
    """`7_2` for a task of an array."""
    array, task = fields.get("ArrayJobID", ""), fields.get("ArrayTaskID", "")
    return f"{array}_{task}" if array.isdecimal() and task.isdecimal() else ""


def _component(fields: Mapping[str, str]) -> str:
    """`7+1` for a component of a heterogeneous job."""
    het, offset = fields.get("HetJobID", ""), fields.get("HetJobOffset", "")
    return f"{het}+{offset}" if het.isdecimal() and het != "0" and offset.isdecimal() else ""


def _known(text: str) -> str:
    return "" if text in ("(null)", "N/A") else clean(text)


def partitions(run: RunCommand = run_command) -> set[str]:
    return set(run(["sinfo", "--noheader", "--format=%R"]).split())


def reservation_of(action_id: str) -> str:
    """The name of the reservation that an action makes. A name is given once, so that it is not made twice."""
    return f"clustertwin_{action_id}"


def commands_of(
    verb: str, facts: JobFacts, action_id: str, signal: str, grace_s: float, reserve_s: float = 0.0
) -> list[list[str]]:
    """The commands of an action, in order. `sleep SECONDS` waits at most that long for the end of the job."""
    if facts.het_job and verb in ("hold", "requeue", "suspend", "cancel"):
        raise SettingsError(
            f"job {facts.job} is a part of the heterogeneous job {facts.het_job}, which ends as a whole"
        )
    job = facts.target
    comment = f"clustertwin {action_id}"
    if verb == "hold":
        return [["scontrol", "hold", job]]
    if verb == "requeue":
        return [["scontrol", "requeue", job]]
    if verb == "suspend":
        return [["scontrol", "suspend", job]]
    if verb == "cancel":
        first = [] if signal == "KILL" else [["scancel", f"--signal={signal}", "--full", job], ["sleep", str(grace_s)]]
        return [*first, ["scancel", job]]
    if verb == "drain":
        return [
            ["scontrol", "update", f"nodename={check_node(node)}", "state=drain", f"reason={comment}"]
            for node in facts.nodes
        ]
    if verb == "reserve":
        nodes = ",".join(check_node(node) for node in facts.nodes)
        words = [f"reservationname={reservation_of(action_id)}", "starttime=now", f"duration={_minutes(reserve_s)}"]
        # ignore_jobs: jobs that run go on. Without it Slurm refuses to reserve nodes that are in use.
        return [
            ["scontrol", "create", "reservation", *words, "users=root", "flags=maint,ignore_jobs", f"nodes={nodes}"]
        ]
    if verb == "notify":
        return []
    raise SettingsError(f"unknown action {verb!r}")


def is_done(verb: str, planned: JobFacts, action_id: str, run: RunCommand = run_command) -> bool:
    """Whether Slurm shows the effect of an action, so that it must not be repeated, or the job has ended."""
    if verb == "drain":
        return all(is_drained(node, run) for node in planned.nodes)
    if verb == "reserve":
        return f"ReservationName={reservation_of(action_id)} " in run(["scontrol", "--oneliner", "show", "reservation"])
    now = read_facts(planned.job, run)
    if now.restarts != planned.restarts or abs(now.start_s - planned.start_s) > 1:
        return True  # another run of the job: a requeue has happened
    if verb == "hold":
        return now.priority == 0 or now.state != "PENDING"
    if verb == "suspend":
        return now.state != "RUNNING"
    return now.state not in ("RUNNING", "SUSPENDED")


def is_drained(node: str, run: RunCommand = run_command) -> bool:
    """Whether no job starts on a node already, so that a drain would only replace someone's reason."""
    state = dict(_FIELD.findall(run(["scontrol", "--oneliner", "show", "node", check_node(node)]))).get("State", "")
    return "DRAIN" in state.upper()


def _count(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() and len(text) <= 12 else otherwise


def _minutes(seconds: float) -> int:
    return max(math.ceil(seconds / 60), 1)


def unix_s(text: str) -> float:
    """Seconds since 1970, or a time as Slurm prints it by default; 0 if there is none."""
    try:
        return float(text) if re.fullmatch(r"\d{8,12}", text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _duration(text: str) -> float | None:
    """`1-02:03:04`, `02:03:04` or `03:04` in seconds; None for no limit."""
    match = _DAYS.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return 86_400.0 * days + 3600 * hours + 60 * minutes + seconds
