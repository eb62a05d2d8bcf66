"""The odd rank, on evidence small enough to judge by reading it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustertwin.core.errors import InputError
from clustertwin.telemetry.diagnosis.evidence import (
    MAX_BYTES,
    JobEvidence,
    ProcessEvidence,
    Stack,
    Waiting,
    clean,
    merge,
    parse_evidence,
    to_json,
)
from clustertwin.telemetry.diagnosis.odd_rank import find
from clustertwin.telemetry.diagnosis.program_order import order


def in_mpi(rank: int, call: str, place: str = "step (a.py:9)") -> ProcessEvidence:
    stack = Stack(("__sched_yield", f"P{call}"), (place, "main (a.py:3)"))
    return ProcessEvidence("n1", 100 + rank, rank, "waits-in-mpi", "R", mpi_call=call, stack=stack)


def of(processes: list[ProcessEvidence], **values) -> JobEvidence:
    settings = {"size": len(processes), "messages_pass": False, **values}
    return JobEvidence("42", ("n1",), 1e9, 2.0, tuple(processes), **settings)


def waiting(count: int) -> list[ProcessEvidence]:
    return [in_mpi(rank, "MPI_Allreduce") for rank in range(count)]


def test_a_rank_in_read_is_named_with_its_file_and_the_others_with_their_call():
    ranks = waiting(8)
    ranks[3] = replace(
        ranks[3], does="blocked", state="S", mpi_call="", waiting=Waiting("read", "/scratch/x"), since_s=0.0
    )
    finding = find(of(ranks))
    assert (finding.kind, finding.ranks, finding.hang) == ("blocked-io", (3,), True)
    assert finding.sentence.startswith("Rank 3 of 8 is in read() on /scratch/x since ")
    assert finding.sentence.endswith(", and the others wait in MPI_Allreduce.")


def test_a_stopped_rank_is_named_even_if_messages_pass():
    ranks = waiting(4)
    ranks[0] = replace(ranks[0], does="stopped", state="T", mpi_call="")
    finding = find(of(ranks, messages_pass=True))
    assert (finding.kind, finding.ranks) == ("stopped", (0,))


def test_a_process_without_a_rank_that_is_stopped_beside_one_that_works_is_no_hang():
    """An editor in the background of an interactive job made the job hang, 0.99 sure."""
    works = ProcessEvidence("n1", 1, None, "computes", "R")
    stopped = ProcessEvidence("n1", 2, None, "stopped", "T")
    finding = find(of([works, stopped], size=None))
    assert (finding.kind, finding.hang) == ("progress", False)
    ranks = waiting(3)
    beside = find(of([*ranks, stopped], size=3))  # nor does it hide that the ranks wait
    assert (beside.kind, beside.hang, beside.sure) == ("stalled", True, 0.9)


def test_a_stopped_process_that_only_a_shell_waits_for_is_too_uncertain_for_an_automatic_action():
    shell = ProcessEvidence("n1", 1, None, "sleeps", "S", waiting=Waiting("wait4", ""))
    finding = find(of([shell, ProcessEvidence("n1", 2, None, "stopped", "T")], size=None))
    assert (finding.kind, finding.hang, finding.sure) == ("stopped", True, 0.6)


def test_a_stopped_rank_is_named_although_another_computes():
    ranks = waiting(2)
    ranks = [replace(ranks[0], does="computes", mpi_call=""), replace(ranks[1], does="stopped", state="T", mpi_call="")]
    finding = find(of([*ranks, ProcessEvidence("n1", 9, None, "stopped", "T")], size=2))
    assert (finding.kind, finding.ranks, finding.sure) == ("stopped", (1,), 0.99)


def test_the_shell_that_waits_for_a_program_does_not_hide_that_it_spins():
    shell = ProcessEvidence("n1", 1, None, "sleeps", "S", waiting=Waiting("wait4", ""))
    loops = [ProcessEvidence("n1", pid, None, "spins", "R", stack=Stack(("main",))) for pid in (2, 3)]
    finding = find(of([shell, *loops], size=None))
    assert (finding.kind, finding.hang) == ("spins", True)
    assert finding.sentence == "2 processes are using CPU time without writing to memory at main."
    assert find(of([shell, loops[0]], size=None)).sentence.startswith("Process 2 is using CPU time")
    # One that a signal has stopped is still told from a job that is suspended as a whole, shell and all.
    stopped = replace(loops[0], does="stopped", state="T")
    assert find(of([shell, stopped], size=None)).kind == "stopped"
    assert find(of([shell], size=None)).kind == "idle"


def test_a_rank_that_waits_for_a_program_excludes_a_hang():
    ranks = waiting(3)
    ranks[0] = replace(ranks[0], does="sleeps", state="S", mpi_call="", waiting=Waiting("wait4", ""))
    assert not find(of(ranks)).hang


def test_a_suspended_job_is_not_a_hang():
    ranks = [replace(rank, does="stopped", state="T") for rank in waiting(4)]
    assert (find(of(ranks)).kind, find(of(ranks)).hang) == ("suspended", False)


def test_messages_that_pass_exclude_a_hang_in_one_call():
    assert find(of(waiting(4))).hang
    assert not find(of(waiting(4), messages_pass=True)).hang


def test_a_rank_that_computes_excludes_a_hang():
    ranks = waiting(4)
    ranks[2] = replace(ranks[2], does="computes", mpi_call="")
    finding = find(of(ranks))
    assert (finding.kind, finding.hang, finding.ranks) == ("straggler", False, (2,))


def test_another_collective_is_at_fault_before_a_neighbour_that_waits_for_it():
    ranks = waiting(5)
    ranks[1] = in_mpi(1, "MPI_Barrier", "fail (a.py:30)")
    ranks[2] = in_mpi(2, "MPI_Sendrecv", "step (a.py:8)")
    finding = find(of(ranks))
    assert (finding.kind, finding.ranks) == ("mismatch", (1,))


def test_of_two_ranks_that_wait_for_a_message_the_one_at_the_earlier_place_is_at_fault():
    ranks = waiting(6)
    early = Stack(("PMPI_Recv",), ("fail (a.py:30)", "main (a.py:2)"))
    ranks[3] = replace(in_mpi(3, "MPI_Recv"), stack=early)
    ranks[4] = in_mpi(4, "MPI_Sendrecv", "step (a.py:8)")  # its main is at line 3
    finding = find(of(ranks))
    assert (finding.kind, finding.ranks) == ("lost-message", (3,))


def test_of_three_ranks_in_three_calls_the_earliest_collective_is_at_fault():
    early = Stack(("PMPI_Barrier",), ("fail (a.py:30)", "main (a.py:2)"))
    ranks = [
        replace(in_mpi(0, "MPI_Barrier"), stack=early),
        in_mpi(1, "MPI_Sendrecv", "step (a.py:8)"),
        in_mpi(2, "MPI_Allreduce", "step (a.py:9)"),
    ]
    assert (find(of(ranks)).kind, find(of(ranks)).ranks) == ("mismatch", (0,))


@pytest.mark.parametrize("call", ["MPI_Barrier", "MPI_Recv"])
def test_ranks_that_are_an_iteration_ahead_are_at_an_earlier_place_and_not_at_fault(call):
    # In a loop: a broadcast at line 2, an exchange and a sum in `step` at line 3, and the fault at line 4. No rank
    # leaves the sum before all have entered it. So those at lines 2 and 3 are ahead of the one at line 4.
    ranks = [
        replace(in_mpi(0, "MPI_Bcast"), stack=Stack(("PMPI_Bcast",), ("main (a.py:2)",))),
        replace(in_mpi(1, call), stack=Stack((f"P{call}",), ("fail (a.py:30)", "main (a.py:4)"))),
        in_mpi(2, "MPI_Sendrecv", "step (a.py:8)"),
        in_mpi(3, "MPI_Allreduce", "step (a.py:9)"),
    ]
    finding = find(of(ranks))
    assert (finding.ranks, finding.sure) == ((1,), 0.97)


def test_if_the_places_do_not_tell_which_rank_is_at_fault_both_are_named_with_less_certainty():
    ranks = [
        replace(in_mpi(0, "MPI_Recv"), stack=Stack(("PMPI_Recv",), ("collect (a.py:8)", "main (a.py:3)"))),
        replace(in_mpi(1, "MPI_Recv"), stack=Stack(("PMPI_Recv",), ("fail (a.py:30)", "main (a.py:4)"))),
        *(replace(in_mpi(r, "MPI_Bcast"), stack=Stack(("PMPI_Bcast",), ("main (a.py:2)",))) for r in (2, 3, 4)),
    ]
    finding = find(of(ranks))
    assert (finding.kind, finding.hang, finding.ranks, finding.sure) == ("lost-message", True, (0, 1), 0.8)
    assert finding.sentence == (
        "The ranks wait for each other, and one of these holds up the others: rank 0 of 5 in MPI_Recv at collect "
        "(a.py:8), or rank 1 of 5 in MPI_Recv at fail (a.py:30)."
    )


def test_functions_without_names_have_no_order():
    one, other = (Stack((f"? [solver+0x{place:x}]",)) for place in (16, 32))
    assert order(one, other) == 0


def test_of_two_ranks_the_one_that_waits_for_a_message_is_named():
    finding = find(of([in_mpi(0, "MPI_Recv", "a (a.py:1)"), in_mpi(1, "MPI_Allreduce", "b (a.py:2)")]))
    assert (finding.kind, finding.ranks) == ("lost-message", (0,))


def test_two_ranks_in_two_collectives_are_both_named_with_less_certainty():
    finding = find(of([in_mpi(0, "MPI_Barrier", "a (a.py:1)"), in_mpi(1, "MPI_Allreduce", "b (a.py:2)")]))
    assert finding.sure <= 0.8


def test_without_shared_memory_a_hang_is_less_certain():
    ranks = waiting(4)
    ranks[1] = in_mpi(1, "MPI_Barrier", "other (a.py:2)")
    assert find(of(ranks, messages_pass=None)).sure < find(of(ranks)).sure


def test_evidence_of_some_nodes_claims_no_hang():
    assert not find(of(waiting(4), size=8, wanted_nodes=2)).hang


def test_evidence_of_two_nodes_is_one_job():
    here, there = of(waiting(2), size=4, wanted_nodes=2), of(waiting(4)[2:], size=4, wanted_nodes=2)
    there = replace(there, nodes=("n2",), messages_pass=True)
    both = merge([here, there])
    assert (len(both.processes), both.nodes, both.messages_pass) == (4, ("n1", "n2"), True)


def test_an_ended_rank_is_named_if_the_others_wait():
    ranks = waiting(4)
    ranks[2] = replace(ranks[2], does="ended", state="")
    assert (find(of(ranks)).kind, find(of(ranks)).ranks) == ("gone", (2,))


def test_evidence_survives_json():
    ranks = waiting(3)
    ranks[0] = replace(ranks[0], waiting=Waiting("read", "/scratch/x"))
    assert parse_evidence(to_json(of(ranks))) == of(ranks)


def test_a_document_of_an_older_helper_is_read_and_one_of_a_newer_helper_is_refused():
    """An older service took a starved process for one that waits, and claimed a hang: it must refuse format 2."""
    data = to_json(of(waiting(2)))
    assert parse_evidence(data.replace(b'{"format":2,', b'{"format":1,')) == of(waiting(2))
    with pytest.raises(InputError, match="format 3 is not supported; this version reads 1 to 2"):
        parse_evidence(data.replace(b'{"format":2,', b'{"format":3,'))


def test_a_document_has_a_limit():
    deep = Stack(("f" * 200,) * 40, ("g" * 200,) * 40)
    ranks = [replace(rank, stack=deep, kernel_stack=("k" * 200,) * 40) for rank in waiting(600)]
    data = to_json(of(ranks))
    assert len(data) <= MAX_BYTES
    assert parse_evidence(data).left_out == 88


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format":1}', b'{"format":2}', b"\xff", b" " * (MAX_BYTES + 1)])
def test_what_is_not_evidence_is_refused(data):
    with pytest.raises(InputError):
        parse_evidence(data)


def test_texts_of_users_are_printable_and_short():
    assert clean("a\x1b[31mb\n") == "a [31mb "
    assert len(clean("x" * 10_000)) == 200
