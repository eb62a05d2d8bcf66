"""Evidence that a helper, or a program through its environment, made up: refused in one sentence, or judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from clustertwin.core.errors import InputError
from clustertwin.telemetry.diagnosis.evidence import (
    MAX_BYTES,
    JobEvidence,
    ProcessEvidence,
    Stack,
    Waiting,
    merge,
    parse_evidence,
    to_json,
)
from clustertwin.telemetry.diagnosis.job_processes import find_tree
from clustertwin.telemetry.diagnosis.odd_rank import find

PROCESSES = (
    ProcessEvidence("n1", 7, 0, "waits-in-mpi", "R", mpi_call="MPI_Barrier", stack=Stack(("read", "main"))),
    ProcessEvidence("n1", 8, 1, "blocked", "S", waiting=Waiting("read", "/x"), since_s=1.7e9),
)
GOOD = json.loads(to_json(JobEvidence("42", ("n1",), 1.7e9, 2.0, PROCESSES, size=2, messages_pass=False)))
VALUES = (
    None,
    True,
    -1,
    -9e10,
    10**30,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "9" * 5000,
    "\x1b[2J",
    [],
    {},
    [[]],
    {"a": {}},
)


def judged(document: object) -> None:
    try:
        evidence = parse_evidence(json.dumps(document).encode())
    except InputError:
        return  # one sentence
    finding = find(evidence)
    assert len(finding.ranks) <= 1000
    parse_evidence(to_json(evidence))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:12])
def test_no_value_of_any_field_is_a_crash(value):
    for key in (*GOOD, "unknown"):
        judged({**GOOD, key: value})
    for number in range(2):
        for key in (*GOOD["processes"][0], "unknown"):
            processes = [dict(process) for process in GOOD["processes"]]
            processes[number][key] = value
            judged({**GOOD, "processes": processes})


def test_a_document_without_a_field_is_refused():
    for key in GOOD:
        with pytest.raises(InputError, match="this is not evidence"):
            parse_evidence(json.dumps({name: value for name, value in GOOD.items() if name != key}).encode())


def test_a_job_that_claims_a_million_ranks_is_not_a_hang():
    finding = find(parse_evidence(json.dumps({**GOOD, "size": 1_000_000}).encode()))
    assert (finding.kind, finding.hang, finding.ranks) == ("unknown", False, ())


@pytest.mark.parametrize("size", ["9" * 12, "-1", "", "x", "\u0663"])
def test_a_size_in_the_environment_that_is_none_is_not_read(size):
    code = "import time; print('ready', flush=True); time.sleep(60)"
    env = {**os.environ, "PMI_RANK": "0", "PMI_SIZE": size}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = find_tree(process.pid)
        process.kill()
    assert (len(found.ranks), found.size) == (1, None)


def test_the_evidence_of_helpers_that_count_too_much_can_be_read_again():
    """One of two nodes made the stored evidence of an event unreadable, for ever."""
    processes = [{**GOOD["processes"][0], "rank": rank} for rank in range(600)]
    huge = {"refused": 1 << 62, "left_out": 1 << 62, "cpu_s": 9e10, "cgroup": {"oom": 1 << 62, "x": -(1 << 62)}}
    part = parse_evidence(json.dumps({**GOOD, **huge, "processes": processes}).encode())
    assert parse_evidence(to_json(part)).left_out == 1 << 62
    merged = merge([part, part], wanted_nodes=2)
    assert parse_evidence(to_json(merged)).refused == 1 << 62


@pytest.mark.parametrize("change", ["nodes", "cgroup"])
def test_a_document_that_is_too_large_without_its_processes_has_an_end(change):
    """Letters that JSON writes with twelve characters: two helpers could send what was shortened for ever."""
    names = [f"{number}" + 190 * "\U0001f600" for number in range(64)]
    half = {"nodes": names} if change == "nodes" else {"cgroup": dict.fromkeys(names, 1)}
    part = parse_evidence(json.dumps({**GOOD, **half}, ensure_ascii=False).encode())
    other = replace(part, cgroup={f"x{name}": value for name, value in part.cgroup.items()})
    assert len(to_json(merge([part, other]))) <= MAX_BYTES
