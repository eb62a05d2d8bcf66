"""Ten small situations on one site, each on nodes of its own, for a real slurmctld and for the simulator."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

from tests.workload.slurm.real_site import Submission

from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.joblog.sbatch_options import array_tasks, sbatch_options, with_options
from clustertwin.workload.slurm.site.site_directory import read_site
from clustertwin.workload.slurm.site.slurm_site import AdvanceReservation, SiteReport, SlurmSite

CONF = """\
ClusterName=ten
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=15,bf_continue
PriorityType=priority/multifactor
PriorityWeightAge=100
PriorityWeightFairshare=10000
PriorityWeightQOS=1000
PriorityCalcPeriod=1
PriorityDecayHalfLife=0:05:00
PriorityMaxAge=1:00:00
EnforcePartLimits=YES
GresTypes=gpu
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=DEFAULT CPUs=4 RealMemory=4000
NodeName=a[1-2],d[1-2],e1,f1,m[1-2],p[1-2],q[1-2],r[1-2]
NodeName=g1 Gres=gpu:2
NodeName=x1 Feature=red
NodeName=x2 Feature=blue
PartitionName=DEFAULT MaxTime=60 DefMemPerCPU=100
PartitionName=limit Nodes=p[1-2] MaxTime=5 MaxNodes=1 Default=YES
PartitionName=cap Nodes=q[1-2]
PartitionName=fair Nodes=f1
PartitionName=chain Nodes=d[1-2]
PartitionName=array Nodes=a[1-2]
PartitionName=reserve Nodes=r[1-2]
PartitionName=low Nodes=e1 PriorityTier=1
PartitionName=high Nodes=e1 PriorityTier=2
PartitionName=memory Nodes=m[1-2]
PartitionName=gpu Nodes=g1
PartitionName=feature Nodes=x[1-2]
"""
ACCOUNTS = """\
add QOS Name=capped Priority=10 MaxJobsPerUser=1 GrpTRES=cpu=6
add account Name=physics Fairshare=10
add account Name=biology Fairshare=10
add account Name=others Fairshare=10
add user Name=ann Account=physics
add user Name=bob Account=biology
add user Name=eve Account=others
add user Name=kim Account=others
modify user Name=eve set qos=normal,capped
modify user Name=kim set qos=normal,capped
"""
RESERVED_S = (200.0, 320.0)
RESERVE = """\
scontrol create reservation reservationname=booked users=kim nodes=r1 starttime=now+205 duration=00:02:00
"""


def _jobs(partition: str, *rows: tuple[str, float, float, str, str]) -> list[Submission]:
    """Rows (name, submit, run, user, options)."""
    return [
        Submission(f"{partition}.{name}", submit_s, run_s, user, ("-p", partition, *options.split()))
        for name, submit_s, run_s, user, options in rows
    ]


SUBMISSIONS = sorted(
    [
        *_jobs(
            "limit",
            ("whole1", 0, 90, "eve", "-N1 -n4 -t 3"),
            ("whole2", 1, 90, "eve", "-N1 -n4 -t 3"),
            ("toolong", 2, 30, "eve", "-N1 -n1 -t 10"),
            ("toowide", 3, 30, "eve", "-N2 -n2 -t 2"),
            ("next", 4, 60, "eve", "-N1 -n4 -t 3"),
            ("last", 5, 60, "eve", "-N1 -n2 -t 3"),
        ),
        *_jobs(
            "cap",
            ("eve1", 0, 80, "eve", "-N1 -n2 -t 3 -q capped"),
            ("eve2", 1, 80, "eve", "-N1 -n2 -t 3 -q capped"),
            ("kim1", 2, 80, "kim", "-N1 -n3 -t 3 -q capped"),
            ("eve3", 3, 80, "eve", "-N1 -n2 -t 3 -q capped"),
            ("free", 10, 80, "eve", "-N1 -n3 -t 3"),
        ),
        *_jobs(
            "fair",
            ("ann1", 0, 130, "ann", "-N1 -n4 -t 4"),
            ("ann2", 20, 60, "ann", "-N1 -n4 -t 4"),
            ("ann3", 21, 60, "ann", "-N1 -n4 -t 4"),
            ("bob1", 40, 60, "bob", "-N1 -n4 -t 4"),
            ("bob2", 41, 60, "bob", "-N1 -n4 -t 4"),
        ),
        *_jobs(
            "chain",
            ("first", 0, 60, "eve", "-N1 -n1 -t 3"),
            ("second", 1, 60, "eve", "-N2 -n8 -t 3 --dependency=afterok:@chain.first@"),
            ("third", 2, 60, "eve", "-N1 -n1 -t 3 --dependency=afterany:@chain.second@"),
            ("apart", 30, 60, "eve", "-N1 -n2 -t 1"),
        ),
        *_jobs(
            "array",
            ("tasks", 0, 50, "eve", "-N1 -n2 -t 2 --array=0-5%3"),
            ("single", 10, 50, "eve", "-N2 -n4 -t 2"),
        ),
        *_jobs(
            "reserve",
            ("long1", 0, 150, "eve", "-N1 -n4 -t 5"),
            ("long2", 1, 60, "eve", "-N1 -n4 -t 5"),
            ("short", 2, 60, "eve", "-N1 -n4 -t 2"),
            ("booked", 3, 60, "kim", "-N1 -n4 -t 2 --reservation=booked"),
        ),
        *_jobs("low", ("victim", 0, 120, "eve", "-N1 -n4 -t 5"), ("later", 5, 60, "eve", "-N1 -n2 -t 5")),
        *_jobs("high", ("boss", 60, 60, "kim", "-N1 -n4 -t 5")),
        *_jobs(
            "memory",
            ("big1", 0, 90, "eve", "-N1 -n1 -t 3 --mem=3000"),
            ("big2", 1, 120, "eve", "-N1 -n1 -t 3 --mem=3000"),
            ("big3", 2, 60, "eve", "-N1 -n1 -t 3 --mem=3000"),
            ("small", 3, 60, "eve", "-N1 -n1 -t 1 --mem=500"),
        ),
        *_jobs(
            "gpu",
            ("one1", 0, 100, "eve", "-N1 -n1 -t 3 --gres=gpu:1"),
            ("both", 1, 60, "eve", "-N1 -n1 -t 3 --gres=gpu:2"),
            ("one2", 2, 60, "eve", "-N1 -n1 -t 1 --gres=gpu:1"),
            ("none", 3, 60, "eve", "-N1 -n1 -t 3"),
        ),
        *_jobs(
            "feature",
            ("blue1", 0, 90, "eve", "-N1 -n4 -t 3 -C blue"),
            ("blue2", 1, 60, "eve", "-N1 -n4 -t 3 -C blue"),
            ("red1", 2, 60, "eve", "-N1 -n4 -t 3 -C red"),
            ("any", 3, 60, "eve", "-N1 -n4 -t 3 -C red|blue"),
        ),
    ],
    key=lambda submission: submission.submit_s,
)  # fmt: skip
SCENARIOS = ("limit", "cap", "fair", "chain", "array", "reserve", "preempt", "memory", "gpu", "feature")


def scenario_of(name: str) -> str:
    partition = name.partition(".")[0]
    return "preempt" if partition in ("low", "high") else partition


def scenario_site(directory: Path) -> SlurmSite:
    """The site as the simulator reads it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "slurm.conf").write_text(CONF)
    (directory / "sacctmgr.script").write_text("add QOS Name=normal Priority=0\n" + ACCOUNTS)
    reservation = AdvanceReservation("booked", ("r1",), *RESERVED_S, users=("kim",))
    return replace(read_site(directory), reservations=(reservation,))


def scenario_log() -> tuple[SlurmLog, list[str]]:
    """The jobs as the simulator takes them, and their names."""
    jobs: list[SlurmJob] = []
    names: list[str] = []
    first: dict[str, int] = {}
    report = SiteReport()
    for submission in SUBMISSIONS:
        words = [re.sub(r"@([\w.]+)@", lambda match: str(first[match[1]]), word) for word in submission.options]
        options = sbatch_options(" ".join(words))
        first[submission.name] = len(jobs) + 1
        job = SlurmJob(len(jobs) + 1, submission.submit_s, submission.run_s, submission.user)
        tasks = list(array_tasks(with_options(job, options, report, submission.name), options, len(jobs)))
        names += [f"{submission.name}_{k}" if len(tasks) > 1 else submission.name for k in range(len(tasks))]
        jobs += tasks
    assert not report.counts
    assert all(math.isfinite(job.run_s) for job in jobs)
    return SlurmLog(tuple(jobs)), names
