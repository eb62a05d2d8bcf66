"""Jobs: every layout, every file, and jobs that start, end and have invalid files."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import InputError
from clustertwin.telemetry.exporter.jobs.cgroup_jobs import JobsCollector
from clustertwin.telemetry.exporter.jobs.cpuset import format_cpulist, parse_cpulist
from clustertwin.telemetry.exporter.text.text_format import to_rows

CPU = "usage_usec 3000000\nuser_usec 2000000\nsystem_usec 1000000"
POD = "0f1e2d3c-aaaa-bbbb-cccc-0123456789ab"
POD_ = POD.replace("-", "_")


def found(tree, **options) -> dict[tuple[str, str], dict[str, float]]:
    """(manager, job) -> its samples, keyed by metric and further labels."""
    jobs = JobsCollector(str(tree.root), **options)
    try:
        return by_job(jobs.collect([]))
    finally:
        jobs.close()


def by_job(text: bytes) -> dict[tuple[str, str], dict[str, float]]:
    told: dict[tuple[str, str], dict[str, float]] = {}
    for row in to_rows(text.decode()):
        labels = dict(row["labels"])
        if "jobid" in labels:
            key = labels.pop("manager"), labels.pop("jobid")
            told.setdefault(key, {})[" ".join([row["name"], *labels.values()])] = row["value"]
    return told


def cpus(samples: dict[str, float]) -> list[int]:
    return sorted(int(name.split()[1]) for name in samples if name.startswith("twin_job_cpu_allocated"))


LAYOUTS = {
    "slurm": ("system.slice/slurmstepd.scope/job_42", "slurm", "42"),
    "slurm, several slurmd": ("system.slice/n01_slurmstepd.scope/job_42", "slurm", "42"),
    "slurm, sluid": ("system.slice/slurmstepd.scope/s5K1KKYAYG5D00", "slurm", "s5K1KKYAYG5D00"),
    "htcondor": ("htcondor/condor_var_lib_condor_execute_slot1_3@n01", "htcondor", "slot1_3@n01"),
    "htcondor, systemd": ("system.slice/htcondor/condor_scratch_slot2@n01", "htcondor", "slot2@n01"),
    "htcondor, service": ("system.slice/condor.service/htcondor/condor_x_slot1@n01", "htcondor", "slot1@n01"),
    "pod, guaranteed": (f"kubepods.slice/kubepods-pod{POD_}.slice", "kubernetes", POD),
    "pod, burstable": (
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_}.slice",
        "kubernetes",
        POD,
    ),
    "pod, cgroupfs": (f"kubepods/pod{POD}", "kubernetes", POD),
    "pod, cgroupfs, best effort": (f"kubepods/besteffort/pod{POD}", "kubernetes", POD),
    "user": ("user.slice/user-1000.slice", "systemd", "user-1000.slice"),
    "unit": ("batch.slice/fit-7.service", "systemd", "fit-7.service"),
}


@pytest.mark.parametrize(("path", "manager", "job"), LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_is_recognised(tree, path, manager, job):
    tree.v2().group(path, cpu_stat=CPU)
    assert list(found(tree)) == [(manager, job)]


@pytest.mark.parametrize(
    "path",
    [
        "system.slice/sshd.service",
        "system.slice/slurmstepd.scope/system",
        "system.slice/slurmd.service",
        "init.scope",
        "kubepods.slice/kubepods-burstable.slice",
        "user.slice/user@1000.service",
        "htcondor/control",
    ],
)
def test_other_cgroups_are_left_out(tree, path):
    tree.v2().group(path, cpu_stat=CPU)
    assert found(tree) == {}


def test_all_files_of_a_slurm_job_are_exposed(tree):
    job = "system.slice/slurmstepd.scope/job_42"
    tree.v2().group(
        job,
        cpuset_cpus="0-1,4",
        cpuset_cpus_effective="0-1,4",
        cpu_stat=CPU + "\nthrottled_usec 500000",
        memory_current="4096",
        memory_peak="8192",
        io_stat="8:0 rbytes=10 wbytes=20 rios=1 wios=1\n8:16 rbytes=1 wbytes=2 rios=1 wios=1",
        io_pressure="some avg10=0.00 avg60=0.00 avg300=0.00 total=7000000",
    )
    tree.group(f"{job}/step_0/system", cgroup_procs="10")
    tree.group(f"{job}/step_0/user/task_0", cgroup_procs="11")
    tree.process(10, uid=0)
    tree.process(11, uid=1234)
    told = found(tree)["slurm", "42"]
    assert cpus(told) == [0, 1, 4]
    assert {name: value for name, value in told.items() if "allocated" not in name} == {
        "twin_job_cpu_seconds_total user": 2.0,
        "twin_job_cpu_seconds_total system": 1.0,
        "twin_job_cpu_throttled_seconds_total": 0.5,
        "twin_job_memory_bytes": 4096,
        "twin_job_memory_peak_bytes": 8192,
        "twin_job_read_bytes_total": 11,
        "twin_job_written_bytes_total": 22,
        "twin_job_pressure_seconds_total io some": 7.0,
        "twin_job_owner_uid": 1234,
    }


def test_a_set_that_is_only_inherited_is_not_the_jobs_own(tree):
    tree.v2().group("htcondor/condor_slot1@n", cpu_stat=CPU, cpuset_cpus="", cpuset_cpus_effective="0-7")
    told = found(tree)["htcondor", "slot1@n"]
    assert cpus(told) == []
    assert told["twin_job_cpu_seconds_total user"] == 2.0


def test_a_pod_whose_containers_are_pinned_has_their_sets_together(tree):
    pod = f"kubepods.slice/kubepods-pod{POD_}.slice"
    tree.v2().group(pod, cpuset_cpus="", cpuset_cpus_effective="0-7")
    for name, own in (("a", "2-3"), ("b", "5")):
        tree.group(f"{pod}/cri-containerd-{name}.scope", cpuset_cpus=own, cpuset_cpus_effective=own)
    assert cpus(found(tree)["kubernetes", POD]) == [2, 3, 5]


def test_slurm_on_cgroup_v1_is_read_from_its_controllers(tree):
    job = "slurm/uid_1000/job_42"
    tree.group("cpuset", cpuset_cpus="0-7")
    tree.group(f"cpuset/{job}", cpuset_cpus="0-7")
    tree.write(f"sys/fs/cgroup/cpuacct/{job}/cpuacct.usage_user", "2500000000\n")
    tree.write(f"sys/fs/cgroup/cpuacct/{job}/cpuacct.usage_sys", "500000000\n")
    tree.write(f"sys/fs/cgroup/memory/{job}/memory.usage_in_bytes", "4096\n")
    told = found(tree)["slurm", "42"]
    assert cpus(told) == list(range(8))
    assert told["twin_job_cpu_seconds_total user"] == 2.5
    assert told["twin_job_memory_bytes"] == 4096
    assert told["twin_job_owner_uid"] == 1000


def test_on_a_hybrid_host_v1_adds_what_v2_does_not_have(tree):
    job = "system.slice/slurmstepd.scope/job_42"
    tree.v2("unified/").group(f"unified/{job}", cpu_stat=CPU)
    tree.group("cpuset", cpuset_cpus="0-7")
    tree.group(f"cpuset/{job}", cpuset_cpus="3")
    tree.write(f"sys/fs/cgroup/cpuacct/{job}/cpuacct.usage_user", "9\n")
    told = found(tree)["slurm", "42"]
    assert cpus(told) == [3]
    assert told["twin_job_cpu_seconds_total user"] == 2.0


def test_jobs_start_and_end(tree):
    tree.v2().group("system.slice/slurmstepd.scope/job_1", cpu_stat=CPU)
    jobs = JobsCollector(str(tree.root), clock=lambda: 0.0)
    assert list(by_job(jobs.collect([]))) == [("slurm", "1")]
    tree.group("system.slice/slurmstepd.scope/job_2", cpu_stat=CPU)
    shutil.rmtree(tree.root / "sys/fs/cgroup/system.slice/slurmstepd.scope/job_1")
    assert list(by_job(jobs.collect([]))) == [("slurm", "2")]
    jobs.close()


def test_a_new_place_is_found_at_the_next_survey(tree):
    now = [0.0]
    jobs = JobsCollector(str(tree.v2().root), clock=lambda: now[0])
    jobs.collect([])
    tree.group("system.slice/slurmstepd.scope/job_1", cpu_stat=CPU)
    assert by_job(jobs.collect([])) == {}
    now[0] = 10.0
    assert list(by_job(jobs.collect([]))) == [("slurm", "1")]
    jobs.close()


def test_a_cpu_set_created_after_its_job_is_read_a_second_later(tree):
    now = [0.0]
    job = "system.slice/slurmstepd.scope/job_1"
    tree.v2().group(job, cpuset_cpus="", cpu_stat=CPU)
    jobs = JobsCollector(str(tree.root), clock=lambda: now[0])
    assert cpus(by_job(jobs.collect([]))["slurm", "1"]) == []
    tree.group(job, cpuset_cpus="3", cpuset_cpus_effective="3")
    now[0] = 1.0
    assert cpus(by_job(jobs.collect([]))["slurm", "1"]) == [3]
    assert jobs.lines.splitlines()[0] == b"job slurm 1 3"
    jobs.close()


def test_a_job_that_ends_while_it_is_read_leaves_the_others_alone(tree, monkeypatch):
    tree.v2().group("system.slice/slurmstepd.scope/job_1", cpu_stat=CPU)
    tree.group("system.slice/slurmstepd.scope/job_2", cpu_stat=CPU)
    jobs = JobsCollector(str(tree.root), clock=lambda: 0.0)
    jobs.collect([])
    real, gone = os.pread, []

    def pread(fd, size, offset):
        if not gone or fd in gone:
            gone.append(fd)
            raise OSError(19, "No such device")
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    faults: list[str] = []
    assert len(by_job(jobs.collect(faults))) == 1
    assert faults == []
    monkeypatch.undo()
    assert len(by_job(jobs.collect([]))) == 2
    jobs.close()


def test_a_kernel_that_refuses_one_file_leaves_the_jobs_others(tree, monkeypatch):
    tree.v2().group("system.slice/slurmstepd.scope/job_1", memory_current="4096", cpu_pressure="")
    jobs = JobsCollector(str(tree.root), clock=lambda: 0.0)
    jobs.read([])
    (job,) = jobs._jobs.values()
    real, refused = os.pread, job.files["2/cpu.pressure"]

    def pread(fd, size, offset):
        if fd == refused:
            raise OSError(95, "Operation not supported")
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    faults: list[str] = []
    assert by_job(jobs.collect(faults))["slurm", "1"] == {"twin_job_memory_bytes": 4096}
    assert faults == []
    jobs.close()


def test_a_bad_cpu_set_is_a_fault_of_every_scrape_until_it_is_valid(tree):
    now = [0.0]
    job = "system.slice/slurmstepd.scope/job_1"
    tree.v2().group(job, cpuset_cpus="a-b", memory_current="1")
    jobs = JobsCollector(str(tree.root), clock=lambda: now[0])
    for now[0] in (0.0, 0.5, 30.0):
        faults: list[str] = []
        jobs.collect(faults)
        assert len(faults) == 1
    tree.group(job, cpuset_cpus="3")
    now[0], faults = 60.0, []
    assert cpus(by_job(jobs.collect(faults))["slurm", "1"]) == [3]
    assert faults == []
    jobs.close()


def test_a_job_that_appears_in_one_hierarchy_after_another_is_read_from_both(tree):
    job = "slurm/uid_1000/job_42"
    tree.group("cpuset", cpuset_cpus="0-7")
    tree.group(f"cpuset/{job}", cpuset_cpus="0-7")
    tree.group("memory/slurm/uid_1000")
    jobs = JobsCollector(str(tree.root), clock=lambda: 0.0)
    assert "twin_job_memory_bytes" not in by_job(jobs.collect([]))["slurm", "42"]
    tree.write(f"sys/fs/cgroup/memory/{job}/memory.usage_in_bytes", "4096\n")
    assert by_job(jobs.collect([]))["slurm", "42"]["twin_job_memory_bytes"] == 4096
    jobs.close()


def test_an_unreadable_file_is_a_fault_of_that_file_alone(tree):
    tree.v2().group("system.slice/slurmstepd.scope/job_1", cpu_stat="what", memory_current="4096", cpuset_cpus="a-b")
    jobs = JobsCollector(str(tree.root))
    faults: list[str] = []
    assert by_job(jobs.collect(faults))["slurm", "1"] == {"twin_job_memory_bytes": 4096}
    assert any("cpu.stat" in fault for fault in faults)
    assert any("a-b" in fault for fault in faults)
    jobs.close()


def test_an_unreadable_place_is_a_fault_and_other_places_are_read(tree, monkeypatch):
    tree.v2().group("system.slice/slurmstepd.scope/job_1", cpu_stat=CPU)
    tree.group("user.slice/user-7.slice", cpu_stat=CPU)
    real = os.listdir

    def listdir(path):
        if "slurm" in path:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    jobs = JobsCollector(str(tree.root))
    faults: list[str] = []
    assert list(by_job(jobs.collect(faults))) == [("systemd", "user-7.slice")]
    assert "slurmstepd.scope" in faults[0]
    jobs.close()


def test_too_many_jobs_are_dropped_and_counted(tree):
    tree.v2()
    for i in range(5):
        tree.group(f"system.slice/slurmstepd.scope/job_{i}", cpu_stat=CPU)
    jobs = JobsCollector(str(tree.root), max_jobs=3)
    jobs.collect([])
    text = jobs.collect([])
    assert len(by_job(text)) == 3
    assert b"twin_jobs 5\n" in text
    assert b"twin_jobs_dropped_total 4\n" in text
    jobs.close()


def test_a_hostile_name_stays_inside_its_label(tree):
    name = 'job_a"} 1\\evil{x=" é%d'
    tree.v2().group(f"system.slice/slurmstepd.scope/{name}", cpu_stat=CPU, cpuset_cpus="0")
    jobs = JobsCollector(str(tree.root))
    assert list(by_job(jobs.collect([]))) == [("slurm", name.removeprefix("job_"))]
    line, heading, stat = jobs.lines.decode().splitlines()
    assert len(line.split(" ")) == 4
    assert len(stat.split(" ")) == len(heading.split(" ")) + 2
    jobs.close()


@given(st.sets(st.integers(0, 2000), max_size=60))
def test_a_list_of_cpus_survives_the_kernels_form(cpus):
    assert parse_cpulist(format_cpulist(tuple(sorted(cpus)))) == tuple(sorted(cpus))


@pytest.mark.parametrize("text", ["a", "3-", "-3", "5-2", "0-99999999", "1,,2", "٣"])
def test_an_invalid_list_of_cpus_is_an_error(text):
    with pytest.raises(InputError):
        parse_cpulist(text)
