"""Measure what evidence says of busy processes without page faults: real loops that spin, real solvers that work.

    python benchmarks/spins.py --looks 6

Both keep a CPU busy, read and write nothing, and touch no new memory, so the service suspects both. A look of two
seconds decides: a claim is false for a solver and right for a loop that spins. The service opens an event only after
two looks that claim the same, half a minute apart; here every two looks in a row count as such a pair. Needs a C
compiler.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from clustertwin.telemetry.diagnosis.evidence_subprocess import take_in_subprocess
from clustertwin.telemetry.diagnosis.odd_rank import find

READY = 'puts("ready"); fflush(stdout);'
HEAD = "#include <stdio.h>\n#include <stdlib.h>\n#include <pthread.h>\n#include <math.h>\n#include <omp.h>\n"


def threads(*functions: str) -> str:
    """Start a thread for each function, and sleep until the first one ends."""
    starts = " ".join(f"pthread_create(&id[{i}], 0, {name}, 0);" for i, name in enumerate(functions))
    return f"pthread_t id[{len(functions)}]; {starts} {READY} pthread_join(id[0], 0);"


#: Name -> C source. `spins` never ends; all others compute for ever in memory that they have touched before.
SOURCES: dict[str, str] = {
    "spins: a flag that nobody sets": f"volatile int flag; int main(void) {{ {READY} while (!flag); }}",
    "spins: a spin lock that is held": "pthread_spinlock_t lock; int main(void) { pthread_spin_init(&lock, 0);"
    f" pthread_spin_lock(&lock); {READY} pthread_spin_lock(&lock); }}",
    "spins: it yields while it waits": "#include <sched.h>\nvolatile int flag;"
    f" int main(void) {{ {READY} while (!flag) sched_yield(); }}",
    "spins: two threads wait for a flag, the first one sleeps": "volatile int flag; void *wait_for(void *_)"
    " { while (!flag); return _; }"
    f" int main(void) {{ {threads('wait_for', 'wait_for')} }}",
    "spins: OpenMP threads at a barrier that one never reaches": f"#include <unistd.h>\nint main(void) {{ {READY}"
    "\n#pragma omp parallel num_threads(2)\n{ if (omp_get_thread_num() == 1) pause();\n#pragma omp barrier\n} }",
    "works: OpenMP threads sweep over 8 MB and wait for each other": "enum { N = 1 << 20 }; double a[N], b[N];"
    f" int main(void) {{ for (long i = 0; i < N; i++) a[i] = i % 17; {READY}"
    "\n#pragma omp parallel num_threads(2)\nfor (;;) {\n#pragma omp for\n"
    " for (long i = 1; i < N - 1; i++) b[i] = 0.25 * (a[i - 1] + 2 * a[i] + a[i + 1]);\n#pragma omp for\n"
    " for (long i = 1; i < N - 1; i++) a[i] = b[i]; } }",
    "works: two threads sum a series, the first one sleeps": "void *sum(void *_) {"
    " volatile double total = 0; double s = 0;"
    " for (double k = 1; k > 0; k += 2) { s += 1 / (k * k); if (s > 9) total = s; } return _; }"
    f" int main(void) {{ {threads('sum', 'sum')} }}",
    "works: one thread sweeps over 8 MB, one waits for it": "enum { N = 1 << 20 }; double a[N]; volatile int flag;"
    " void *wait_for(void *_) { while (!flag); return _; } void *sweep(void *_) {"
    " for (;;) for (long i = 1; i < N - 1; i++) a[i] = 0.25 * (a[i - 1] + 2 * a[i] + a[i + 1]); return _; }"
    f" int main(void) {{ for (long i = 0; i < N; i++) a[i] = i % 17; {threads('wait_for', 'sweep')} }}",
    "works: Jacobi sweeps over 8 MB": "enum { N = 1 << 20 }; double a[N]; int main(void) {"
    f" for (long i = 0; i < N; i++) a[i] = i % 17; {READY}"
    " for (;;) for (long i = 1; i < N - 1; i++) a[i] = 0.25 * (a[i - 1] + 2 * a[i] + a[i + 1]); }",
    "works: Jacobi sweeps over 1 GB": "enum { N = 1 << 27 }; double a[N]; int main(void) {"
    f" for (long i = 0; i < N; i++) a[i] = i % 17; {READY}"
    " for (;;) for (long i = 1; i < N - 1; i++) a[i] = 0.25 * (a[i - 1] + 2 * a[i] + a[i + 1]); }",
    "works: products of matrices of 1000": "enum { N = 1000 }; double a[N][N], b[N][N], c[N][N]; int main(void) {"
    f" for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) a[i][j] = b[i][j] = c[i][j] = i ^ j; {READY}"
    " for (;;) for (int i = 0; i < N; i++) for (int k = 0; k < N; k++) for (int j = 0; j < N; j++)"
    " c[i][j] += 1e-9 * a[i][k] * b[k][j]; }",
    "works: a series in floating-point registers": f"int main(void) {{ double s = 0; {READY}"
    ' for (double k = 1; k > 0; k += 2) s += 1 / (k * k); printf("%f", s); }',
    "works: random numbers in registers": f"int main(void) {{ unsigned long x = 88172645463325252UL, hits = 0; {READY}"
    " for (unsigned long n = 0; n < ~0UL; n++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; hits += x >> 63; }"
    ' printf("%lu", hits); }',
}
#: Name -> Python source.
SCRIPTS: dict[str, str] = {
    "works: conjugate gradients in numpy": """
