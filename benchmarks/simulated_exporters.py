"""Many exporters in one process: simulated nodes -> /NODE/metrics and /NODE/ring over HTTP, new data each second.

The answers are computed beforehand, so that a benchmark measures only the process that asks. A few nodes are simulated
and repeated under other names. The name of a job contains the name of its node, so no job spans two nodes. Samples are
taken on full seconds, as our exporter takes them.
"""

from __future__ import annotations

import os
import select
import socket
import time
from multiprocessing.connection import Connection

import numpy as np

from clustertwin.core.channels import JOB as JOB_SCHEMA
from clustertwin.core.channels import NODE as NODE_SCHEMA
from clustertwin.core.channels import Selector
from clustertwin.core.traces import Trace
from clustertwin.telemetry.exporter.jobs.cpuset import format_cpulist
from clustertwin.telemetry.ingest.node_channels import selectors

NODE = b"@"  # placeholder for the name of the node


def page(node: str, cpus: int) -> bytes:
    """The /metrics page for the first request; the following requests read the ring."""
    lines = [f'twin_cpu_seconds_total{{cpu="{cpu}",mode="user"}} 1\n' for cpu in range(cpus)]
    about = f'twin_node_info{{node="{node}"}} 1\ntwin_exporter_ring_begin_timestamp_seconds 1\n'
    return ("".join(lines) + about).encode()


def ring(trace: Trace, first: int) -> list[bytes]:
    """The lines of the kernel at the end of each second from `first`, and those of jobs, with `NODE` in their names."""
    ticks = np.rint(np.cumsum(trace.values[:, first:], axis=1) * 100).astype(np.int64)  # (cpu, second, channel)
    blocks = []
    for k in range(ticks.shape[1]):
        end_s = trace.start_s + first + k
        lines = [
            f"cpu{cpu} {10**6 + user} 0 {10**6 + system} {10**7 + idle} {10**6 + iowait} 0 0 0 0 0\n"
            for cpu, (user, system, iowait, idle) in zip(trace.cpus, ticks[:, k].tolist(), strict=True)
        ]
        lines += ["twin_memory_total_bytes 8589934592\n", f"twin_memory_available_bytes {4294967296 + 4096 * k}\n"]
        lines += [
            f'twin_pressure_seconds_total{{resource="{resource}",share="some"}} {10**9 + 12345 * k}e-6\n'
            for resource in ("cpu", "io", "memory")
        ]
        for span in trace.spans:
            if span.start_s < end_s <= span.end_s:
                lines.append(f"job slurm {NODE.decode()}-{span.job} {format_cpulist(span.cpus)}\n")
        blocks.append("".join(lines).encode())
    return blocks


def _channel_lines(operands: list[tuple[Selector, ...]], labels: str, value: int) -> list[str]:
    """A sample of each series behind the channels of a node or a job."""
    lines = set()
    for selector in {one.metric + str(one.equal): one for operand in operands for one in operand}.values():
        if selector.metric != "twin_job_cpu_allocated":
            own = ",".join([labels] * bool(labels) + [f'{name}="{text}"' for name, text in selector.equal.items()])
            lines.add(f"{selector.metric}{{{own}}} {2**32 + value}\n")
    return sorted(lines)


def full_pages(trace: Trace, first: int) -> list[bytes]:
    """The whole /metrics page at the end of each second from `first`, with `NODE` in place of the node's name."""
    ticks = np.rint(np.cumsum(trace.values[:, first:], axis=1) * 100).astype(np.int64)  # (cpu, second, channel)
    info = f'twin_node_info{{node="{NODE.decode()}"}} 1\n'
    pages = []
    for k in range(ticks.shape[1]):
        end_s = trace.start_s + first + k
        lines = [info, *_channel_lines(selectors("twin", NODE_SCHEMA), "", 4096 * k)]
        for cpu, (user, system, iowait, idle) in zip(trace.cpus, ticks[:, k].tolist(), strict=True):
            row = {"user": 10**6 + user, "nice": 0, "system": 10**6 + system, "idle": 10**7 + idle}
            row |= {"iowait": 10**6 + iowait, "irq": 0, "softirq": 0, "steal": 0}
            lines += [f'twin_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} {n}e-2\n' for mode, n in row.items()]
        for span in trace.spans:
            if span.start_s < end_s <= span.end_s:
                labels = f'manager="slurm",jobid="{NODE.decode()}-{span.job}"'
                lines += [f'twin_job_cpu_allocated{{{labels},cpu="{cpu}"}} 1\n' for cpu in span.cpus]
                lines += _channel_lines(selectors("twin", JOB_SCHEMA), labels, 4096 * k)
        pages.append("".join(lines).encode())
    return pages


def serve(
    parent: Connection,
    rings: list[list[bytes]],
    names: list[str],
    cpus: int,
    core: int | None,
    pages: list[list[bytes]] | None = None,
    stepped: bool = False,
    slow: int = 0,
) -> None:
    """Answer until killed. Sends its port to the parent, and receives the second at which block 0 was sampled.

    With `pages`, /metrics is the whole page of each second, as Prometheus scrapes it. With `stepped`, each request for
    the ring gets the next second, however much time has passed. With `slow`, a second of the pages lasts so many real
    ones, and their samples have the times of the cluster.
    """
    if core is not None:
        os.sched_setaffinity(0, {core})
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    parent.send(listener.getsockname()[1])
    begun_s: int = parent.recv()
    number = {name.encode(): i for i, name in enumerate(names)}
    epoll, clients = select.epoll(), {}
    epoll.register(listener, select.EPOLLIN)
    while True:
        for descriptor, _ in epoll.poll():
            if descriptor == listener.fileno():
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[client.fileno()] = client
                epoll.register(client, select.EPOLLIN)
                continue
            client = clients[descriptor]
            try:
                request = client.recv(65536)
            except ConnectionResetError:
                request = b""
            if not request:
                del clients[descriptor]
                client.close()
                continue
            _, name, query = request.split(b" ", 2)[1].split(b"/", 2)
            if query == b"metrics" and pages:
                of_node = pages[number[name] % len(pages)]
                passed_s = int((time.time() - begun_s) / (slow or 1))
                body = of_node[min(max(passed_s, 0), len(of_node) - 1)].replace(NODE, name)
                if slow:
                    body = body.replace(b"\n", b" %d\n" % (1000 * (begun_s + passed_s)))
            elif query == b"metrics":
                body = page(name.decode(), cpus)
            else:
                since_s = float(query.partition(b"=")[2])
                now_s = max(np.ceil(since_s), begun_s) if stepped else time.time()
                body = _since(rings[number[name] % len(rings)], name, begun_s, since_s, now_s)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def _since(blocks: list[bytes], name: bytes, begun_s: int, since_s: float, now_s: float) -> bytes:
    """The blocks sampled from `since_s` until now."""
    newest = min(int(now_s) - begun_s, len(blocks) - 1)
    oldest = max(int(np.ceil(since_s)) - begun_s, 0)
    return b"".join(b"t %.3f\n%b" % (begun_s + k, blocks[k].replace(NODE, name)) for k in range(oldest, newest + 1))
