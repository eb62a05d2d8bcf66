"""Slurm through slurmrestd: a command line of the twin -> a request, and its answer as the command would print it.

It does for `read_facts`, the queue, the accounting, `hold` and `cancel` what `run_command` does. Slurm's REST interface
has no requeue, suspend, drain and reservation in v0.0.38, so these are refused with a sentence. The token is read from
its file for each request, because tokens expire, and is never part of an error.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.core.foreign_files import parse_json, read_secret
from clustertwin.service.act.bounded_answer import PLAIN, body_of
from clustertwin.service.act.slurm_commands import FACTS, TIMEOUT_S, check_job, mark_of
from clustertwin.telemetry.diagnosis.evidence import clean
from clustertwin.telemetry.exporter.http.loopback import is_loopback
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.socket_deadline import SocketDeadline
from clustertwin.workload.slurm.site.quantities import expand_hosts

MAX_BYTES = 64 << 20  # the queue of a large site
MOST_VALUES = 8_000_000  # in them; 10,000 jobs have half as many
NOTHING = "Nothing found with query"  # the accounting's error if no job fits
_VERSION = re.compile(r"v0\.0\.\d{2}")


@dataclass(frozen=True, slots=True)
class RestSettings:
    """The address of slurmrestd, and the user and token that it is asked with."""

    url: str  # http://HOST:PORT, https://HOST:PORT or unix:/PATH
    user: str = ""
    token_file: str = ""  # empty: slurmrestd knows the caller, as over a Unix socket
    version: str = "v0.0.38"


class SlurmRest:
    """A `RunCommand` that asks slurmrestd."""

    def __init__(self, settings: RestSettings) -> None:
        if not settings.url.startswith(("http://", "https://", "unix:")):
            raise SettingsError(f"hand.rest: {settings.url!r} must begin with https://, http:// or unix:")
        if not _VERSION.fullmatch(settings.version):
            raise SettingsError(f"hand.rest_version: {settings.version!r} is not a version such as v0.0.38")
        if not settings.url.startswith("unix:"):
            host = Endpoint(settings.url).host
            if settings.token_file and settings.url.startswith("http://") and not is_loopback(host):
                raise SettingsError(f"hand.rest: the token would cross the network unencrypted to {host}; use https://")
        self._settings = settings

    def __call__(self, arguments: Sequence[str]) -> str:
        command, rest = arguments[0], list(arguments[1:])
        if command == "scontrol" and rest[:2] == ["show", "hostnames"]:
            return "\n".join(_hosts(rest[2]))
        answer = self._ask(*self._request(arguments))
        try:
            return printed(command, rest, answer)
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError, OSError):
            raise SourceError(f"Slurm's answer about {_subject(command, rest)} cannot be read") from None

    def describe(self, arguments: Sequence[str]) -> str:
        """The request, for a dry run."""
        method, path, body = self._request(arguments)
        return f"{method} {path}{f' {body}' if body else ''}"

    def _request(self, arguments: Sequence[str]) -> tuple[str, str, dict[str, Any]]:
        """Method, path and body."""
        command, rest = arguments[0], list(arguments[1:])
        slurm, accounting = f"/slurm/{self._settings.version}", f"/slurmdb/{self._settings.version}"
        if mark_of(rest):
            return "GET", f"{slurm}/job/{check_job(_asked(rest))}", {}
        if command == "scontrol" and rest[0] == "hold":
            return "POST", f"{slurm}/job/{check_job(rest[1])}", {"hold": True}
        if command == "scancel":
            signal = next((word.partition("=")[2] for word in rest if word.startswith("--signal=")), "")
            return "DELETE", f"{slurm}/job/{check_job(rest[-1])}{f'?signal={signal}' if signal else ''}", {}
        if command == "squeue":
            return "GET", f"{slurm}/jobs/", {}
        if command == "sinfo":
            return "GET", f"{slurm}/{'nodes' if '%C' in rest[-1] else 'partitions'}/", {}
        if command == "sacct" and _asked(rest):
            return "GET", f"{accounting}/job/{check_job(_asked(rest))}", {}
        if command == "sacct":
            return "GET", f"{accounting}/jobs/?start_time=uts{int(time.time()) - 7 * 86_400}", {}
        words = [word for word in rest if not word.startswith("-")]
        name = " ".join(words[: 1 if words[0] in ("requeue", "suspend") else 2])
        raise SourceError(f"Slurm's REST interface has no {name}; this action needs Slurm's commands")

    def _ask(self, method: str, path: str, body: dict[str, Any]) -> Mapping[str, Any]:
        import httpx

        url, transport = self._settings.url.rstrip("/"), None
        if url.startswith("unix:"):
            url, transport = "http://slurmrestd", httpx.HTTPTransport(uds=url.removeprefix("unix:"))
        deadline = SocketDeadline()
        try:
            with (
                deadline.within(TIMEOUT_S),
                httpx.Client(
                    timeout=TIMEOUT_S, transport=transport, headers=self._headers(), trust_env=False
                ) as client,
                client.stream(
                    method, f"{url}{path}", json=body or None, headers=PLAIN, extensions=deadline.extensions
                ) as answer,
            ):
                data = body_of(answer, MAX_BYTES, time.monotonic() + TIMEOUT_S)
        except (httpx.HTTPError, OSError) as error:
            reason = "the answer took too long" if deadline.has_passed else type(error).__name__
            raise SourceError(f"Slurm does not answer: slurmrestd, {reason}") from None
        except SourceError as error:
            raise SourceError(f"Slurm's answer cannot be used: slurmrestd, {error}") from None
        return read_answer(answer.status_code, data)

    def _headers(self) -> dict[str, str]:
        headers = {"X-SLURM-USER-NAME": self._settings.user} if self._settings.user else {}
        if not self._settings.token_file:
            return headers
        path = self._settings.token_file
        token = read_secret(path, private=True).removeprefix("SLURM_JWT=")
        if not re.fullmatch(r"[A-Za-z0-9._=-]{8,4096}", token):
            raise SettingsError(f"{path}: this is not a token of `scontrol token`")
        return {**headers, "X-SLURM-USER-TOKEN": token}


def read_answer(status: int, data: bytes) -> Mapping[str, Any]:
    """The document of an answer. Slurm reports errors inside it, also with status 200."""
    try:
        answer = parse_json(data, MOST_VALUES)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        if status == 401:
            raise SourceError("slurmrestd refused the token: it is wrong or has expired")
        raise SourceError(f"slurmrestd answered {status} with something that is not a document")
    listed = answer.get("errors") or []
    if not isinstance(listed, list):
        raise SourceError("slurmrestd answered with errors that are not a list")
    errors = [error for error in listed if isinstance(error, dict)]
    if errors and errors[0].get("error") == NOTHING:
        return {"jobs": []}
    if errors or status >= 400:
        words = [str(errors[0].get(key) or "") for key in ("error", "description")] if errors else [f"status {status}"]
        raise SourceError(f"slurmrestd failed: {clean(' '.join(': '.join(filter(None, words)).split()), 200)}")
    return answer


def printed(command: str, rest: Sequence[str], answer: Mapping[str, Any]) -> str:
    """What the command would print."""
    if mark := mark_of(rest):
        return "".join(f"{job_line(job, mark)}\n" for job in answer["jobs"])
    if command == "squeue":
        jobs = [job for job in answer["jobs"] if _state(job) in ("RUNNING", "PENDING")]
        jobs.sort(key=lambda job: (-_count(job.get("priority")), int(job["job_id"])))
        return "".join(f"{queue_line(job, time.time())}\n" for job in jobs)
    if command == "sinfo":
        if "%N|%C" in rest[-1]:
            return "".join(f"{_word(node['name'])}|{cpu_line([node])}" for node in answer["nodes"])
        if "%C" in rest[-1]:
            return cpu_line(answer["nodes"])
        return "\n".join(_word(partition["name"]) for partition in answer["partitions"])
    if command == "sacct":
        keys = next(word for word in rest if word.startswith("--format=")).partition("=")[2].split(",")
        return "".join(f"{account_line(job, keys)}\n" for job in answer["jobs"])
    return ""


def job_line(job: Mapping[str, Any], mark: str) -> str:
    """A job as squeue prints `FACTS`, each with the mark after it."""
    limit = _number(job.get("time_limit"))
    array, task = _count(job.get("array_job_id")), _number(job.get("array_task_id"))
    het = _count(job.get("het_job_id"))
    fields = {
        "JobID": int(job["job_id"]),
        "ArrayJobID": array or "N/A",
        "ArrayTaskID": int(task) if array and task is not None else "N/A",
        "HetJobID": het or "N/A",
        "HetJobOffset": _count(job.get("het_job_offset")) if het else "N/A",
        "UserID": int(job["user_id"]),
        "UserName": _word(job.get("user_name")),
        "Account": _word(job.get("account")),
        "Partition": _word(job.get("partition")),
        "State": _state(job),
        "StartTime": _count(job.get("start_time")),
        "NodeList": _word(job.get("nodes")),
        "TimeLimit": "UNLIMITED" if limit is None else _clock(60 * limit),
        "PriorityLong": _count(job.get("priority")),
        "RestartCnt": _count(job.get("restart_cnt")),
    }
    return "".join(f"{fields[name]}{mark}" for name in FACTS)


def queue_line(job: Mapping[str, Any], now_s: float) -> str:
    """A job as `squeue` prints it with the format of the simulator."""
    state, limit = _state(job), _number(job.get("time_limit"))
    elapsed_s = max(now_s - (_number(job.get("start_time")) or now_s), 0) if state == "RUNNING" else 0
    task = _number(job.get("array_task_id"))
    name = f"{_count(job.get('array_job_id'))}_{int(task)}" if task is not None and job.get("array_job_id") else ""
    fields = (
        name or int(job["job_id"]), _word(job.get("user_name")), state, _count(job.get("cpus")),
        _count(job.get("node_count")), "UNLIMITED" if limit is None else _clock(60 * limit), _clock(elapsed_s),
        _word(job.get("state_reason")) or "None",
    )  # fmt: skip
    return "|".join(map(str, fields))


def cpu_line(nodes: Sequence[Mapping[str, Any]]) -> str:
    """The CPUs of all nodes as `sinfo --format=%C` prints them: allocated/idle/other/total."""
    total, used = sum(_count(node.get("cpus")) for node in nodes), sum(_count(node.get("alloc_cpus")) for node in nodes)
    idle = sum(_count(node.get("idle_cpus")) for node in nodes)
    return f"{used}/{idle}/{total - used - idle}/{total}\n"


def account_line(job: Mapping[str, Any], keys: Sequence[str]) -> str:
    """A job of the accounting as `sacct --parsable2` prints these keys."""
    times, state = job.get("time") or {}, (job.get("state") or {}).get("current", "")
    fields = {
        "State": state[0] if isinstance(state, list) else state,
        "Start": _count(times.get("start")) or "Unknown",
        "End": _count(times.get("end")) or "Unknown",
        "NNodes": _count(job.get("allocation_nodes")),
        "ElapsedRaw": _count(times.get("elapsed")),
        "TimelimitRaw": _count(times.get("limit")),
    }
    return "|".join(str(fields[key]) for key in keys)


def _asked(rest: Sequence[str]) -> str:
    """The job that squeue or sacct is asked about; empty for all jobs."""
    return rest[-1].removeprefix("--jobs=") if rest[-1].startswith("--jobs=") else ""


def _subject(command: str, rest: Sequence[str]) -> str:
    job = rest[-1] if command in ("scontrol", "scancel") else _asked(rest)
    return f"job {job}" if job else f"what {command} asks"


def _number(value: Any) -> float | None:
    """A number, also in the later form {"set": true, "infinite": false, "number": 5}; None: not set or no limit."""
    if isinstance(value, Mapping):
        return float(value.get("number", 0)) if value.get("set") and not value.get("infinite") else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _count(value: Any) -> int:
    return int(_number(value) or 0)


def _word(value: Any) -> str:
    """One word: what Slurm sends must not look like another field."""
    return "".join(letter for letter in str(value or "") if letter.isprintable() and letter not in " |=")


def _state(job: Mapping[str, Any]) -> str:
    state = job.get("job_state")
    return _word(state[0] if isinstance(state, list) and state else state)


def _clock(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86_400)
    return f"{days}-{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def _hosts(text: str) -> list[str]:
    try:
        return expand_hosts(text)
    except ValueError as error:
        raise SourceError(f"Slurm's list of nodes cannot be read: {error}") from error
