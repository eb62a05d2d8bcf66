"""A real Slurm of several nodes on this host, without systemd: munge, MariaDB, slurmdbd, slurmctld, slurmd a node.

`slurm_cluster(directory)` starts it on free loopback ports and ends all of it; tests take the `slurm` fixture
(import it in a conftest.py), or call the function for another shape. It needs root, because slurmd does.
Every node is this same host: CPU i of node k stands for a CPU of the host, and `node_cpus` says which.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.servers import free_port

DAEMONS = ("munged", "mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "slurmctld", "slurmd", "sbatch", "sacct")
LONGEST_DIRECTORY = 70  # characters: Slurm adds the names of its sockets, and Linux allows 107
SPOKEN_S = 120.0  # every daemon answers within this time, or the start has failed


@dataclass(frozen=True, slots=True)
class Slurm:
    """A running cluster: commands find it through `env`."""

    directory: Path
    node_cpus: dict[str, tuple[int, ...]]  # node -> the host's CPUs that it stands for
    env: dict[str, str]

    def run(self, *command: str) -> str:
        """A Slurm command's standard output."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=SPOKEN_S)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout


def reason_to_skip() -> str:
    """Why no Slurm can be started here, or nothing."""
    missing = [name for name in DAEMONS if shutil.which(name, path=_path()) is None]
    if missing:
        return (
            f"no real Slurm: {', '.join(missing)} not installed (apt install slurm-wlm slurmdbd munge mariadb-server)"
        )
    return "no real Slurm: slurmd needs root" if os.getuid() else ""


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Two nodes that share out this host's CPUs; skipped, with a reason, where Slurm cannot run."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("two nodes need two CPUs")
    half = len(cpus) // 2
    with slurm_cluster(
        tmp_path_factory.mktemp("slurm"), {"n1": tuple(cpus[:half]), "n2": tuple(cpus[half : 2 * half])}
    ) as cluster:
        yield cluster


@contextmanager
def slurm_cluster(directory: Path, node_cpus: dict[str, tuple[int, ...]], cgroups: bool = False) -> Iterator[Slurm]:
    """Start the daemons, in the order in which they need each other, and stop them in reverse.

    With `cgroups`, Slurm's own plugins give every job a cgroup with its cores, in the kernel's hierarchy v1.
    """
    for name in ("m", "log", "ctld", *(f"spool/{node}" for node in node_cpus)):
        (directory / name).mkdir(parents=True)
    _open_to_daemons(directory)
    ports = [free_port() for _ in range(3 + len(node_cpus))]
    with ExitStack() as running:
        if len(os.fspath(directory)) > LONGEST_DIRECTORY:
            link = Path(running.enter_context(TemporaryDirectory(prefix="slurm-", dir="/tmp"))) / "s"
            link.symlink_to(directory)
            _open_to_daemons(directory := link)
        _write_configuration(directory, node_cpus, ports)
        if cgroups:
            _use_cgroups(directory)
        env = os.environ | {"SLURM_CONF": str(directory / "slurm.conf"), "PATH": _path()}
        env.pop("SLURM_JOB_ID", None)
        cluster = Slurm(directory, node_cpus, env)
        start = _Starter(directory, env, running)
        _start_munge(start)
        _start_database(start, ports[0])
        start("slurmdbd", "slurmdbd", "-D")
        start.wait_for("slurmdbd", "sacctmgr", "-n", "show", "cluster")
        cluster.run("sacctmgr", "-i", "add", "cluster", "demo")
        start("slurmctld", "slurmctld", "-D", "-i")
        for node in node_cpus:
            start(f"slurmd-{node}", "slurmd", "-D", "-N", node)
        idle = f"{len(node_cpus)} idle"
        start.wait_for("the nodes", "sinfo", "-h", "-o", "%D %t", says=idle)
        running.callback(_end_jobs, env)
        yield cluster


def _end_jobs(env: dict[str, str]) -> None:
    """End all jobs: a running one outlives its slurmd. Where a test has ended slurmctld, nothing answers."""
    with suppress(subprocess.TimeoutExpired):
        for state in ("PENDING", "RUNNING"):
            subprocess.run(["scancel", f"--state={state}"], env=env, capture_output=True, timeout=SPOKEN_S)
        for _ in range(20):
            ask = ["squeue", "-h", "-t", "RUNNING,COMPLETING"]
            if not subprocess.run(ask, env=env, capture_output=True, timeout=SPOKEN_S).stdout:
                return
            time.sleep(0.5)


class _Starter:
    """Starts daemons that the stack ends again, last one first."""

    def __init__(self, directory: Path, env: dict[str, str], running: ExitStack) -> None:
        self.directory, self.env, self._running = directory, env, running

    def __call__(self, name: str, *command: str) -> None:
        log = self._running.enter_context((self.directory / "log" / f"{name}.out").open("wb"))
        process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._running.callback(_stop, process)

    def enter(self, context: AbstractContextManager[str]) -> str:
        """Leave it after the daemons that are started from here on."""
        return self._running.enter_context(context)

    def wait_for(self, what: str, *command: str, says: str = "") -> None:
        """Ask until it answers, and answers this."""

        def asked() -> bool:
            done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=SPOKEN_S)
            return done.returncode == 0 and says in done.stdout

        _wait(what, asked, self.directory / "log")


