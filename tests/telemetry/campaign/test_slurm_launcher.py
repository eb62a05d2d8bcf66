"""The script for sbatch and the output of sacct, as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.campaign.plan import PlannedJob
from clustertwin.telemetry.campaign.slurm_launcher import batch_script, parse_accounting

ACCOUNTING = """\
7|n[1-2]|2|1794781208|1794781213|COMPLETED|ada
8|None assigned|0|Unknown|Unknown|PENDING|ada
9|n1|1|1794781214|Unknown|RUNNING|ada
10|n1|1|1794781214|1794781219|CANCELLED by 0|ada
"""


def test_accounting_gives_user_nodes_and_times() -> None:
    row = parse_accounting(ACCOUNTING)["7"]
    assert (row.nodes, row.cpus, row.start_s, row.end_s, row.user) == ("n[1-2]", 2, 1794781208, 1794781213, "ada")


def test_only_jobs_in_a_final_state_have_ended() -> None:
    assert [job_id for job_id, row in parse_accounting(ACCOUNTING).items() if row.ended] == ["7", "10"]


def test_a_line_of_other_fields_is_refused() -> None:
    with pytest.raises(SourceError, match="2 fields instead of 7"):
        parse_accounting("7|n1\n")


def test_a_job_without_ranks_runs_on_every_node_of_its_own_scratch() -> None:
    script = batch_script(PlannedJob("01-np", "np", 2, 5.0, 3), {"n1": (0,), "n2": (1,)}, Path("/disk/my job"))
    assert "export CLUSTERTWIN_NODE_CPUS='n1=0 n2=1'" in script
    assert "exec srun --ntasks-per-node=1" in script
    assert "$SLURMD_NODENAME" in script


def test_mpi_is_started_once_and_spreads_itself() -> None:
    script = batch_script(PlannedJob("01-mpi-2", "mpi-2", 2, 5.0, 3), {"n1": (0,), "n2": (1,)}, Path("/disk/x"))
    assert "srun" not in script
    assert "--ranks 2" in script
