"""Write the card of a data package: a folder of raw runs -> README.md with its runs, programs and licence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from clustertwin.core import files
from clustertwin.telemetry.campaign.zoo.raw_run import SUFFIX
from clustertwin.telemetry.campaign.zoo.zoo_data import MOST_FOREIGN, ZooRun, load_zoo, summary_of
from clustertwin.telemetry.campaign.zoo.zoo_faults import FAULTS

_INTRODUCTION = """# The zoo: recorded runs of real programs with imposed faults

Recorded data, not simulated. Every file is one run of one program: a healthy phase, then faults with
a recovery between two of them. `docs/campaigns.md` describes the programs, the faults and the
command.

    twin campaign run --catalogue zoo --out data/zoo --cpus 1

    from clustertwin.telemetry.campaign.zoo.zoo_data import load_zoo
    runs = list(load_zoo())

Licence: CC0 1.0 (public domain). The programs have licences of their own; nothing of them is here.
"""
_CHANNELS = """## What a file holds

One sample a second of the kernel's own counters, as named integers; the names are the kernel's. Node:
`stat`, `meminfo`, `vmstat`, `loadavg`, `diskstats`, `dev` (network), `pressure`. Job (`job/…`) and the
group of the processes that disturb it (`neighbours/…`): CPU time, throttling, memory, I/O, pressure, and
of each process its state, CPU time, page faults, context switches and I/O. Looks (format 2): evidence of the
job's processes every 15.5 s, without arguments, paths and names of users and hosts; `looks/cpuacct.usage` is the
CPU time that they cost. Labels: program, version, command, CPUs, phases with the seconds of onset and end, and
CPU seconds of the healthy phase.

- *job CPU* is the CPU time of the job in the healthy phase, as a part of the time of the recorded CPUs.
- *other work* is the busy time that the job did not use. A run with more than {most:.0%} is marked with \\*.
- *looks* is the number of looks at the job's processes. In runs without looks the fault `spinning` is another
  one: the program is stopped, and an empty shell loop in its group takes its CPU. In runs with looks, the threads of
  the program spin where they are.
- `{suffix}` files are xz-compressed JSON lines; `zoo/raw_run.py` describes them.
"""


#: What people write below this heading is kept.
_BY_HAND = "\n## How these runs were made\n"


def card_of(runs: Sequence[ZooRun], size_bytes: int) -> str:
    """The text of the card."""
    rows = [summary_of(run) for run in runs]
    header = "| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0])
    lines = [
        "| " + " | ".join(str(value) for value in row.values()) + (r"\*" if run.is_disturbed else "") + " |"
        for run, row in zip(runs, rows, strict=True)
    ]
    met = Counter(phase.fault for run in runs for phase in run.phases)
    faults = ", ".join(f"{name} {met[name]}" for name in FAULTS)
    hours = sum(len(run.raw.times_s) for run in runs) / 3600
    hosts = sorted({_host(run) for run in runs})
    return "\n".join(
        (
            _INTRODUCTION,
            f"{len(runs)} runs of {len({run.program for run in runs})} programs, {hours:.1f} hours, "
            f"{size_bytes / 1e6:.1f} MB.",
            *(f"Recorded {host}." for host in hosts),
            f"Runs with each fault: {faults}.",
            "",
            "## Runs",
            "",
            header,
            *lines,
            "",
            _CHANNELS.format(most=MOST_FOREIGN, suffix=SUFFIX),
        )
    )


def _host(run: ZooRun) -> str:
    labels = run.raw.labels
    day = datetime.fromtimestamp(run.raw.times_s[0], UTC).date()
    unrecorded = labels["cpu_count"] - len(labels["cpus"])
    others = f"; its other CPUs ({unrecorded}) carried other work" if unrecorded else ""
    cpus = ", ".join(map(str, labels["cpus"]))
    return f"on {day}, Linux {labels['kernel']}, CPU {cpus} of a host with {labels['cpu_count']}{others}"


def write_card(folder: Path) -> Path:
    """Write the card beside the runs; what people have written at its end stays."""
    runs = list(load_zoo(folder))
    path = folder / "README.md"
    _, heading, by_hand = (path.read_text() if path.exists() else "").partition(_BY_HAND)
    card = card_of(runs, sum(file.stat().st_size for file in folder.glob(f"*{SUFFIX}")))
    files.write(path, card + heading + by_hand)
    return path