def _start_munge(start: _Starter) -> None:
    m = start.directory / "m"
    key = m / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    socket_path = start.directory / "munge.sock"
    start(
        "munged",
        *("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket_path}"),
        *(f"--pid-file={m}/munged.pid", f"--seed-file={m}/seed", f"--log-file={m}/munged.log"),
    )
    _wait("munged", socket_path.exists, start.directory / "log")


def _start_database(start: _Starter, port: int) -> None:
    # The user mysql may not write to TMPDIR, and each start of pytest closes its own directory to others.
    db = start.enter(TemporaryDirectory(prefix="mariadb-", dir="/tmp"))
    shutil.chown(db, "mysql")
    of_mysql = ("--no-defaults", "--user=mysql", f"--datadir={db}/data", f"--tmpdir={db}")
    _run("mariadb-install-db", *of_mysql, "--skip-test-db", "--auth-root-authentication-method=normal")
    start(
        "mariadbd",
        *("mariadbd", *of_mysql, f"--socket={db}/my.sock"),
        *("--bind-address=127.0.0.1", f"--port={port}", "--innodb-buffer-pool-size=32M", "--skip-log-bin"),
    )
    ask = ("mariadb", "--no-defaults", f"--socket={db}/my.sock", "-u", "root", "-e")
    start.wait_for("mariadbd", *ask, "select 1")
    grant = "create user slurm@'%' identified by 'x'; create user slurm@localhost identified by 'x'; "
    grant += "grant all on slurm_acct.* to slurm@'%'; grant all on slurm_acct.* to slurm@localhost;"
    _run(*ask, grant)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


def _write_configuration(directory: Path, node_cpus: dict[str, tuple[int, ...]], ports: list[int]) -> None:
    database, accounting, controller, *daemons = ports
    host = socket.gethostname().partition(".")[0]
    lines = [
        "ClusterName=demo",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={controller}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={directory}/munge.sock",
        "CredType=cred/munge",
        "SlurmUser=root",
        f"StateSaveLocation={directory}/ctld",
        f"SlurmdSpoolDir={directory}/spool/%n",
        f"SlurmctldPidFile={directory}/slurmctld.pid",
        f"SlurmdPidFile={directory}/slurmd.%n.pid",
        f"SlurmctldLogFile={directory}/log/slurmctld.log",
        f"SlurmdLogFile={directory}/log/slurmd.%n.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=1",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_interval=1,bf_interval=1",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "SlurmdParameters=config_overrides",  # the nodes claim fewer CPUs than the host has
        "ReturnToService=2",
        "MpiDefault=none",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={accounting}",
        f"AccountingStoragePass={directory}/munge.sock",
        *(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={len(cpus)} RealMemory=500"
            for (node, cpus), port in zip(node_cpus.items(), daemons, strict=True)
        ),
        "PartitionName=debug Nodes=ALL Default=YES MaxTime=600 State=UP OverSubscribe=NO",
    ]
    (directory / "slurm.conf").write_text("\n".join(lines) + "\n")
    dbd = directory / "slurmdbd.conf"
    dbd.write_text(
        f"AuthType=auth/munge\nAuthInfo=socket={directory}/munge.sock\nDbdHost=localhost\nDbdAddr=127.0.0.1\n"
        f"DbdPort={accounting}\nSlurmUser=root\nLogFile={directory}/log/slurmdbd.log\nPidFile={directory}/slurmdbd.pid\n"
        f"StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort={database}\n"
        "StorageUser=slurm\nStoragePass=x\nStorageLoc=slurm_acct\n"
    )
    dbd.chmod(0o600)


def _use_cgroups(directory: Path) -> None:
    conf = directory / "slurm.conf"
    text = conf.read_text().replace("proctrack/linuxproc", "proctrack/cgroup").replace("task/none", "task/cgroup")
    conf.write_text(text.replace("jobacct_gather/linux", "jobacct_gather/cgroup"))
    (directory / "cgroup.conf").write_text(
        "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainCores=yes\nConstrainRAMSpace=yes\n"
    )


def _wait(what: str, ready: Callable[[], bool], logs: Path) -> None:
    end_s = time.monotonic() + SPOKEN_S
    while not ready():
        if time.monotonic() > end_s:
            said = "\n".join(
                f"{path.name}: {path.read_text(errors='replace')[-800:]}" for path in sorted(logs.iterdir())
            )
            raise RuntimeError(f"{what} did not start within {SPOKEN_S:.0f} s\n{said}")
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _open_to_daemons(directory: Path) -> None:
    """pytest's directories are for their owner only; the database runs as another user."""
    for path in (directory, *directory.parents):
        if path.stat().st_uid == os.getuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
