"""Ask squeue of this machine: states and fields of jobs -> the lines that squeue itself wrote."""

from __future__ import annotations

import secrets
import subprocess

from clustertwin.core.foreign_files import read_output

#: The longest answer that is read, and how long it may take.
MOST_BYTES, ANSWER_S = 64 << 20, 10.0


def ask_squeue(squeue: str, states: str, fields: str) -> list[str] | None:
    """A line for each job in these states; None if squeue fails or hangs.

    The name of a job may have line ends in it, and then what looks like another job. So every line begins with a mark
    that only squeue and this function know.
    """
    mark = f"{secrets.token_hex(8)}|"
    command = [squeue, "--noheader", f"--states={states}", f"--format={mark}{fields}"]
    try:
        answer = read_output(command, MOST_BYTES, ANSWER_S)
    except subprocess.TimeoutExpired:
        return None
    if answer.returncode:
        return None
    lines = answer.stdout.decode(errors="replace").split("\n")
    return [line.removeprefix(mark) for line in lines if line.startswith(mark)]
