"""A Slurm on paper: one job and one node that answer its commands, and a list of the commands that change something."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from clustertwin.core.errors import SourceError
from clustertwin.service.act.slurm_commands import FACTS, mark_of

START_S = 1_700_000_000.0

#: The fields of a job that is neither a task of an array nor a part of a heterogeneous job.
ALONE = {"ArrayTaskID": "N/A", "HetJobID": "N/A", "HetJobOffset": "N/A"}


def record(fields: dict[str, object], mark: str) -> str:
    """A job as squeue prints it: the mark follows each field."""
    return "".join(f"{fields.get(name, '')}{mark}" for name in FACTS) + "\n"


class PaperSlurm:
    def __init__(self) -> None:
        self.state, self.restarts, self.priority, self.start_s = "RUNNING", 0, 100, START_S
        self.node_reason, self.nodes, self.partition, self.account = "", "n1", "batch", "physics"
        self.uid = 1000
        self.calls: list[str] = []
        self.silent = False
        self.reservations: list[str] = []
        self.node_state = "IDLE"
        self.deaf_to_term = False
        self.end_s = 0.0

    def __call__(self, arguments: Sequence[str]) -> str:
        if self.silent:
            raise SourceError("Slurm does not answer: scontrol took longer than 20 s")
        line = " ".join(arguments)
        if arguments[0] == "scontrol" and "show" in arguments:
            return self._show(line)
        if mark := mark_of(arguments):
            return record(self._facts(arguments[-1].removeprefix("--jobs=")), mark)
        if arguments[0] == "squeue":
            return "42|ada|RUNNING|8|1|1:00:00|10:00|None\n43|bob|PENDING|8|1|30:00|0:00|Resources\n"
        if arguments[0] == "sinfo":
            if "%N|%C" in line:
                return "n1|0/8/0/8\nn7|0/4/0/4\n"
            return "0/8/0/8\n" if "%C" in line else "batch\ndebug\n"
        if arguments[0] == "sacct":
            return self._sacct(line)
        self.calls.append(line)
        self._change(arguments)
        return ""

    def _show(self, line: str) -> str:
        if "hostnames" in line:
            return self.nodes.replace(",", "\n")
        if "show node" in line:
            return f"NodeName=n1 State={self.node_state} Reason={self.node_reason}"
        if "show reservation" in line:
            return "\n".join(f"ReservationName={name} Nodes=n1" for name in self.reservations) or "No reservations"
        raise AssertionError(f"nobody asks for {line}")

    def _facts(self, job: str) -> dict[str, object]:
        start = datetime.fromtimestamp(self.start_s).isoformat(timespec="seconds")
        return {
            **ALONE, "JobID": 42, "ArrayJobID": 42, "UserID": self.uid, "UserName": "ada", "Account": self.account,
            "Partition": self.partition, "State": self.state, "StartTime": start, "NodeList": self.nodes,
            "TimeLimit": "1:00:00", "PriorityLong": self.priority, "RestartCnt": self.restarts,
        }  # fmt: skip

    def _sacct(self, line: str) -> str:
        if "TimelimitRaw" in line:
            return ""
        start = datetime.fromtimestamp(self.start_s).isoformat(timespec="seconds")
        end = datetime.fromtimestamp(self.end_s).isoformat(timespec="seconds") if self.end_s else "Unknown"
        return f"{self.state}|{start}|{end}|1\n"

    def _change(self, arguments: Sequence[str]) -> None:
        verb = arguments[0] if arguments[0] == "scancel" else arguments[1]
        if verb == "scancel" and not (self.deaf_to_term and any("TERM" in word for word in arguments)):
            self.state = "CANCELLED"
        elif verb == "requeue":
            self.state, self.restarts = "PENDING", self.restarts + 1
        elif verb == "hold":
            self.priority = 0
        elif verb == "suspend":
            self.state = "SUSPENDED"
        elif verb == "create":
            self.reservations.append(arguments[3].removeprefix("reservationname="))
        elif verb == "update":
            self.node_state = "IDLE+DRAIN"
            self.node_reason = arguments[-1].removeprefix("reason=")
