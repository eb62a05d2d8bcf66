"""The parts of a moment that are judged: a moment -> the threads of each job on each node, and their signals.

A signal is the mean of a channel over the last seconds, or follows from such means. A signal whose channel is unknown
is NaN, and every rule that needs it is silent.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.moments.moment import Moment

Signals = NDArray[np.float32]  # (part, signal)

#: The signals, in order. Those of a node hold for every part on it.
SIGNALS = (
    "user",
    "system",
    "iowait",
    "idle",  # without what a quota or the hypervisor took: the job would have worked
    "busiest",  # activity of the part's busiest thread
    "unused",  # idle time of the part's least used thread
    "apart",  # how far the most deviating thread is from the median of its job, in the channel that deviates most
    "waiting",  # tasks of the node that want a CPU beyond those that have one, per thread
    "lost",  # idle + waiting: work that could run and does not
    "others",  # share of the part's threads that other work than the job takes
    "cpu_pressure",
    "queued",  # time in which a task of the job waits for a CPU; only where its cgroup tells
    "memory_pressure",
    "io_pressure",
    "throttled",
    "steal",  # of the part, by the share of its threads in what the node does
    "swap_traffic",
    "major_faults",
    "memory_growth",  # steady growth of the job's memory, or else of the node's, over GROWTH_S; 0 where not steady
    "traffic",  # of the network, or of disks without what other jobs transfer
    "context_switches",
    "oom_kills",
    "progress",  # signs of it: page faults of the job or its traffic, whichever is more; unknown without page faults
    "stalled",  # system + iowait: time that is not the program's own work
    "memory",  # of the job; only where its cgroup tells
    "closest",  # as "apart", but in the part of the last minute in which the threads were closest together
    "page_faults",  # of the job, as its channel at the mean rate; only where its cgroup tells
    "leading",  # activity of the part's busiest thread of each second: one task that moves between them is all of it
)
NO_TRAFFIC = 0.02  # less than 2 MB/s is no traffic
GROWTH_S = 60
#: The threads of a program part and meet again in phases; a slow one meets the others in no third of a minute.
_MEET_S, _PIECE_S = 60, 20
_PIECES = 5
_LEAST_PIECE = 0.12  # of the growth, in each piece but the first
_COMPETITORS = 8  # tasks that share a thread with one of the job, at most
S = {name: i for i, name in enumerate(SIGNALS)}


@dataclass(frozen=True, slots=True)
class JobParts:
    """One row per job and node, ordered by job, then by node. Threads without a job form the part "" of their node."""

    jobs: tuple[str, ...]  # of each part
    nodes: tuple[str, ...]  # of each part
    node: NDArray[np.intp]  # (part,) index into the moment's nodes
    order: NDArray[np.intp]  # the threads of the moment, part after part
    first: NDArray[np.intp]  # (part,) its first thread in `order`
    count: NDArray[np.intp]  # (part,) its threads
    age_s: NDArray[np.int32]  # (part,) of its youngest thread
    channel_row: NDArray[np.intp]  # (part,) its row in the moment's job channels, -1: none
    job: NDArray[np.intp]  # (part,) index into the moment's jobs, -1: none

    def __len__(self) -> int:
        return len(self.jobs)

    def threads(self, part: int) -> NDArray[np.intp]:
        return self.order[self.first[part] : self.first[part] + self.count[part]]

    def over_job(self, values: NDArray[np.floating] | NDArray[np.bool_]) -> NDArray[np.float64]:
        """(part,) -> (part,) the sum over all nodes of the job of a part, without the unknown ones."""
        return np.asarray(np.bincount(self.job + 1, np.nan_to_num(values))[self.job + 1], np.float64)


def parts_of(moment: Moment) -> JobParts:
    """The parts of a moment."""
    key = (moment.job.astype(np.int64) + 1) * len(moment.nodes) + moment.node
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    lead = order[first]
    jobs = tuple(moment.jobs[j] if j >= 0 else "" for j in moment.job[lead].tolist())
    rows = _channel_rows(moment)
    nodes = tuple(moment.nodes[n] for n in moment.node[lead].tolist())
    return JobParts(
        jobs,
        nodes,
        moment.node[lead].astype(np.intp),
        order,
        first,
        np.diff(first, append=len(order)),
        np.minimum.reduceat(moment.age_s[order], first) if len(first) else np.zeros(0, np.int32),
        np.array([rows.get(place, -1) for place in zip(jobs, nodes, strict=True)], np.intp),
        moment.job[lead].astype(np.intp),
    )


def _channel_rows(moment: Moment) -> dict[tuple[str, str], int]:
    channels = moment.job_channels
    if channels is None:
        return {}
    return {(job, moment.nodes[n]): i for i, (job, n) in enumerate(zip(channels.jobs, channels.node, strict=True))}


def measure_signals(moment: Moment, parts: JobParts, seconds: slice) -> Signals:
    """The signals over some seconds of the moment, for example its last 30. NaN where fewer than half are known."""
    mean = _cpu_means(moment, seconds)
    out = np.full((len(parts), len(SIGNALS)), np.nan, np.float32)
    if not len(parts):
        return out
    by_part = mean[parts.order]
    share = np.add.reduceat(by_part, parts.first, axis=0) / parts.count[:, None]
    out[:, :4] = share
    out[:, S["busiest"]] = np.maximum.reduceat(by_part[:, 0] + by_part[:, 1], parts.first)
    out[:, S["unused"]] = np.maximum.reduceat(by_part[:, 3], parts.first)
    out[:, S["leading"]] = _leading(moment, parts, seconds)
    out[:, S["apart"]] = _furthest(moment, parts, mean)
    out[:, S["closest"]] = _closest(moment, parts, seconds)
    _add_node_signals(moment, parts, seconds, mean, out)
    _add_job_signals(moment, parts, seconds, out)
    stopped = np.nan_to_num(out[:, S["throttled"]]) + np.nan_to_num(out[:, S["steal"]])
    out[:, S["idle"]] = np.maximum(out[:, S["idle"]] - stopped, 0)
    out[:, S["lost"]] = out[:, S["idle"]] + out[:, S["waiting"]]
    out[:, S["stalled"]] = out[:, S["system"]] + out[:, S["iowait"]]
    return out


def apart(moment: Moment, mean: NDArray[np.float32]) -> NDArray[np.float32]:
    """(thread,) how far a thread is from the median of its job, in the channel that deviates most; NaN if alone."""
    out = np.full(len(mean), np.nan, np.float32)
    rows = np.flatnonzero((moment.job >= 0) & ~np.isnan(mean[:, 0]))
    if not len(rows):
        return out
    rows = rows[np.argsort(moment.job[rows], kind="stable")]
    first = np.flatnonzero(np.diff(moment.job[rows], prepend=-1))
    count = np.diff(first, append=len(rows))
    # The shares are at most 1, so a step of 2 from job to job keeps the jobs in order: one sort for all of them.
    steps = 2.0 * np.repeat(np.arange(len(first)), count)[:, None]
    in_order = np.sort(mean[rows] + steps, axis=0) - steps
    median = (in_order[first + (count - 1) // 2] + in_order[first + count // 2]) / 2
    distance = np.abs(mean[rows] - np.repeat(median, count, axis=0)).max(axis=1)
    # The median of two lies half-way between them.
    distance *= np.repeat(np.where(count == 2, 2, 1), count)
    out[rows] = np.where(np.repeat(count, count) >= 2, distance, np.nan)
    return out


def _cpu_means(moment: Moment, seconds: slice) -> NDArray[np.float32]:
    """(thread, channel) of CPU time over some seconds. NaN where fewer than half are known."""
    values, valid = moment.values[:, seconds], moment.valid[:, seconds]
    known = valid.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = values.sum(1, dtype=np.float32) / known[:, None]
    mean[2 * known < valid.shape[1]] = np.nan
    return mean[:, [moment.schema.index(name) for name in ("user", "system", "iowait", "other")]]


def _leading(moment: Moment, parts: JobParts, seconds: slice) -> NDArray[np.float32]:
    """(part,) the activity of its busiest thread, another one in each second."""
    user, system = moment.schema.index("user"), moment.schema.index("system")
    busy = moment.values[:, seconds, user] + moment.values[:, seconds, system]
    busy = np.where(moment.valid[:, seconds], busy, np.float32(np.nan))[parts.order]  # (thread, second)
    return _known_mean(np.fmax.reduceat(busy, parts.first, axis=0))


def _furthest(moment: Moment, parts: JobParts, mean: NDArray[np.float32]) -> NDArray[np.float32]:
    """(part,) how far its most deviating thread is from its job."""
    return np.maximum.reduceat(apart(moment, mean)[parts.order], parts.first)


def _closest(moment: Moment, parts: JobParts, seconds: slice) -> NDArray[np.float32]:
    """(part,) how far its most deviating thread is from its job, in the third of a minute where this is least."""
    start, stop, _ = seconds.indices(moment.values.shape[1])
    start = max(start, stop - _MEET_S)
    edges = np.linspace(start, stop, max((stop - start) // _PIECE_S, 1) + 1).astype(int).tolist()
    pieces = [_furthest(moment, parts, _cpu_means(moment, slice(a, b))) for a, b in pairwise(edges)]
    return np.asarray(np.fmin.reduce(pieces))


def _add_node_signals(moment: Moment, parts: JobParts, seconds: slice, mean: NDArray[np.float32], out: Signals) -> None:
    channels = moment.node_channels
    if channels is None:
        return
    names = channels.schema.names

    def of_node(name: str) -> NDArray[np.float32]:
        """(node,)"""
        if name not in names:
            return np.full(len(moment.nodes), np.nan, np.float32)
        return _known_mean(channels.values[:, seconds, names.index(name)])

    for name in ("cpu_pressure", "memory_pressure", "io_pressure", "steal", "swap_traffic", "major_faults"):
        out[:, S[name]] = of_node(name)[parts.node]
    out[:, S["context_switches"]] = of_node("context_switches")[parts.node]
    out[:, S["steal"]] = _stolen_from(moment, parts, mean, out[:, S["steal"]])
    if "memory_used" in names:
        memory = channels.values[:, _growth_seconds(seconds), names.index("memory_used")]
        out[:, S["memory_growth"]] = steady_growth_of(memory)[parts.node]
    out[:, S["traffic"]] = np.fmax(of_node("disk_traffic"), of_node("network_traffic"))[parts.node]
    if "run_queue" in names:
        running = channels.values[:, seconds, names.index("run_queue")]
        with np.errstate(divide="ignore", invalid="ignore"):
            per_thread = _known_mean(running / (1 - running))  # the channel is running / (running + threads)
        threads = np.bincount(moment.node, minlength=len(moment.nodes))
        busy = np.bincount(moment.node, mean[:, 0] + mean[:, 1], len(moment.nodes)) / np.maximum(threads, 1)
        out[:, S["waiting"]] = np.maximum(per_thread - busy, 0)[parts.node]


def _stolen_from(
    moment: Moment, parts: JobParts, mean: NDArray[np.float32], of_node: NDArray[np.float32]
) -> NDArray[np.float32]:
    """(part,) the part of its time that the hypervisor took. It takes time from threads that want to run."""
    activity = np.nan_to_num(mean[:, 0] + mean[:, 1])
    here = np.add.reduceat(activity[parts.order], parts.first) / parts.count
    threads = np.maximum(np.bincount(moment.node), 1)
    on_node = (np.bincount(moment.node, activity) / threads)[parts.node]
    return np.minimum(of_node * here / np.maximum(on_node, 1e-6), 1).astype(np.float32)


def _add_job_signals(moment: Moment, parts: JobParts, seconds: slice, out: Signals) -> None:
    channels = moment.job_channels
    chosen = np.flatnonzero(parts.channel_row >= 0)
    if channels is None or not len(chosen):
        return
    names, rows = channels.schema.names, parts.channel_row[chosen]

    def of_job(name: str) -> NDArray[np.float32]:
        """(chosen part,)"""
        if name not in names:
            return np.full(len(chosen), np.nan, np.float32)
        return _known_mean(channels.values[:, seconds, names.index(name)][rows])

    out[chosen, S["throttled"]] = of_job("job_throttled")
    out[chosen, S["oom_kills"]] = of_job("job_oom_kills")
    out[chosen, S["queued"]] = of_job("job_cpu_pressure")
    own_traffic = _own_traffic(moment, parts, seconds)
    out[:, S["traffic"]] = np.where(np.isnan(own_traffic), out[:, S["traffic"]], own_traffic)
    faults, traffic = of_job("job_page_faults"), out[chosen, S["traffic"]]
    transferred = np.where(traffic >= NO_TRAFFIC, traffic, 0)
    out[chosen, S["progress"]] = np.where(np.isnan(faults), np.nan, np.maximum(faults, transferred))
    out[chosen, S["memory"]] = of_job("job_memory")
    if "job_page_faults" in names:
        # The mean of the rate: a burst of half a minute counts with all of its faults.
        rate = _known_mean(rate_of(channels.values[:, seconds, names.index("job_page_faults")][rows]))
        out[chosen, S["page_faults"]] = rate / (rate + 1)
    if "job_memory" in names:
        growth = steady_growth_of(channels.values[:, _growth_seconds(seconds), names.index("job_memory")][rows])
        out[chosen, S["memory_growth"]] = np.where(np.isnan(growth), out[chosen, S["memory_growth"]], growth)
    for name in ("cpu_pressure", "memory_pressure", "io_pressure", "major_faults"):
        own = of_job(f"job_{name}")
        out[chosen, S[name]] = np.where(np.isnan(own), out[chosen, S[name]], own)
    pressure = of_job("job_cpu_pressure")
    if np.isnan(pressure).any() and "job_cpu" in names:
        own = channels.values[:, seconds, names.index("job_cpu")][rows]
        pressure = np.where(np.isnan(pressure), _most_waiting(moment, parts, seconds, out, own, chosen), pressure)
    used = of_job("job_cpu"), of_job("job_system")
    out[chosen] = _own_share(out[chosen], parts.count[chosen], *used, pressure, of_job("job_io_pressure"))


def _most_waiting(
    moment: Moment,
    parts: JobParts,
    seconds: slice,
    signals: Signals,
    own: NDArray[np.float32],  # (chosen part, second)
    chosen: NDArray[np.intp],
) -> NDArray[np.float32]:
    """(chosen part,) the most time that a task of a job can have waited for a CPU, where its cgroup does not count it.

    cgroup v1 has no pressure, and many kernels switch it off. A task that wants a CPU gets its fair part of it, so a
    job that gets nothing in a second wants nothing. A thread that is idle for longer than it is busy has no queue: what
    runs there, such as a daemon that transfers the data of the job, takes nothing from it. And the pressure of a node
    is the mean over its busy threads, so those of one job wait for no more than the sum of the node.
    """
    user, system = moment.schema.index("user"), moment.schema.index("system")
    busy = (moment.values[:, seconds, user] + moment.values[:, seconds, system])[parts.order]  # (thread, second)
    of_part = (np.add.reduceat(busy, parts.first) / parts.count[:, None])[chosen]  # (chosen part, second)
    full = (np.add.reduceat(np.maximum(2 * busy - 1, 0), parts.first) / parts.count[:, None])[chosen]
    by_second = _known_mean(np.minimum(np.minimum(np.maximum(of_part - own, 0), _COMPETITORS * own), full))
    of_node = np.bincount(parts.node, parts.count * (1 - np.nan_to_num(signals[:, S["idle"]], nan=1.0)))
    by_node = signals[chosen, S["cpu_pressure"]] * of_node[parts.node[chosen]] / parts.count[chosen]
    return np.fmin(by_second, by_node).astype(np.float32)


def _own_share(
    signals: Signals,
    count: NDArray[np.intp],
    own: NDArray[np.float32],
    own_system: NDArray[np.float32],
    cpu_pressure: NDArray[np.float32],
    io_pressure: NDArray[np.float32],
) -> Signals:
    """What the job itself did, where its cgroup tells: the counters of a thread also hold the work of others.

    Other work takes time from a job only while a task of the job waits for a CPU, and not while the job's own quota
    stops it. What it uses beyond that was left free by the job, so the job idled then, or waited for I/O. Unknown
    values change nothing.
    """
    out = signals.copy()
    user, system, iowait, idle = (out[:, S[name]] for name in ("user", "system", "iowait", "idle"))  # views
    others = user + system - own
    taken = np.where(np.isnan(cpu_pressure), others, np.minimum(others, cpu_pressure))
    stopped = np.nan_to_num(out[:, S["throttled"]])
    taken = np.where(stopped > 0, np.maximum(taken - stopped, 0), taken)
    out[:, S["others"]] = taken
    free = np.nan_to_num(np.maximum(others - taken, 0))
    waits = np.where(np.isnan(io_pressure), iowait, np.minimum(io_pressure, iowait + free))
    idle += free + iowait - waits
    iowait[:] = waits
    known = ~np.isnan(own)
    kernel = np.where(np.isnan(own_system), system / np.maximum(user + system, 1e-6), own_system)
    user[known], system[known] = ((1 - kernel) * own)[known], (kernel * own)[known]
    for name in ("busiest", "leading"):
        out[:, S[name]] = np.fmin(out[:, S[name]], np.where(known, own * count, np.nan))
    return out


def _own_traffic(moment: Moment, parts: JobParts, seconds: slice) -> NDArray[np.float32]:
    """(part,) traffic that can be the job's: the network's, its own, and that of disks which no other job accounts for.

    The kernel does not always know whose a write is. NaN where nothing is known of the job's own traffic.
    """
    jobs, nodes = moment.job_channels, moment.node_channels
    if jobs is None or "job_io_traffic" not in jobs.schema.names:
        return np.full(len(parts), np.nan, np.float32)
    # Both channels are r / (r + 100 MB/s). Rates can be added up, channels can not.
    own = rate_of(jobs.values[:, seconds, jobs.schema.index("job_io_traffic")])  # (row, second)
    network = disks = np.full((len(moment.nodes), own.shape[1]), np.nan, np.float32)
    if nodes is not None and "disk_traffic" in nodes.schema.names:
        disks = rate_of(nodes.values[:, seconds, nodes.schema.index("disk_traffic")])
    if nodes is not None and "network_traffic" in nodes.schema.names:
        network = nodes.values[:, seconds, nodes.schema.index("network_traffic")]
    accounted = np.zeros_like(disks)
    np.add.at(accounted, jobs.node, np.nan_to_num(own))
    rest = np.maximum(disks - accounted, 0)[parts.node]  # (part, second)
    mine = np.where((parts.channel_row >= 0)[:, None], own[parts.channel_row], np.nan)
    rate = mine + np.nan_to_num(rest)
    transferred = np.fmax(_known_mean(rate / (1 + rate)), _known_mean(network)[parts.node])
    return np.where(np.isnan(_known_mean(mine)), np.nan, transferred).astype(np.float32)


def rate_of(channel: NDArray[np.floating]) -> NDArray[np.float32]:
    """The rate of a saturating channel, in units of its half."""
    return np.asarray(channel / np.maximum(1 - channel, 1e-6), np.float32)


def steady_growth_of(memory: NDArray[np.float32]) -> NDArray[np.float32]:
    """(row, second) shares of memory -> (row,) their growth over the seconds, 0 where it is not steady.

    Memory that grows in steps, or that grew and stopped, is not steady: every fifth must add its part.
    """
    if memory.shape[1] < GROWTH_S:
        return np.full(len(memory), np.nan, np.float32)
    with np.errstate(invalid="ignore"):
        level = np.stack([_known_mean(piece) for piece in np.array_split(memory, _PIECES, axis=1)], axis=1)
    growth = (level[:, -1] - level[:, 0]) * _PIECES / (_PIECES - 1)
    steady = (np.diff(level, axis=1) > _LEAST_PIECE * growth[:, None]).all(1) & (growth > 0)
    return np.where(steady | np.isnan(growth), growth, 0).astype(np.float32)


def _growth_seconds(seconds: slice) -> slice:
    """The GROWTH_S seconds up to the end of some seconds."""
    stop = seconds.stop or 0
    return slice(stop - GROWTH_S, seconds.stop)


def _known_mean(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """(row, second) -> (row,) the mean of the known seconds; NaN where fewer than half are known."""
    known = ~np.isnan(values)
    count = known.sum(1)
    mean = np.where(known, values, 0).sum(1) / np.maximum(count, 1)
    return np.where(2 * count >= values.shape[1], mean, np.nan).astype(np.float32)
