"""A site is read from slurm.conf, sacctmgr files or TOML; what the model leaves out is reported."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from clustertwin.workload.slurm.site.conf_lines import SiteError, logical_lines
from clustertwin.workload.slurm.site.quantities import Gres
from clustertwin.workload.slurm.site.site_directory import parse_site, read_site
from clustertwin.workload.slurm.site.slurm_site import PARENT_SHARES, SlurmSite

CONF = """\
# a comment
clustername = demo   # case and spaces do not matter
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=20,bf_window=60,defer,bf_continue,salloc_wait_nodes
Include weights.conf
Licenses=matlab:5
SomethingNew=1
NodeName=DEFAULT Sockets=2 CoresPerSocket=4 \\
  RealMemory=16000
NodeName=n[01-04] Feature=old,ib Weight=10
NodeName=DEFAULT CoresPerSocket=8
NodeName=g1 Gres=gpu:v100:2 Weight=20 Colour=red
DownNodes=n02 State=DOWN
PartitionName=DEFAULT MaxTime=60
PartitionName=short Nodes=n[01-04] Default=YES Priority=5 Licenses=x
PartitionName=gpu Nodes=g1 MaxTime=2-0 AllowQOS=high QOS=high
"""
DUMP = """\
# To edit this file start with a cluster line for the new cluster
Cluster - 'demo':Fairshare=1:QOS='normal,high'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'phys':Description='physics':Organization='uni':Fairshare=10:GrpTRES=cpu=8,mem=4G:GrpWall=60
Parent - 'phys'
User - 'ann':DefaultAccount='phys':Fairshare=parent:MaxJobs=2:MaxWallDurationPerJob=30
"""
QOS = """\
Name|Priority|GraceTime|Preempt|PreemptMode|Flags|UsageFactor|GrpTRES|MaxTRESPU|MaxJobsPU|MaxWall
normal|0|00:00:00||cluster||1.000000||||
high|10|00:00:30|normal|requeue|DenyOnLimit|1.000000|gres/gpu=1|cpu=16|4|1-00:00:00
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "weights.conf").write_text("PriorityWeightAge=100\nPriorityFlags=NO_FAIR_TREE,DEPTH_OBLIVIOUS\n")
    (tmp_path / "sacctmgr.dump").write_text(DUMP)
    (tmp_path / "qos.txt").write_text(QOS)
    return tmp_path


def test_nodes_take_defaults_and_down_nodes_are_not_available(directory):
    site = read_site(directory)
    assert site.node_names == ("n01", "n02", "n03", "n04", "g1")
    assert [group.cores for group in site.groups] == [8, 8, 8, 16]
    assert [group.available for group in site.groups] == [True, False, True, True]
    assert site.groups[-1].gres == (Gres("gpu", "v100", 2),)
    assert site.groups[0].features == ("old", "ib")
    assert site.cpus == 48


def test_partitions_scheduler_and_priority(directory):
    site = read_site(directory)
    short, gpu = site.partitions
    assert (short.priority_tier, short.priority_factor, short.max_time_s) == (5, 5, 3600)
    assert (gpu.allow_qos, gpu.qos, gpu.max_time_s) == (("high",), "high", 172_800)
    assert site.default_partition == "short"
    assert (site.scheduler.bf_interval, site.scheduler.bf_window) == (20, 3600)
    assert (site.priority.age, site.priority.fair_tree) == (100, False)


def test_accounts_and_qos(directory):
    site = read_site(directory)
    ann = next(entry for entry in site.associations if entry.user == "ann")
    phys = next(entry for entry in site.associations if entry.account == "phys" and not entry.user)
    high = next(qos for qos in site.qos if qos.name == "high")
    assert (ann.account, ann.shares, ann.limits.max_jobs, ann.limits.max_wall_s) == ("phys", PARENT_SHARES, 2, 1800)
    assert phys.limits.group_tres == {"cpu": 8, "mem": 4096}
    assert (high.preempt, high.preempt_mode) == (("normal",), "requeue")
    assert (high.limits.max_tres_user, high.limits.max_jobs_user) == ({"cpu": 16}, 4)


