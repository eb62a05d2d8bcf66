"""throttled: run a program for only a share of each tenth of a second, as under a CPU quota; `… -- COMMAND`.

Stopping and continuing the program needs no privileges and has the effect of the kernel's own bandwidth limit.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time

from clustertwin.telemetry.campaign.jobs.workers import die_with_parent

PERIOD_S = 0.1  # the kernel's default bandwidth period


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--share", type=float, default=0.7, help="fraction of the time that the program can run")
    options.add_argument("command", nargs=argparse.REMAINDER)
    chosen = options.parse_args(argv)
    command = chosen.command[1:] if chosen.command[:1] == ["--"] else chosen.command
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # In its own process group, one signal stops the program and its workers but not this process.
    program = subprocess.Popen(command, preexec_fn=die_with_parent, process_group=0)
    try:
        while program.poll() is None:
            time.sleep(PERIOD_S * chosen.share)
            os.killpg(program.pid, signal.SIGSTOP)
            time.sleep(PERIOD_S * (1 - chosen.share))
            os.killpg(program.pid, signal.SIGCONT)
        return program.returncode
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


if __name__ == "__main__":
    sys.exit(main())
