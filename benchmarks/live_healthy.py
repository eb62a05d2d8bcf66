"""A queue of healthy jobs in a real Slurm, watched by a real service: every event that opens is false.

    python benchmarks/live_healthy.py [--only interactive java …] [--seconds 300] [--cpus 2] [--json FILE]

The jobs are what people run beside the codes of the zoo: an interactive shell, workers of a task queue, a backup,
compilers, servers that nobody asks most of the time, jobs of an array. No rule of detection was chosen on them. A job
lasts `--seconds`, and jobs of one CPU share the node, as at a site. The service is the one of `live_faults.py`. It
needs root and the packages of deploy/install-test-servers; a job whose program is missing is left out and named.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.slurm import reason_to_skip, slurm_cluster

from benchmarks.live_faults import ask, running_service


@dataclass(frozen=True, slots=True)
class HealthyJob:
    """A shell script, repeated until the job ends. It runs in an empty folder; `$PYTHON` has numpy."""

    about: str
    cpus: int
    script: str
    needs: tuple[str, ...] = ()


JOBS = {
    "interactive": HealthyJob(
        "a person in a shell: short commands, and pauses of up to a minute",
        1,
        "ls -R /usr/lib | wc -l; sleep $((RANDOM % 50 + 10)); grep -rl import /usr/lib/python3 | head -500 | wc -l",
    ),
    "worker": HealthyJob(
        "a worker of a task queue: computes for 5 to 25 s, and waits for as long",
        1,
        "timeout $((RANDOM % 20 + 5)) sha256sum /dev/zero; sleep $((RANDOM % 20 + 5))",
    ),
    "backup": HealthyJob(
        "an archive of system files, compressed, with check sums, copied and compared",
        1,
        "tar -c /usr/lib/python3* /usr/share/doc 2>/dev/null | gzip -3 >a.tgz; sha256sum a.tgz; cp a.tgz b.tgz; "
        "sync b.tgz; cmp a.tgz b.tgz; rm b.tgz; sleep 3",
    ),
    "git": HealthyJob(
        "a clone, a repack of its history, and searches in it",
        1,
        'rm -rf c; git clone -q --no-local "$REPOSITORY" c; cd c; git gc -q --aggressive; git fsck; git log -p -S numpy'
        " --oneline | wc -l; cd ..",
        ("git",),
    ),
    "array": HealthyJob(
        "a sweep: one short program after the other, each of a few seconds",
        1,
        '$PYTHON -c "import numpy as np; a = np.random.rand(900, 900)\nfor _ in range(20): a = a @ a; a /= a.max()"',
    ),
    "java": HealthyJob(
        "a compiler and a program of Java that makes garbage",
        2,
        """[ -e G.class ] || { cat >G.java <<'END'
import java.util.*;
public class G { public static void main(String[] a) { long n = 0; for (int r = 0; r < 40; r++) {
Map<Integer, int[]> m = new HashMap<>(); for (int i = 0; i < 300000; i++) m.put(i, new int[50]);
n += m.size(); } System.out.println(n); } }
END
javac G.java; }; java -Xmx1g G""",
        ("javac", "java"),
    ),
    "stages": HealthyJob(
        "an analysis: one core prepares, two compute, one writes the result",
        2,
        "for i in 1 2 3; do seq 1 3000000 | sort -R >r; done; "
        "for i in 1 2; do sort -n r | sha256sum & done; timeout 50 sha256sum /dev/zero & "
        "timeout 48 sha256sum /dev/zero & wait; gzip -9 <r >r.gz; sync r.gz",
    ),
    "training": HealthyJob(
        "epochs of learning: load, fit on all cores, judge, save",
        2,
        """$PYTHON -c "
import numpy as np, os
rng = np.random.default_rng(0)
for epoch in range(3):
    x = rng.normal(size=(60000, 300)); y = x @ rng.normal(size=300)
    for _ in range(60):
        w = np.linalg.solve(x.T @ x, x.T @ y)
    error = sorted(abs(x[i] @ w - y[i]) for i in range(40000))
    np.save('model.npy', x); os.sync()
\"""",
    ),
    "copy-out": HealthyJob(
        "computes for a minute, and then writes, flushes and reads its results for half a minute",
        1,
        "timeout 60 sha256sum /dev/zero; for i in $(seq 30); do dd if=/dev/urandom of=out bs=1M count=60 conv=fsync; "
        "cat out >/dev/null; sleep .3; done; rm out",
    ),
    "grow": HealthyJob(
        "reads a table into 1.2 GB of memory over a minute, and then works on it",
        1,
        """$PYTHON -c "
import time
table = {}
for i in range(60):
    for j in range(60000): table[i * 60000 + j] = str(j) * 3
    time.sleep(.4)
