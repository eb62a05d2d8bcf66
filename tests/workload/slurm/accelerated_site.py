"""A program that runs under faketime: a directory of `run_site` -> result.json, jobs.sacct, looks.jsonl in it.

It starts munged, slurmdbd, slurmctld and a slurmd for each node, submits every job at its time and waits until all have
ended. All of its processes share one clock, which runs faster than the host's. It imports nothing of this project.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

_NODES_AT_ONCE = 20
_REGISTRATION_S = 30.0  # of the host
_TRIES = 5


def main(directory: Path) -> None:
    """Start the daemons, submit the jobs, wait for their ends, write result.json."""
    with ExitStack() as running:
        start = _Daemons(directory, running)
        _start_slurm(start)
        subprocess.run(["sh", "-e", str(directory / "extra.sh")], check=True)
        began_s = math.floor(time.time()) + 5
        names = _submit_all(directory, began_s)
        (directory / "names.json").write_text(json.dumps(names))
        _wait_for_jobs(began_s, *map(float, (directory / "horizon").read_text().split()))
        records = _records()
        rows = [_row(record, names[_own_id(record)], began_s) for record in records if _own_id(record) in names]
        (directory / "result.json").write_text(json.dumps(rows))
        (directory / "jobs.sacct").write_text(_accounting(len(rows)))


@dataclass(frozen=True, slots=True)
class _Daemons:
    directory: Path
    running: ExitStack

    def __call__(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        log = self.running.enter_context((self.directory / "log" / f"{name}.out").open("wb"))
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.running.callback(stop_process, process)
        return process


def _start_slurm(start: _Daemons) -> None:
    directory = start.directory
    key = directory / "m" / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    start(
        "munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={directory}/munge.sock",
        f"--pid-file={directory}/m/munged.pid", f"--seed-file={directory}/m/seed",
        f"--log-file={directory}/m/munged.log",
    )  # fmt: skip
    wait_until("munged", (directory / "munge.sock").exists, 600)
    start("slurmdbd", "slurmdbd", "-D")
    wait_until("slurmdbd", lambda: _says("sacctmgr", "-n", "show", "cluster") is not None, 400)
    cluster = re.search(r"^ClusterName=(\S+)", (directory / "slurm.conf").read_text(), re.MULTILINE | re.IGNORECASE)[1]
    commands = [f"add cluster Name={cluster}", *_grouped((directory / "accounts.script").read_text().splitlines())]
    for command in commands:
        words = shlex.split(command, comments=True)
        if words and words[0] not in ("list", "show"):
            done = subprocess.run(["sacctmgr", "-i", *words], capture_output=True, text=True)
            if done.returncode:
                sys.stderr.write(f"sacctmgr {command}: {done.stdout.strip()} {done.stderr.strip()}\n")
    start("slurmctld", "slurmctld", "-D", "-i")
    nodes = (_says("scontrol", "show", "hostnames", _node_names(directory)) or "").split()
    for first in range(0, len(nodes), _NODES_AT_ONCE):
        _start_nodes(start, nodes[first : first + _NODES_AT_ONCE])
    start.running.callback(_end_jobs)


def _end_jobs() -> None:
    """End all jobs: a running one outlives its slurmd."""
    for state in ("PENDING", "RUNNING"):
        _says("scancel", f"--state={state}")
    for _ in range(20):
        if not _says("squeue", "-h", "-t", "RUNNING,COMPLETING"):
            return
        time.sleep(20)


def _start_nodes(start: _Daemons, nodes: list[str]) -> None:
    """Start a slurmd for each node; start one again that died or waits minutes for its next registration."""
    limit_s = _REGISTRATION_S * float((start.directory / "factor").read_text())
    slurmds: dict[str, subprocess.Popen[bytes]] = {}
    for _ in range(_TRIES):
        for node in set(nodes) - _idle_nodes():
            if node in slurmds:
                stop_process(slurmds[node])
            (start.directory / "spool" / node).mkdir(exist_ok=True)
            slurmds[node] = start(f"slurmd-{node}", "slurmd", "-D", "-N", node)
        try:
            wait_until("the nodes", lambda: set(nodes) <= _idle_nodes(), limit_s)
            return
        except RuntimeError:
            sys.stderr.write(_says("sinfo", "-o", "%D %t %E %N") or "")
    raise RuntimeError(f"the nodes did not start: {', '.join(sorted(set(nodes) - _idle_nodes()))}")


def _idle_nodes() -> set[str]:
    return set((_says("sinfo", "-h", "-N", "-t", "idle", "-o", "%N") or "").split())


def _grouped(commands: list[str]) -> list[str]:
    """Changes that many users or accounts share, as one command each: every call of sacctmgr takes a while."""
    changed: dict[tuple[str, str], list[str]] = {}
    others = []
    for command in commands:
        match = re.fullmatch(r"modify (user|account) name=(\S+) set (.*)", command.strip(), re.IGNORECASE)
        if match:
            changed.setdefault((match[1], match[3]), []).append(match[2])
        else:
            others.append(command)
    return others + [f"modify {noun} name={','.join(names)} set {what}" for (noun, what), names in changed.items()]


def _node_names(directory: Path) -> str:
    names = re.findall(r"^NodeName=(\S+)", (directory / "slurm.conf").read_text(), re.MULTILINE | re.IGNORECASE)
    return ",".join(name for name in names if name.upper() != "DEFAULT")


def _submit_all(directory: Path, began_s: float) -> dict[int, str]:
    names: dict[int, str] = {}
    ids: dict[str, int] = {}
    watch = _Watch(directory, began_s)
    for name, submit_s, run_s, user, options in json.loads((directory / "plan.json").read_text()):
        while (delay_s := began_s + submit_s - time.time()) > 0:
            time.sleep(min(delay_s, watch.wait_s()))
            watch.look_if_due()
        options = [re.sub(r"@([\w.]+)@", lambda match: str(ids[match[1]]), option) for option in options]
        command = ["sbatch", "--parsable", f"--uid={user}", f"--gid={user}", "-J", name, "-o", "/dev/null",
                   "-D", "/tmp", *options, str(directory / "job.sh"), f"{run_s:.3f}"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.stderr.write(f"{name}: {done.stderr.strip()}\n")
            continue
        ids[name] = int(done.stdout.split(";")[0])
        names[ids[name]] = name
    # Tasks of an array have ids of their own once they start; all are known by the array's id.
    return names


class _Watch:
    """Writes what the watching commands print."""

    def __init__(self, directory: Path, began_s: float) -> None:
        self.commands, self.every_s = json.loads((directory / "watch.json").read_text())
        self.path, self.began_s, self.due_s = directory / "looks.jsonl", began_s, began_s
        self.path.write_text("")

    def wait_s(self) -> float:
        return max(self.due_s - time.time(), 0.0) if self.commands else math.inf

    def look_if_due(self) -> None:
        if not self.commands or time.time() < self.due_s:
            return
        at_s = time.time() - self.began_s
        with self.path.open("a") as file:
            file.write(json.dumps([at_s, [_says(*command) or "" for command in self.commands]]) + "\n")
        self.due_s = time.time() + self.every_s


def _wait_for_jobs(began_s: float, horizon_s: float, give_up_s: float) -> None:
    states = "PENDING,REQUEUED" if math.isfinite(horizon_s) else "PENDING,RUNNING,SUSPENDED,COMPLETING,REQUEUED"
    while time.time() < began_s + horizon_s and (_says("squeue", "-h", "-t", states, "-o", "%i %r") or "").strip():
        if time.time() > began_s + give_up_s:
            raise RuntimeError(f"jobs have not ended: {_says('squeue', '-h')}")
        time.sleep(20)


def _records() -> list[dict[str, str]]:
    text = _says("scontrol", "-o", "-a", "show", "jobs") or ""
    return [dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines() if line.startswith("JobId=")]


SACCT = "JobIDRaw,JobID,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,ReqNodes,"
SACCT += "ReqCPUS,ReqMem,ReqTRES,Constraints,Reservation,SubmitLine"


def _accounting(expected: int) -> str:
    """What sacct says of the jobs, once slurmdbd knows them all."""
    text = ""
    for _ in range(20):
        text = _says("sacct", "-a", "-X", "-P", "-S", "now-30days", f"--format={SACCT}") or ""
        if text.count("\n") > expected and "Unknown" not in text:
            break
        time.sleep(5)
    return text


def _own_id(record: dict[str, str]) -> int:
    """The id that sbatch printed: an array's tasks have others."""
    return int(record.get("ArrayJobId", record["JobId"]))


def _row(record: dict[str, str], name: str, began_s: float) -> list[object]:
    def seconds(key: str) -> float:
        text = record.get(key, "Unknown")
        if not text[:1].isdigit():
            return math.nan
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")) - began_s

    task = f"_{record['ArrayTaskId']}" if record.get("ArrayTaskId", "").isdigit() else ""
    start_s = math.nan if record["JobState"] == "PENDING" else seconds("StartTime")  # of a pending job: an estimate
    return [
        name + task, record["JobState"], seconds("SubmitTime"), seconds("EligibleTime"), start_s,
        seconds("EndTime"), record.get("NodeList", ""), int(record.get("Restarts", 0)),
    ]  # fmt: skip


def _says(*command: str) -> str | None:
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def wait_until(what: str, ready: object, limit_s: float) -> None:
    end_s = time.monotonic() + limit_s
    while not ready():  # type: ignore[operator]
        if time.monotonic() > end_s:
            raise RuntimeError(f"{what} did not start")
        time.sleep(0.2)


def stop_process(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
