"""A real slurmctld with the nodes of a site on this host, in accelerated time: site + jobs -> what Slurm did.

`run_site(directory, site, log, factor)` writes a configuration, then starts this file as a program under faketime. The
program starts munged, slurmdbd, slurmctld and a slurmd for each node, submits every job at its time, waits until
all have ended and prints the records of `scontrol show job`. All of its processes share one clock, which runs `factor`
times as fast as the host's. Users of the site need no entry in /etc/passwd: libnss_wrapper provides them.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = (
    "faketime", "munged", "mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "slurmctld", "slurmd", "sbatch",
    "scontrol", "sacctmgr",
)  # fmt: skip
WRAPPER = Path("/usr/lib/x86_64-linux-gnu/libnss_wrapper.so")
FIRST_UID = 20_000
_NODES_AT_ONCE = 20
#: Settings of a site that name its machines, paths or users; the harness sets its own.
REPLACED = {
    "controlmachine", "controladdr", "slurmctldhost", "frontendname", "authtype", "authinfo", "credtype", "cryptotype",
    "slurmuser", "slurmduser", "statesavelocation", "slurmdspooldir", "slurmctldlogfile", "slurmdlogfile",
    "slurmctldport", "slurmdport", "slurmschedlogfile", "slurmctldpidfile", "slurmdpidfile", "jobcomptype",
    "jobcomploc", "accountingstoragetype", "accountingstoragehost", "accountingstorageport", "accountingstoragepass",
    "accountingstoreflags", "proctracktype", "taskplugin", "jobacctgathertype", "jobacctgatherfrequency",
    "jobacctgatherparams", "slurmctlddebug", "slurmddebug", "debugflags", "slurmschedloglevel", "minjobage",
    "slurmdparameters", "returntoservice", "usepam", "mailprog", "prolog", "epilog", "mpidefault",
    "propagateresourcelimits", "slurmctldtimeout", "slurmdtimeout", "messagetimeout", "acctgatherenergytype",
    "acctgathernodefreq", "rebootprogram", "resumetimeout", "waittime", "vsizefactor",
}  # fmt: skip


def reason_to_skip() -> str:
    """Why no site can be started here, or an empty string."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"no real Slurm: {', '.join(missing)} not installed (deploy/install-test-servers installs them)"
    if not WRAPPER.exists():
        return "no real Slurm: libnss_wrapper is not installed (deploy/install-test-servers installs it)"
    return "no real Slurm: slurmd needs root" if os.getuid() else ""


@dataclass(frozen=True, slots=True)
class RealJob:
    """What Slurm did with a job; times count seconds from the first moment of the run."""

    name: str
    state: str
    submit_s: float
    eligible_s: float
    start_s: float
    end_s: float
    nodes: str
    restarts: int


@dataclass(frozen=True, slots=True)
class Submission:
    """One call of sbatch."""

    name: str
    submit_s: float
    run_s: float
    user: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """`extra` is a shell script that runs once the nodes are up.

    The run ends when all jobs have ended or, with `horizon_s`, at that second or at the last start before it. A job
    that has not started by then has no start (NaN). While jobs are submitted, the commands `watch` run every
    `watch_every_s` seconds; `read_looks` returns what they printed.
    """

    factor: float = 20.0
    extra: str = ""
    horizon_s: float = math.inf
    give_up_s: float = math.inf  # a run in which jobs have not ended by then has failed
    topology: str = ""
    watch: tuple[tuple[str, ...], ...] = ()
    watch_every_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Look:
    """What the watching commands printed, in seconds from the first moment of the run."""

    at_s: float
    outputs: tuple[str, ...]


def read_looks(directory: Path) -> tuple[list[Look], dict[int, str]]:
    """The looks of a run, and the name of each job by its Slurm id."""
    lines = (directory / "looks.jsonl").read_text().splitlines()
    names = json.loads((directory / "names.json").read_text())
    looks = [json.loads(line) for line in lines]
    return [Look(at_s, tuple(outputs)) for at_s, outputs in looks], {int(key): name for key, name in names.items()}


