"""Kernel files become named integers."""

from __future__ import annotations

from clustertwin.telemetry.campaign.zoo.job_group import JobGroup
from clustertwin.telemetry.campaign.zoo.kernel_counters import parse_group_file, read_counters

_PROCESS = "7 (a (b) c) S 1 7 7 0 -1 4194560 11 0 3 0 250 40 0 0 20 0 2 0 5 9000 123 " + " ".join(["0"] * 27) + "\n"


def _files(root, texts):
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_files_of_node_group_and_process(tmp_path):
    _files(
        tmp_path / "proc",
        {
            "stat": "cpu  9 9 9 9\ncpu0 1 2 3 4 5 6 7 8\nintr 5 6\nctxt 77\nprocs_running 3\n",
            "meminfo": "MemTotal:       100 kB\nHugePages_Total:       0\n",
            "loadavg": "0.1 0.2 0.3 4/180 999\n",
            "diskstats": "254 0 vda 1 2 3 4 5 6 7 8 9 10 11 0 0\n7 0 loop0 1 1 1 1 1 1 1 1 1 1 1\n",
            "net/dev": "Inter-| Receive\n face |bytes\n eth0: 10 2 1 0 0 0 0 0 20 3 4 0 0 0 0 0\n",
            "pressure/io": "some avg10=0.00 avg60=0.00 total=12\nfull avg10=0.00 avg60=0.00 total=5\n",
            "7/stat": _PROCESS,
            "7/status": "VmSwap:\t 3 kB\nvoluntary_ctxt_switches:\t8\n",
            "7/io": "rchar: 1\nread_bytes: 4096\n",
        },
    )
    _files(
        tmp_path / "cgroup",
        {
            "unified/job/cgroup.procs": "7\n",
            "unified/job/cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=33\n",
            "cpuacct/job/cpuacct.usage": "1234\n",
            "memory/job/memory.stat": "cache 1\ntotal_rss 2\n",
            "blkio/job/blkio.throttle.io_service_bytes": "254:0 Read 4096\nTotal 4096\n",
        },
    )
    group = JobGroup("job", (0,), tmp_path / "cgroup")
    sample = read_counters({"job": group}, tmp_path / "proc")
    expected = {
        "stat/cpu0/iowait": 5,
        "stat/ctxt": 77,
        "meminfo/MemTotal": 100,
        "loadavg/runnable": 4,
        "diskstats/vda/sectors_written": 7,
        "dev/eth0/transmit_errs": 4,
        "pressure/io/full": 5,
        "job/v2.cpu.pressure/some": 33,
        "job/cpuacct.usage": 1234,
        "job/memory.stat/total_rss": 2,
        "job/blkio.throttle.io_service_bytes/254:0/Read": 4096,
        "job/processes": 1,
        "job/7/state": ord("S"),
        "job/7/utime": 250,
        "job/7/stime": 40,
        "job/7/threads": 2,
        "job/7/VmSwap": 3,
        "job/7/voluntary_ctxt_switches": 8,
        "job/7/read_bytes": 4096,
    }
    assert {name: sample.get(name) for name in expected} == expected
    assert not [name for name in sample if "loop0" in name or "cpu/" in name.split("stat/")[-1][:4]]


def test_a_group_that_has_ended_has_no_processes(tmp_path):
    assert JobGroup("gone", (0,), tmp_path).processes() == []
    assert list(parse_group_file("")) == []
