"""Join short traces: the traces of several turns, in their order -> fewer and longer ones with the same seconds.

A trace of one second takes nearly as long to record as one of ten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from clustertwin.core.traces import JobChannels, NodeChannels, Trace


def joined(traces: Iterable[Trace]) -> list[Trace]:
    """Traces of a node are joined while each follows the one before it, with the same threads, jobs and channels."""
    runs: list[list[Trace]] = []
    last: dict[str, list[Trace]] = {}
    for trace in traces:
        run = last.get(trace.node)
        if run is not None and _continues(run[-1], trace):
            run.append(trace)
        else:
            last[trace.node] = [trace]
            runs.append(last[trace.node])
    return [_join(run) for run in runs]


def _continues(before: Trace, after: Trace) -> bool:
    return before.end_s == after.start_s and _kind(before) == _kind(after)


def _kind(trace: Trace) -> tuple[object, ...]:
    """What must be the same in all parts of a joined trace."""
    node, jobs = trace.node_channels, trace.job_channels
    return (
        trace.cpus,
        trace.schema,
        trace.interval_s,
        [replace(span, end_s=0.0) for span in trace.spans],
        node and node.schema,
        jobs and (jobs.schema, jobs.jobs),
    )


def _join(run: list[Trace]) -> Trace:
    """The spans are those of the last part: they have the same starts, and later ends."""
    if len(run) == 1:
        return run[0]
    node = [trace.node_channels for trace in run if trace.node_channels is not None]
    jobs = [trace.job_channels for trace in run if trace.job_channels is not None]
    return replace(
        run[-1],
        start_s=run[0].start_s,
        values=np.concatenate([trace.values for trace in run], axis=1),
        valid=np.concatenate([trace.valid for trace in run], axis=1),
        node_channels=NodeChannels(node[0].schema, np.concatenate([part.values for part in node])) if node else None,
        job_channels=(
            JobChannels(jobs[0].schema, jobs[0].jobs, np.concatenate([part.values for part in jobs], axis=1))
            if jobs
            else None
        ),
    )