def run_site(
    directory: Path, conf: str, accounts: str, submissions: list[Submission], settings: RunSettings = RunSettings()
) -> list[RealJob]:
    """Run the jobs on a real Slurm."""
    directory.mkdir(parents=True, exist_ok=True)
    _open_to_daemons(directory)
    for name in ("m", "db", "log", "ctld", "spool", "jobs"):
        (directory / name).mkdir(exist_ok=True)
    (directory / "jobs").chmod(0o777)
    _write_configuration(directory, conf)
    (directory / "accounts.script").write_text(accounts)
    users = sorted({job.user for job in submissions} | set(re.findall(r"add user Name=(\w+)", accounts)))
    _write_users(directory, users)
    job = directory / "job.sh"
    job.write_text('#!/bin/sh\nexec sleep "$1"\n')
    job.chmod(0o755)
    (directory / "extra.sh").write_text(settings.extra)
    (directory / "factor").write_text(f"{settings.factor}")
    (directory / "horizon").write_text(f"{settings.horizon_s} {settings.give_up_s}")
    (directory / "watch.json").write_text(json.dumps([settings.watch, settings.watch_every_s]))
    if settings.topology:
        (directory / "topology.conf").write_text(settings.topology)
    plan = [[s.name, s.submit_s, s.run_s, s.user, list(s.options)] for s in submissions]
    (directory / "plan.json").write_text(json.dumps(plan))
    environment = os.environ | {"SLURM_CONF": str(directory / "slurm.conf"), "PATH": _path(), "TZ": "UTC"}
    for name in ("SLURM_JOB_ID", "LD_PRELOAD"):
        environment.pop(name, None)
    with ExitStack() as running:
        _start_database(directory, running)
        wrapped = environment | {
            "LD_PRELOAD": str(WRAPPER),
            "NSS_WRAPPER_PASSWD": str(directory / "passwd"),
            "NSS_WRAPPER_GROUP": str(directory / "group"),
        }
        command = ["faketime", "-f", f"+0 x{settings.factor:g}", sys.executable, __file__, str(directory)]
        with (directory / "log" / "run.out").open("w") as log:
            code = subprocess.run(command, env=wrapped, stdout=log, stderr=log).returncode
    if code:
        raise RuntimeError(f"the run failed\n{(directory / 'log' / 'run.out').read_text()[-3000:]}")
    return [RealJob(*row) for row in json.loads((directory / "result.json").read_text())]


# --- before the clock is accelerated


def _write_configuration(directory: Path, conf: str) -> None:
    host = socket.gethostname().partition(".")[0]
    nodes = sum(_node_count(line) for line in conf.splitlines() if _is_node(line))
    ports = _free_ports(2)
    first = _free_range(nodes)
    kept, gpus, at = [], [], first
    for line in re.sub(r"\\\n", " ", conf).splitlines():
        line = re.sub(r"(?<!\\)#.*", "", line).strip()
        key = line.partition("=")[0].strip().lower()
        if not line or key in REPLACED:
            continue
        if _is_node(line):
            count = _node_count(line)
            line += f" NodeAddr=127.0.0.1 NodeHostname={host} Port=[{at}-{at + count - 1}]"
            at += count
            if match := re.search(r"gres=gpu(:[\w-]+)?:(\d+)", line, re.IGNORECASE):
                gpus.append((re.search(r"nodename=(\S+)", line, re.IGNORECASE)[1], (match[1] or "")[1:], int(match[2])))
        kept.append(line)
    own = f"""
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
CredType=cred/munge
SlurmUser=root
StateSaveLocation={directory}/ctld
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/spool/%n.pid
SlurmctldLogFile={directory}/log/slurmctld.log
SlurmdLogFile={directory}/log/slurmd.%n.log
SlurmctldDebug=verbose
DebugFlags=Backfill
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
MinJobAge=4000000
SlurmctldTimeout=3000
SlurmdTimeout=60000
MessageTimeout=600
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[1]}
AccountingStoragePass={directory}/munge.sock
"""
    (directory / "slurm.conf").write_text("\n".join(kept) + own)
    for index in range(16):
        (directory / f"gpu{index}").touch()
    lines = ["AutoDetect=off"]
    for name, kind, count in gpus:
        lines.append(f"NodeName={name} Name=gpu {f'Type={kind} ' if kind else ''}File={directory}/gpu[0-{count - 1}]")
    (directory / "gres.conf").write_text("\n".join(lines) + "\n")
    dbd = directory / "slurmdbd.conf"
    dbd.write_text(
        f"AuthType=auth/munge\nAuthInfo=socket={directory}/munge.sock\nDbdHost=localhost\nDbdAddr=127.0.0.1\n"
        f"DbdPort={ports[1]}\nSlurmUser=root\nLogFile={directory}/log/slurmdbd.log\nPidFile={directory}/slurmdbd.pid\n"
        f"StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort={_free_ports(1)[0]}\n"
        "StorageUser=slurm\nStoragePass=x\nStorageLoc=slurm_acct\n"
    )
    dbd.chmod(0o600)