def test_what_is_not_modelled_or_unknown_is_named_with_its_place(directory):
    report = read_site(directory).report
    assert report.of("not modelled") == {
        "licenses": 1, "SchedulerParameters salloc_wait_nodes": 1, "PriorityFlags DEPTH_OBLIVIOUS": 1,
        "limit grpwall": 1, "limit gracetime": 1, "SchedulerParameters defer": 1,
    }  # fmt: skip
    assert "SchedulerParameters bf_continue" in report.of("no effect on scheduling")
    assert set(report.of("unknown")) == {"somethingnew", "NodeName colour", "PartitionName licenses"}
    assert any(line == "not modelled: licenses (1, slurm.conf:7)" for line in report.lines())


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("MaxTime=2-0", "MaxTime=soon", r"slurm\.conf:17: maxtime=soon: .*not a time"),
        ("Nodes=n[01-04] D", "Nodes=n[01-05] D", r"slurm\.conf:16: node n05 is in a partition"),
        ("n[01-04] F", "n[01-04 F", r"slurm\.conf:11: .*unbalanced"),
        ("Include weights.conf", "Include gone.conf", r"slurm\.conf:6: Include gone.conf: there is no such file"),
        ("Licenses=matlab:5", "Licenses", r"slurm\.conf:7: 'Licenses' is not Key=value"),
        ("Include weights.conf", "Include slurm.conf", "does a file include itself"),
        ("NodeName=g1", "NodeName=n04", r"slurm\.conf:13: node n04 is already defined at slurm\.conf:11"),
        ("RealMemory=16000", "RealMemory=99999999999999999999x", "realmemory"),
        ("Weight=10", "Weight=99999999999999999999", r"slurm\.conf:11: weight=9+: 9+ is too large"),
    ],
)
def test_an_error_names_file_line_and_reason(directory, old, new, reason):
    (directory / "slurm.conf").write_text(CONF.replace(old, new))
    with pytest.raises(SiteError, match=reason):
        read_site(directory)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("DownNodes=n02", "DownNodes=n07", r"slurm\.conf:14: DownNodes names n07"),
        ("n[01-04] Feature", "n[01-99999999] Feature", r"slurm\.conf:11: .* names more than 1,000,000 nodes"),
        ("Weight=10", "Weight=-10", r"slurm\.conf:11: weight=-10: -10 is negative"),
        ("Weight=10", "CoreSpecCount=8", r"slurm\.conf:11: 8 cores, .* none is left"),
        ("Weight=10", "MemSpecLimit=20000", r"slurm\.conf:11: MemSpecLimit=20000 is more than RealMemory=16000"),
        ("gpu:v100:2", "gpu:v100:99999999999999999999", r"slurm\.conf:13: .* is too large"),
        ("bf_interval=20", "bf_interval=soon", r"slurm\.conf:5: bf_interval=soon: 'soon' is not a number"),
        ("Default=YES", "State=UPP", r"slurm\.conf:16: State=UPP: must be UP"),
        ("AllowQOS=high", "MaxNodes=-3", r"slurm\.conf:17: maxnodes=-3: -3 is negative"),
    ],
)
def test_a_number_or_state_that_slurm_would_refuse_is_refused(directory, old, new, reason):
    assert CONF.count(old) == 1
    (directory / "slurm.conf").write_text(CONF.replace(old, new))
    with pytest.raises(SiteError, match=reason):
        read_site(directory)


def test_includes_are_relative_to_slurm_conf_and_may_name_the_cluster(directory):
    (directory / "slurm.conf").write_text(CONF.replace("weights.conf", '"parts/%c.conf"'))
    (directory / "parts").mkdir()
    (directory / "parts" / "demo.conf").write_text("Include parts/age.conf\n")
    (directory / "parts" / "age.conf").write_text("PriorityWeightAge=7\n")
    assert read_site(directory).priority.age == 7
    (directory / "slurm.conf").write_text("Include %c.conf\n" + CONF)
    with pytest.raises(SiteError, match=r"slurm\.conf:1: .* ClusterName must be set before it"):
        read_site(directory)


def test_a_comment_may_have_any_encoding_and_a_value_may_not(directory):
    (directory / "slurm.conf").write_bytes(CONF.replace("a comment", "für").encode("latin-1"))
    assert read_site(directory).name == "demo"
    (directory / "slurm.conf").write_bytes(CONF.replace("demo", "dömo").encode("latin-1"))
    with pytest.raises(SiteError, match=r"slurm\.conf:2: .*is not UTF-8 text"):
        read_site(directory)


def test_what_was_assumed_is_said(directory):
    text = CONF.replace("Weight=10", "Weight=10 Weight=11").replace("Colour=red", "State=IDEL") + "NodeNam=x CPUs=1\n"
    text += "PartitionName=empty\nPartitionName=last Nodes=ALL Default=YES\n"
    (directory / "slurm.conf").write_text(text)
    site = read_site(directory)
    assert site.default_partition == "last"
    found = site.report.of("assumed", "unknown")
    for words in (
        "weight stands twice on a line", "NodeName State=IDEL", "nodenam", "partition empty has no nodes",
        "partitions short, last are all Default=YES",
    ):  # fmt: skip
        assert any(words in what for what in found), words


