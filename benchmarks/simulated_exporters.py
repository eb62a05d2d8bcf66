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

from clustertwin.core.traces import Trace
from clustertwin.telemetry.exporter.jobs.cpuset import format_cpulist

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


def serve(parent: Connection, rings: list[list[bytes]], names: list[str], cpus: int, core: int | None) -> None:
    """Answer until killed. Sends its port to the parent, and receives the second at which block 0 was sampled."""
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
            if query == b"metrics":
                body = page(name.decode(), cpus)
            else:
                body = _since(rings[number[name] % len(rings)], name, begun_s, float(query.partition(b"=")[2]))
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def _since(blocks: list[bytes], name: bytes, begun_s: int, since_s: float) -> bytes:
    """The blocks sampled from `since_s` until now."""
    newest = min(int(time.time()) - begun_s, len(blocks) - 1)
    oldest = max(int(np.ceil(since_s)) - begun_s, 0)
    return b"".join(b"t %.3f\n%b" % (begun_s + k, blocks[k].replace(NODE, name)) for k in range(oldest, newest + 1))