def _is_node(line: str) -> bool:
    return line.lower().startswith("nodename=") and not line.lower().startswith("nodename=default")


def _node_count(line: str) -> int:
    from clustertwin.workload.slurm.site.quantities import expand_hosts

    return len(expand_hosts(re.split(r"\s", line.partition("=")[2], maxsplit=1)[0]))


def _write_users(directory: Path, users: list[str]) -> None:
    passwd = Path("/etc/passwd").read_text()
    group = Path("/etc/group").read_text()
    for index, user in enumerate(users):
        if user and user != "root":
            uid = FIRST_UID + index
            passwd += f"{user}:x:{uid}:{uid}::/tmp:/bin/sh\n"
            group += f"{user}:x:{uid}:\n"
    (directory / "passwd").write_text(passwd)
    (directory / "group").write_text(group)


def _checked(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stdout + done.stderr)[-1000:]}")


def _start_database(directory: Path, running: ExitStack) -> None:
    db = directory / "db"
    shutil.chown(db, "mysql")
    install = ("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={db}/data", "--skip-test-db")
    _checked([*install, "--auth-root-authentication-method=normal"])
    port = re.search(r"StoragePort=(\d+)", (directory / "slurmdbd.conf").read_text())[1]
    log = running.enter_context((directory / "log" / "mariadbd.out").open("wb"))
    command = [
        "mariadbd", "--no-defaults", "--user=mysql", f"--datadir={db}/data", f"--socket={db}/my.sock",
        "--bind-address=127.0.0.1", f"--port={port}", "--innodb-buffer-pool-size=64M", "--skip-log-bin",
        "--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    running.callback(_stop, process)
    ask = ["mariadb", "--no-defaults", f"--socket={db}/my.sock", "-u", "root", "-e"]
    _wait("mariadbd", lambda: subprocess.run([*ask, "select 1"], capture_output=True).returncode == 0, 60)
    grant = "create user slurm@'%' identified by 'x'; create user slurm@localhost identified by 'x'; "
    grant += "grant all on slurm_acct.* to slurm@'%'; grant all on slurm_acct.* to slurm@localhost;"
    _checked([*ask, grant])


# --- in accelerated time


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

    def __call__(self, name: str, *command: str) -> None:
        log = self.running.enter_context((self.directory / "log" / f"{name}.out").open("wb"))
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.running.callback(_stop, process)


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
    _wait("munged", (directory / "munge.sock").exists, 600)
    start("slurmdbd", "slurmdbd", "-D")
    _wait("slurmdbd", lambda: _says("sacctmgr", "-n", "show", "cluster") is not None, 400)
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
    # A slurmd whose first registration is refused by a busy slurmctld tries again only after minutes.
    limit_s = 120.0 * float((directory / "factor").read_text())
    for first in range(0, len(nodes), _NODES_AT_ONCE):
        begun = nodes[first : first + _NODES_AT_ONCE]
        for node in begun:
            (directory / "spool" / node).mkdir(exist_ok=True)
            start(f"slurmd-{node}", "slurmd", "-D", "-N", node)
        try:
            _wait("the nodes", lambda begun=begun: set(begun) <= _idle_nodes(), limit_s)
        except RuntimeError:
            sys.stderr.write(_says("sinfo", "-o", "%D %t %E %N") or "")
            raise


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


def _wait(what: str, ready: object, limit_s: float) -> None:
    end_s = time.monotonic() + limit_s
    while not ready():  # type: ignore[operator]
        if time.monotonic() > end_s:
            raise RuntimeError(f"{what} did not start")
        time.sleep(0.2)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _open_to_daemons(directory: Path) -> None:
    for path in (directory, *directory.parents):
        if path.stat().st_uid == os.getuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _free_range(count: int) -> int:
    """The first of `count` neighbouring ports below those that the system hands out.

    The search begins at a place of this process, because another may look for ports at the same moment.
    """
    places = range(20_000, 32_000 - count, max(count, 50))
    begin = os.getpid() * 37 % len(places)
    for first in (*places[begin:], *places[:begin]):
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError(f"no {count} free ports in a row")


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
