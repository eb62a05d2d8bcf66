"""mpi-N: ranks that compute for a random time and then call Allreduce; options add a slow or a hung rank.

Start it with `mpiexec -n N python -m …mpi`. Each rank pins itself to one CPU of its node, in rank order.
"""

from __future__ import annotations

import signal
import sys
import time

import numpy as np

from clustertwin.core.extras import require
from clustertwin.telemetry.campaign.jobs.compute import compute, new_block
from clustertwin.telemetry.campaign.jobs.pinning import node_name, pin, this_nodes_cpus
from clustertwin.telemetry.campaign.jobs.program_options import parser

STEP_S = (0.3, 1.2)  # in each step, every rank draws its compute time uniformly from this range
MESSAGE_FLOATS = 1 << 17  # 1 MB is summed over all ranks


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--slow-rank", type=int, default=-1, help="rank that computes --factor times as long")
    options.add_argument("--factor", type=float, default=1.0)
    options.add_argument("--hang-rank", type=int, default=-1, help="rank that stops after --hang-after-s")
    options.add_argument("--hang-after-s", type=float, default=0.0)
    options.add_argument("--misbound", action="store_true", help="pin all ranks to the first CPU")
    chosen = options.parse_args(argv)
    mpi = require("mpi4py.MPI", "campaign")
    world, rank = mpi.COMM_WORLD, mpi.COMM_WORLD.Get_rank()

    cpus = this_nodes_cpus(chosen.cpus)
    nodes = world.allgather(node_name())  # several Slurm nodes can share a host, so the hostname is not enough
    place = nodes[:rank].count(nodes[rank])  # number of this rank on its node
    pin((cpus[0 if chosen.misbound else place % len(cpus)],))

    rng, start_s = np.random.default_rng((chosen.seed, rank)), time.monotonic()
    block, message, total = new_block(rng), np.zeros(MESSAGE_FLOATS), np.empty(MESSAGE_FLOATS)
    while True:
        compute(rng.uniform(*STEP_S) * (chosen.factor if rank == chosen.slow_rank else 1.0), block)
        if rank == chosen.hang_rank and time.monotonic() - start_s > chosen.hang_after_s:
            signal.pause()
        world.Allreduce(message, total)


if __name__ == "__main__":
    sys.exit(main())