import numpy as np
a = np.random.default_rng(0).random((400, 400)); a = a @ a.T + 400 * np.eye(400)
r = np.ones(400); x = np.zeros(400); p = r.copy(); q = np.empty(400)
print("ready", flush=True)
while True:
    np.dot(a, p, out=q); step = r @ r / (p @ q); x += step * p; p *= 0.5; p += 1e-3
""",
    "works: checksums in Python": """
import hashlib
text = b"x" * 10_000_000
print("ready", flush=True)
while True: text and hashlib.sha256(text).digest()
""",
}


def build(folder: Path) -> dict[str, list[str]]:
    """Name -> command."""
    commands = {name: [sys.executable, "-c", script] for name, script in SCRIPTS.items()}
    for number, (name, source) in enumerate(SOURCES.items()):
        binary = folder / f"program{number}"
        subprocess.run(
            ["cc", "-O2", "-pthread", "-fopenmp", "-x", "c", "-", "-o", str(binary), "-lm"],
            input=HEAD + source,
            text=True,
            check=True,
        )
        commands[name] = [str(binary)]
    return dict(sorted(commands.items()))


def look_at(command: list[str], looks: int) -> list[tuple[str, bool]]:
    """Kind and claim of each look at a running program."""
    job = str(10**8 + os.getpid())
    environment = {
        **os.environ,
        "SLURM_JOB_ID": job,
        "SLURM_PROCID": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "active",
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as program:
        try:
            assert program.stdout is not None
            program.stdout.readline()
            found = []
            for _ in range(looks):
                evidence = take_in_subprocess(job, os.getuid(), "n1")
                assert evidence is not None
                finding = find(evidence)
                found.append((finding.kind, finding.hang))
            return found
        finally:
            program.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--looks", type=int, default=6, help="at each program, at least 2")
    options = parser.parse_args()
    print("| recorded | looks | hang claimed | pairs of looks | both claim the same |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, command in build(Path(folder)).items():
            found = look_at(command, options.looks)
            pairs = list(pairwise(found))
            agree = sum(first == second and first[1] for first, second in pairs)
            print(f"| {name} | {len(found)} | {sum(hang for _, hang in found)} | {len(pairs)} | {agree} |", flush=True)


if __name__ == "__main__":
    main()
