"""good-io: one writer per CPU that generates records and writes them through a buffer; it rarely waits."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

import numpy as np

from clustertwin.telemetry.campaign.jobs.program_options import parser
from clustertwin.telemetry.campaign.jobs.workers import run_workers

FILE_BYTES = 48 << 20  # each writer keeps its last two files
BUFFER_BYTES = 1 << 20
RECORDS = 4096  # per write; 16 bytes each


def write_file(path: Path, rng: np.random.Generator) -> None:
    """Fill one file with records of four numbers, through a buffer."""
    with path.open("wb", buffering=BUFFER_BYTES) as out:
        while out.tell() < FILE_BYTES:
            out.write(rng.random((RECORDS, 4), dtype=np.float32).data)


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__).parse_args(argv)

    def work(index: int, cpu: int) -> None:
        rng = np.random.default_rng((options.seed, index))
        for number in count():
            write_file(options.scratch / f"good-{cpu}-{number}.bin", rng)
            # Use a new file each time: if an old file is truncated, ext4 writes its data at once and the job waits.
            (options.scratch / f"good-{cpu}-{number - 1}.bin").unlink(missing_ok=True)

    return run_workers(work, options.cpus)


if __name__ == "__main__":
    sys.exit(main())
