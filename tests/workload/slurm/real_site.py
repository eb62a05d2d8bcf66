"""A real slurmctld with the nodes of a site on this host, in accelerated time: site + jobs -> what Slurm did.

`run_site(directory, conf, accounts, submissions, settings)` writes a configuration and starts a database, then starts
`accelerated_site.py` under faketime. Users of the site need no entry in /etc/passwd: libnss_wrapper provides them.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers import free_port
from tests.workload.slurm import accelerated_site
from tests.workload.slurm.accelerated_site import stop_process, wait_until

PROGRAMS = (
    "faketime", "munged", "mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "slurmctld", "slurmd", "sbatch",
    "scontrol", "sacctmgr",
)  # fmt: skip
WRAPPER = Path("/usr/lib/x86_64-linux-gnu/libnss_wrapper.so")
FIRST_UID = 20_000
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
    for name in ("m", "log", "ctld", "spool", "jobs"):
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
    _remove_dead_clocks()
    with ExitStack() as running:
        running.callback(_remove_dead_clocks)
        _start_database(directory, running)
        wrapped = environment | {
            "LD_PRELOAD": str(WRAPPER),
            "NSS_WRAPPER_PASSWD": str(directory / "passwd"),
            "NSS_WRAPPER_GROUP": str(directory / "group"),
        }
        command = [
            "faketime",
            "-f",
            f"+0 x{settings.factor:g}",
            sys.executable,
            accelerated_site.__file__,
            str(directory),
        ]
        with (directory / "log" / "run.out").open("w") as log:
            code = subprocess.run(command, env=wrapped, stdout=log, stderr=log).returncode
    if code:
        raise RuntimeError(f"the run failed\n{(directory / 'log' / 'run.out').read_text()[-3000:]}")
    return [RealJob(*row) for row in json.loads((directory / "result.json").read_text())]


def _remove_dead_clocks() -> None:
    """Remove the clocks in shared memory that killed processes left behind.

    libfaketime names a clock by the number of its process. A process whose number was another's fails at its start if
    that one's clock is still there: a job then ends in its first second.
    """
    for path in Path("/dev/shm").glob("*faketime_s[eh]m_*"):
        if not Path("/proc", path.name.rpartition("_")[2]).exists():
            path.unlink(missing_ok=True)


def _write_configuration(directory: Path, conf: str) -> None:
    host = socket.gethostname().partition(".")[0]
    nodes = sum(_node_count(line) for line in conf.splitlines() if _is_node(line))
    ports = [free_port() for _ in range(2)]
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
        f"StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort={free_port()}\n"
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
    # The user mysql may not write to TMPDIR, and each start of pytest closes its own directory to others.
    db = running.enter_context(TemporaryDirectory(prefix="mariadb-", dir="/tmp"))
    shutil.chown(db, "mysql")
    of_mysql = ("--no-defaults", "--user=mysql", f"--datadir={db}/data", f"--tmpdir={db}")
    _checked(["mariadb-install-db", *of_mysql, "--skip-test-db", "--auth-root-authentication-method=normal"])
    port = re.search(r"StoragePort=(\d+)", (directory / "slurmdbd.conf").read_text())[1]
    log = running.enter_context((directory / "log" / "mariadbd.out").open("wb"))
    command = [
        "mariadbd", *of_mysql, f"--socket={db}/my.sock",
        "--bind-address=127.0.0.1", f"--port={port}", "--innodb-buffer-pool-size=64M", "--skip-log-bin",
        "--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    running.callback(stop_process, process)
    ask = ["mariadb", "--no-defaults", f"--socket={db}/my.sock", "-u", "root", "-e"]
    wait_until("mariadbd", lambda: subprocess.run([*ask, "select 1"], capture_output=True).returncode == 0, 60)
    grant = "create user slurm@'%' identified by 'x'; create user slurm@localhost identified by 'x'; "
    grant += "grant all on slurm_acct.* to slurm@'%'; grant all on slurm_acct.* to slurm@localhost;"
    _checked([*ask, grant])


def _open_to_daemons(directory: Path) -> None:
    for path in (directory, *directory.parents):
        if path.stat().st_uid == os.getuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)


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