for _ in range(60): n = sum(len(v) for v in table.values())
\"""",
    ),
    "rust": HealthyJob(
        "a compiler of Rust that optimises one large file",
        1,
        """{ for i in $(seq 400); do echo "pub fn f$i(v: &[u64]) -> u64 { \
let mut m = std::collections::BTreeMap::new(); for x in v { *m.entry(x ^ $i).or_insert(0u64) += x % ($i + 3); } \
m.values().copied().fold($i, |a, b| a ^ b) }"; done; \
echo 'fn main() {}'; } >m.rs; rustc -O --crate-type lib -o libm.rlib m.rs""",
        ("rustc",),
    ),
    "node": HealthyJob(
        "a server of JavaScript and a client that asks it in bursts",
        1,
        """node -e "
const http = require('http');
const s = http.createServer((q, r) => { let n = 0; for (let i = 0; i < 3e6; i++) n += i % 7; r.end('' + n); });
s.listen(0, '127.0.0.1', async () => { for (let b = 0; b < 9; b++) {
  for (let i = 0; i < 400; i++) await fetch('http://127.0.0.1:' + s.address().port).then(a => a.text());
  await new Promise(f => setTimeout(f, 4000)); } process.exit(); });
\"""",
        ("node",),
    ),
    "perl": HealthyJob(
        "text is parsed, counted and sorted in a pipeline",
        1,
        "find /usr/share/doc /usr/lib/python3 -type f -size -200k -print0 2>/dev/null | xargs -0 cat 2>/dev/null | "
        "perl -ne 'for (/\\w+/g) { $n{$_}++ } END { print \"$n{$_} $_\\n\" for keys %n }' | sort -rn | head",
        ("perl",),
    ),
    "server": HealthyJob(
        "a server that nobody asks for most of the time",
        1,
        "$PYTHON -m http.server 0 --bind 127.0.0.1 & p=$!; sleep $((RANDOM % 30 + 30)); kill $p; "
        "timeout 4 sha256sum /dev/zero",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=JOBS, default=tuple(JOBS), metavar="JOB")
    parser.add_argument("--seconds", type=float, default=300.0, help="of each job")
    parser.add_argument("--cpus", type=int, default=os.cpu_count(), help="of the node, beginning with the first")
    parser.add_argument("--json", type=Path, help="write the events to this file too")
    options = parser.parse_args()
    if reason := reason_to_skip():
        sys.exit(f"live healthy: {reason}")
    cache = Path(tempfile.mkdtemp(prefix="live-healthy-"))
    name = os.uname().nodename.partition(".")[0]
    submitted: dict[str, str] = {}
    with (
        slurm_cluster(Path(tempfile.mkdtemp(prefix="live-slurm-")), {name: tuple(range(options.cpus))}, True) as slurm,
        running_service(slurm, cache) as service,
    ):
        for job in options.only:
            if missing := [need for need in JOBS[job].needs if shutil.which(need) is None]:
                print(f"{job}: left out, {', '.join(missing)} not installed", file=sys.stderr)
                continue
            script = cache / job / "job.sh"
            script.parent.mkdir()
            script.write_text(script_of(JOBS[job], options.seconds))
            asked = ("--parsable", "-n", str(JOBS[job].cpus), "-t", "60", "-D", str(script.parent), "-J", job)
            number = slurm.run("sbatch", *asked, "-o", str(script.parent / "output"), str(script)).strip()
            submitted[number] = job
        while slurm.run("squeue", "-h"):
            time.sleep(5.0)
            print(f"\r{len(slurm.run('squeue', '-h').splitlines())} jobs left ", end="", file=sys.stderr, flush=True)
        events = ask(f"{service}/api/v1/events?limit=1000")["events"]
        states = slurm.run("sacct", "-n", "-P", "-X", "-o", "JobID,State,Elapsed")
    print(f"\n{states}", file=sys.stderr)
    hours = len(submitted) * options.seconds / 3600
    print(f"{len(events)} false events in {len(submitted)} healthy jobs, {hours:.2f} h of jobs (recorded, live)")
    for event in events:
        print(f"{event['cause']}: {event['title']}")
    if options.json:
        options.json.write_text(json.dumps({"jobs": submitted, "events": events}, indent=1))


def script_of(job: HealthyJob, seconds: float) -> str:
    return (
        f"#!/bin/bash\nexport PYTHON={sys.executable} REPOSITORY={Path(__file__).parents[1]}\n"
        f"export OMP_NUM_THREADS={job.cpus}\nend=$((SECONDS + {seconds:.0f}))\n"
        f"work() {{\n{job.script}\n}}\n"
        "(while true; do work || sleep .2; done) >/dev/null &\nsleep $((end - SECONDS))\n"
    )


if __name__ == "__main__":
    main()