def test_a_half_written_dump_is_refused_with_its_line(directory):
    (directory / "sacctmgr.dump").write_text(DUMP + "User - 'bob':Default")
    with pytest.raises(SiteError, match=r"sacctmgr\.dump:8: 'Default' is not Key=value"):
        read_site(directory)


def test_a_byte_order_mark_and_utf16_are_read(directory):
    (directory / "slurm.conf").write_bytes(b"\xef\xbb\xbf" + CONF.encode())
    first = read_site(directory)
    (directory / "slurm.conf").write_bytes(CONF.encode("utf-16"))
    assert read_site(directory).node_names == first.node_names


def test_a_hash_can_be_escaped_and_a_backslash_joins_lines():
    assert list(logical_lines("A=1\\\n B=2 # c\n\n# only a comment\nC=\\#3\n")) == [(1, "A=1  B=2"), (5, "C=#3")]


TOML = """
name = "small"
[[nodes]]
names = "n[1-4]"
cores = 8
memory = "16G"
[[partitions]]
name = "batch"
default = true
max_time = "1-0"
[[qos]]
name = "high"
priority = 10
max_tres_user = "cpu=8"
[[accounts]]
account = "phys"
shares = 3
[[reservations]]
name = "maint"
start_s = 3600
duration_s = 600
nodes = "n1"
[scheduler]
bf_interval = 15
"""


def test_a_short_toml_is_a_site():
    site = parse_site(TOML, "site.toml")
    assert (len(site.node_names), site.cpus, site.groups[0].memory_mb) == (4, 32, 16_384)
    assert site.partitions[0].max_time_s == 86_400
    assert math.isnan(site.partitions[0].default_time_s)
    assert site.reservations[0].end_s == 4200
    assert site.qos[0].limits.max_tres_user == {"cpu": 8}
    for wrong in ("[scheduler]\nbf_intervall = 3", "[[nodes]]\nnames = 'n1'\ncolour = 3", "[x]", "a = "):
        with pytest.raises(SiteError, match=r"site\.toml"):
            parse_site(wrong, "site.toml")


SCRIPT = """\
add qos normal,high
modify qos high set priority=10 MaxTRESPerUser=cpu=16
modify qos high set MaxTRESPerUser=node=2
add account phys Description="the lab" GrpCPUs=100 GrpNodes=10
add account optics parent=phys
add account bio
add user ann,bob account=phys qos=normal
add user bob account=bio
modify user where user=ann set qos+=high maxjobs=3
add user bob account=phys partition=gpu maxjobs=1
modify account phys set GrpTRES=cpu=-1,mem=4G
modify user bob where account=bio set qos+=high
add coordinator ann account=phys
"""


def accounts_of(directory: Path, script: str) -> SlurmSite:
    (directory / "sacctmgr.dump").unlink()
    (directory / "qos.txt").unlink()
    (directory / "sacctmgr.script").write_text(script)
    return read_site(directory)


def test_a_script_may_name_what_it_changes_without_a_key(directory):
    """Commands such as `add account phys` had no effect, without a word."""
    site = accounts_of(directory, SCRIPT)
    users = {(entry.user, entry.account, entry.partition): entry for entry in site.associations if entry.user}
    assert set(users) == {("ann", "phys", ""), ("bob", "phys", ""), ("bob", "bio", ""), ("bob", "phys", "gpu")}
    assert (users["ann", "phys", ""].qos, users["ann", "phys", ""].limits.max_jobs) == (("normal", "high"), 3)
    assert users["bob", "phys", "gpu"].limits.max_jobs == 1
    assert users["bob", "bio", ""].qos == ("normal", "high")  # what it inherits, and one more
    assert {entry.account: entry.parent for entry in site.associations if not entry.user} == {
        "phys": "root", "optics": "phys", "bio": "root",
    }  # fmt: skip
    assert site.report.of("not modelled")["sacctmgr coordinator"] == 1


def test_a_list_of_tres_changes_only_those_that_it_names(directory):
    site = accounts_of(directory, SCRIPT)
    high = next(qos for qos in site.qos if qos.name == "high")
    phys = next(entry for entry in site.associations if entry.account == "phys" and not entry.user)
    assert (high.priority, high.limits.max_tres_user) == (10, {"cpu": 16, "node": 2})
    assert phys.limits.group_tres == {"node": 10, "mem": 4096}


def test_what_a_script_removes_is_gone(directory):
    """To delete a user or an account added it."""
    site = accounts_of(directory, SCRIPT + "delete user bob where account=bio\nremove account name=optics\n")
    assert {(entry.account, entry.user) for entry in site.associations} == {
        ("phys", ""), ("phys", "ann"), ("phys", "bob"), ("bio", ""),
    }  # fmt: skip
    assert not accounts_of_more(directory, "delete account phys,bio\n").associations


