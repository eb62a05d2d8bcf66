"""Run `twin sched search`: a log, a site and objectives -> a Pareto front of weights, and lines for slurm.conf."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from clustertwin.cli.output import err, print_json, print_table
from clustertwin.cli.sched_options import SearchOptions
from clustertwin.cli.step_progress import step_progress
from clustertwin.core import files
from clustertwin.workload.slurm.joblog.job_readers import read_log
from clustertwin.workload.slurm.site.site_directory import read_site
from clustertwin.workload.slurm.weight_search import (
    OBJECTIVES,
    SearchSettings,
    WeightPoint,
    conf_fragment,
    parse_objectives,
    search_weights,
    worse_on_the_rest,
)


def run_search(options: SearchOptions) -> None:
    """Search, print the front, and write the chosen weights."""
    names = parse_objectives(options.objective)
    if options.out is not None:
        files.refuse_existing(options.out, options.force)
    log, site = read_log(options.log), read_site(options.site)
    log = log.first(options.jobs) if options.jobs else log
    settings = SearchSettings(options.candidates, options.first_part, options.seed)
    with step_progress() as show:
        points = search_weights(site, log, names, settings, show)
    chosen = next(point for point in points if point.chosen)
    if options.out is not None and not chosen.present:
        about = [
            f"twin sched search {options.log.name} --objective {','.join(names)} --candidates {options.candidates} "
            f"--first-part {options.first_part:g} --seed {options.seed}"
        ]
        files.write(options.out, conf_fragment(chosen, points[0], about))
    if options.json:
        print_json(_document(options, points))
    else:
        _print_front(options, points)


def _document(options: SearchOptions, points: list[WeightPoint]) -> dict[str, Any]:
    return {
        "objectives": {name: OBJECTIVES[name][0] for name in parse_objectives(options.objective)},
        "candidates": options.candidates,
        "first_part": options.first_part,
        "seed": options.seed,
        "points": [asdict(point) for point in points],
    }


def _print_front(options: SearchOptions, points: list[WeightPoint]) -> None:
    names = list(points[0].first)
    print_table(
        f"{options.log.name}: the best of {options.candidates} candidates on the first {options.first_part:.0%} of the "
        "jobs, judged on the rest (simulated)",
        ["", *points[0].weights, *(f"{name}, first" for name in names), *(f"{name}, rest" for name in names)],
        [
            [" ".join(word for word, on in (("present", p.present), ("front", p.on_front), ("chosen", p.chosen)) if on),
             *(round(value) for value in p.weights.values()), *p.first.values(), *p.last.values()]
            for p in points
        ],
        whole=[""],
    )  # fmt: skip
    for name in names:
        err.print(f"{name}: {OBJECTIVES[name][0]}", highlight=False)
    if points[0].chosen:
        err.print("no candidate is better on average than the present weights; nothing is written")
    elif options.out is not None:
        err.print(f"the chosen weights are in {options.out}", highlight=False)
    for sentence in worse_on_the_rest(next(point for point in points if point.chosen), points[0]):
        err.print(sentence, highlight=False)
