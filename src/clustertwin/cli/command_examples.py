"""An example or two for each command: the words of a command -> the lines that its `--help` ends with.

Types and bounds of options are shown in the words of a shell, not of Python.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

#: The words of a command -> what a person might type after `twin`.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("demo", "demo --no-browser --stop"),
    "doctor": ("doctor", "doctor --home /var/lib/clustertwin --repair"),
    "up": ("up", "up --replay day1 --speed 20"),
    "serve": ("serve --config twin.toml --check", "serve --config twin.toml"),
    "events list": ("events list --open", "events list --job 4711 --json"),
    "events show": ("events show 3f9c",),
    "events confirm": ("events confirm 3f9c --comment 'disk 3'",),
    "events dismiss": ("events dismiss 3f9c 71aa",),
    "events new-normal": ("events new-normal 3f9c",),
    "events undo": ("events undo 3f9c",),
    "maintenance list": ("maintenance list",),
    "maintenance add": ("maintenance add 'n0*' --for 4h --reason 'kernel upgrade'",),
    "maintenance end": ("maintenance end 2",),
    "silence list": ("silence list",),
    "silence add": ("silence add --job 4711 --for 1d --reason 'the user knows'",),
    "silence end": ("silence end 2",),
    "audit": ("audit", "audit 3f9c"),
    "act list": ("act list",),
    "act show": ("act show 12ab",),
    "act approve": ("act approve 12ab", "act approve 12ab --yes"),
    "act dismiss": ("act dismiss 12ab",),
    "act resume": ("act resume requeue-hung",),
    "act check": ("act check policy.toml",),
    "act recover": ("act recover",),
    "savings": ("savings --by cause",),
    "job": ("job 4711", "job 4711 --recording day1"),
    "token add": ("token add ada --role vet --for 90d",),
    "token list": ("token list",),
    "token remove": ("token remove ada",),
    "token reopen": ("token reopen",),
    "backup": ("backup /backups/twin.tar",),
    "restore": ("restore --check /backups/twin.tar", "restore /backups/twin.tar /var/lib/clustertwin"),
    "evidence show": ("evidence show 3f9c",),
    "top": ("top", "top --url http://127.0.0.1:8790"),
    "record": ("record --out day1 --seconds 86400", "record --out day1 --exporter http://n01:9752"),
    "recording info": ("recording info day1",),
    "recording windows": ("recording windows day1",),
    "recording export": ("recording export day1 --out day1.parquet",),
    "campaign run": ("campaign run --out mine --rounds 3 --anomalies",),
    "campaign types": ("campaign types", "campaign types --catalogue zoo"),
    "campaign simulate": ("campaign simulate --out simulated --nodes 5 --hours 2",),
    "campaign fit": ("campaign fit mine --out signatures.json",),
    "campaign compare": ("campaign compare mine simulated --out figures",),
    "study": ("study --preset quick --out study", "study detection mine --out study"),
    "train": ("train day1 --out model",),
    "model list": ("model list",),
    "model show": ("model show linear-0ce3",),
    "model promote": ("model promote linear-0ce3",),
    "model rollback": ("model rollback",),
    "model sync": ("model sync --mlflow http://mlflow:5000",),
    "learn run": ("learn run", "learn run --day 2026-11-15 --models linear"),
    "learn freeze": ("learn freeze 'new file system'",),
    "learn resume": ("learn resume",),
    "learn simulate": ("learn simulate --out month --days 7",),
    "learn timing": ("learn timing --hours 1,4 --out timing.png",),
    "digest": ("digest", "digest --days 30 --json"),
    "trace convert": ("trace convert jobs.sacct jobs.swf", "trace convert theta.csv theta.parquet --from alcf"),
    "trace clean": ("trace clean log.swf clean.swf",),
    "trace anonymise": ("trace anonymise jobs.sacct jobs.swf --secret-file secret",),
    "trace describe": ("trace describe log.swf", "trace describe log.swf --out log.png"),
    "trace compare": ("trace compare log.swf synthetic.swf --out report",),
    "trace generate": ("trace generate log.swf --out new.swf", "trace generate log.swf --load 1.3 --out busy.swf"),
    "trace generators": ("trace generators",),
    "trace study": ("trace study log.swf --generators crossover,lublin --seeds 3 --out study",),
    "trace share": ("trace share jobs.sacct --procs 217 --out shared",),
    "trace forecast": ("trace forecast log.swf --weeks 8 --plot load.png",),
    "sched simulate": ("sched simulate log.swf --policy fcfs --policy sjf --backfill easy",),
    "sched evaluate": ("sched evaluate log.swf --window 1500:2000 --policy sjf --policy policy.safetensors",),
    "sched choose": ("sched choose log.swf", "sched choose log.swf --policy sjf --policy policy.safetensors"),
    "sched train": ("sched train log.swf --hold-out 1500:2000 --out policy.safetensors",),
    "sched study": ("sched study log.swf --generator crossover --out study",),
    "sched whatif": ("sched whatif --from-slurm --policy sjf", "sched whatif --squeue queue.txt --procs 128"),
    "sched start": ("sched start --job 4711", "sched start --like '4 nodes, 2 h' --past jobs.sacct"),
    "sched search": ("sched search jobs.sacct --site /etc/slurm --candidates 40",),
    "sched try": ("sched try --site /etc/slurm --weight age=2000", "sched try --site /etc/slurm --drain 'n[1-4]'"),
    "sched simulate-site": ("sched simulate-site jobs.sacct --site /etc/slurm",),
    "sched validate": ("sched validate jobs.sacct --site /etc/slurm",),
    "sched compare-config": ("sched compare-config jobs.sacct --site /etc/slurm --site new",),
}  # fmt: skip


def attach(command: Any, words: str) -> None:
    """Give a command, or each command of a group, its examples."""
    for name, inner in getattr(command, "commands", {}).items():
        attach(inner, f"{words} {name}")
    for parameter in command.params:
        if hasattr(parameter, "display_type"):
            parameter.display_type = partial(_plain_type, parameter.display_type)
            parameter._get_number_range_help_str = partial(_plain_range, parameter)
    if lines := EXAMPLES.get(words, ()):
        heading = "Examples:" if len(lines) > 1 else "Example:"
        # \b keeps the line breaks of a paragraph.
        command.epilog = "\n".join(["\b", heading, *(f"  twin {line}" for line in lines)])


#: A bound beyond this keeps absurd numbers out. It does not help a reader.
MOST_TOLD = 1e8


def _plain_type(typed: Any, ctx: Any = None) -> str:
    """`<int range>`, `<list[str]>` and `<list[Path]>` -> `<int>`, `<text>` and `<path>`."""
    plain = re.sub(r"^<list\[(.*)\]>$", r"<\1>", typed(ctx=ctx)).replace(" range>", ">")
    return {"<str>": "<text>", "<Path>": "<path>", "<%Y-%m-%d>": "<date>"}.get(plain, plain)


def _plain_range(parameter: Any) -> str | None:
    """`1<=x<=30` -> `1 to 30`."""
    low = parameter.min or None
    high = None if parameter.max is None or parameter.max >= MOST_TOLD else parameter.max
    if high is None:
        return None if low is None else f"at least {low:g}"
    return f"at most {high:g}" if parameter.min is None else f"{parameter.min:g} to {high:g}"