def accounts_of_more(directory: Path, line: str) -> SlurmSite:
    (directory / "sacctmgr.script").write_text(SCRIPT + line)
    return read_site(directory)


def test_a_command_without_a_name_is_refused(directory):
    with pytest.raises(SiteError, match=r"sacctmgr\.script:14: no name of a user"):
        accounts_of(directory, SCRIPT + "modify user where account=phys set fairshare=parent\n")


def test_the_parents_of_accounts_are_read_under_the_heading_that_sacctmgr_prints(directory):
    (directory / "sacctmgr.dump").unlink()
    table = "Account|Par Name|User|Share\nroot||| 1\nphys|root||10\noptics|phys||3\noptics||ann|1\n"
    (directory / "assoc.txt").write_text(table)
    site = read_site(directory)
    assert {entry.account: entry.parent for entry in site.associations if not entry.user}["optics"] == "phys"
    assert not any("par" in what for what in site.report.of("unknown"))


@pytest.mark.parametrize(
    ("values", "cores", "cpus"),
    [
        ("CPUs=64 CoresPerSocket=16 ThreadsPerCore=2", 32, 64),
        ("CPUs=64 CoresPerSocket=16", 64, 64),
        ("CPUs=16 CoresPerSocket=16 ThreadsPerCore=2", 16, 16),
        ("CPUs=64 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2", 32, 64),
    ],
)
def test_slurm_infers_the_sockets_from_the_cpus(tmp_path, values, cores, cpus):
    """A node of 64 CPUs had 32: one socket was assumed."""
    (tmp_path / "slurm.conf").write_text(f"NodeName=n1 {values}\nPartitionName=p Nodes=n1\n")
    site = read_site(tmp_path)
    assert (site.groups[0].cores, site.cpus) == (cores, cpus)
    assert not site.report.of("assumed")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("start_s = 2024-01-01T00:00:00Z", r"reservation 'r': float\(\) argument"),
        ("start_s = 0\nusers = 'ada'", "users must be a list of texts"),
        ("start_s = 0\nduration = 60", "unknown key 'duration'"),
        ("start_s = 9\nend_s = 9", "start_s 9 is not before its end"),
        (f"start_s = {'9' * 400}", "too large"),
        ("start_s = 0\n[[reservation]]\nstart_s = 1", "unknown table 'reservation'"),
    ],
)
def test_a_reservation_that_would_be_read_otherwise_is_refused(directory, line, reason):
    (directory / "reservations.toml").write_text(f"[[reservations]]\nname = 'r'\n{line}\n")
    with pytest.raises(SiteError, match=reason):
        read_site(directory)


@pytest.mark.parametrize("line", ["features = 'ib'", "[[partitions]]\nname = 'p'\nallow_qos = 'high'"])
def test_a_text_in_place_of_a_list_is_refused(line):
    """A list of its letters was read, or a QOS that is a part of the text was allowed."""
    with pytest.raises(SiteError, match="must be a list of texts"):
        parse_site(f"[[nodes]]\nnames = 'n1'\ncores = 1\n{line}\n", "site.toml")


def test_a_production_site_is_read(data):
    root = data / "slurm" / "ubhpc"
    if not root.is_dir():
        pytest.skip("no UB-HPC configuration here")
    site = read_site(root)
    assert (len(site.node_names), site.cpus, len(site.qos)) == (217, 87 * 32 + 2 * 32 + 128 * 40, 5)
    assert sum(bool(entry.user) for entry in site.associations) == 96
    assert not site.report.of("unknown")
    assert (site.preemption.kind, site.preemption.mode, site.preemption.requeue) == ("partition", "requeue", False)
    production = read_site(root / "slurm-production.conf")
    assert [len(partition.nodes) for partition in production.partitions] == [914, 11, 5, 922]
    assert set(production.report.of("not modelled")) >= {"licenses", "dependencyparameters", "prolog", "epilog"}


def test_associations_without_their_parents_are_reported(tmp_path):
    """`sacctmgr -P show assoc` prints no parents by default: accounts below others became accounts below root."""
    (tmp_path / "slurm.conf").write_text("NodeName=n1 CPUs=4\nPartitionName=a Nodes=n1\n")
    (tmp_path / "assoc.txt").write_text("Cluster|Account|User|Share\nc|root||1\nc|phys||5\nc|lab||3\nc|lab|ann|1\n")
    assert any("ParentName" in what for what in read_site(tmp_path).report.of("assumed"))
