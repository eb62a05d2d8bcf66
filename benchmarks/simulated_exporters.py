"""Many exporters in one process: simulated nodes -> /NODE/metrics and /NODE/ring over HTTP, news once a second.

What our exporter answers is made beforehand, so that the process that asks is the one that is measured. A few nodes
are simulated and repeated under other names; a job has the name of its node in its own, so that no job spans two.
Samples are taken on whole seconds, as our exporter takes them.
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

HERE = b"@"  # where the node's name goes


def page(node: str, cpus: int) -> bytes:
    """The page that greets; from then on only the ring is asked."""
    lines = [f'twin_cpu_seconds_total{{cpu="{cpu}",mode="user"}} 1\n' for cpu in range(cpus)]
    about = f'twin_node_info{{node="{node}"}} 1\ntwin_exporter_ring_begin_timestamp_seconds 1\n'
    return ("".join(lines) + about).encode()


def ring(trace: Trace, first: int) -> list[bytes]:
    """The kernel's lines at the end of each second from `first` on, and those of jobs, with `HERE` in their names."""
    ticks = np.rint(np.cumsum(trace.values[:, first:], axis=1) * 100).astype(np.int64)  # (cpu, second, channel)
    made = []
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
                lines.append(f"job slurm {HERE.decode()}-{span.job} {format_cpulist(span.cpus)}\n")
        made.append("".join(lines).encode())
    return made


def serve(told: Connection, rings: list[list[bytes]], names: list[str], cpus: int, core: int | None) -> None:
    """Answer until killed. Tells its port, then hears at which second block 0 was sampled."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    told.send(listener.getsockname()[1])
    begun_s: int = told.recv()
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
            _, name, what = request.split(b" ", 2)[1].split(b"/", 2)
            if what == b"metrics":
                body = page(name.decode(), cpus)
            else:
                body = _since(rings[number[name] % len(rings)], name, begun_s, float(what.partition(b"=")[2]))
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def _since(blocks: list[bytes], name: bytes, begun_s: int, since_s: float) -> bytes:
    """The blocks sampled from `since_s` until now."""
    newest = min(int(time.time()) - begun_s, len(blocks) - 1)
    oldest = max(int(np.ceil(since_s)) - begun_s, 0)
    return b"".join(b"t %.3f\n%b" % (begun_s + k, blocks[k].replace(HERE, name)) for k in range(oldest, newest + 1))
