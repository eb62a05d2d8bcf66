"""Take evidence in a process of its own: a job on this node -> its evidence, or one sentence after a limit of time.

The files of a process may block their reader: a page of its memory may wait for a file system that does not answer, or
for the user who provides it. Such a reader can be killed, and the service and the helper go on.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from clustertwin.core.errors import SourceError
from clustertwin.core.foreign_files import end_program
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, parse_evidence

TIMEOUT_S = 25.0
#: The end of the sentence of `twin evidence take` if the job is not here.
NO_PROCESS = "has no process on this node"


def take_in_subprocess(
    job: str,
    owner: int | None,
    node: str,
    timeout_s: float = TIMEOUT_S,
    cgroup: str = "",
    enter: Callable[[], None] | None = None,
) -> JobEvidence | None:
    """The evidence of a job on this node; None if it has no process here.

    The job is found by its id, or in the directory of its cgroup. The new process calls `enter` first.
    """
    command = [sys.executable, "-m", "clustertwin.telemetry.diagnosis", "take", "--json", f"--job={job}"]
    if owner is not None:
        command.append(f"--owner={owner}")
    if node:
        command.append(f"--node={node}")
    if cgroup:
        command.append(f"--cgroup={cgroup}")
    try:
        taking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=enter)
        try:
            output, errors = taking.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"no evidence of job {job}: it took longer than {timeout_s:.0f} s") from error
        finally:
            if taking.returncode is None:
                end_program(taking)
    except OSError as error:
        raise SourceError(f"no evidence of job {job}: {error.strerror}") from error
    if taking.returncode:
        text = " ".join(errors.decode("utf-8", "replace").removeprefix("twin: ").split())[:200]
        if NO_PROCESS in text:
            return None
        raise SourceError(f"no evidence of job {job}: {text}")
    return parse_evidence(output.strip(), "evidence of this host")
