"""What it costs a node to score its own threads, and a central service to join such nodes.

    python benchmarks/edge.py [--threads 128] [--stride 10] [--seconds 60] [--nodes 400] [--json]

A real `twin serve` reads one simulated exporter, as the edge profile (deploy/edge.toml) does, and scores its threads
with all views. When it has a hundred seconds of data, its CPU time and memory are measured while a reader asks for its
summary every two seconds, as a central service does. The bytes are those on the wire, with the heads of HTTP. Then
made-up summaries of `--nodes` nodes are joined over HTTP, as by the central service.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx

from clustertwin.service.live.members.member_watch import EVERY_S, SUMMARY
from misbehaving_node import free_port
from prometheus import cpu_s, rss_mb
from scale import measure_joining
from service import PAST_S, WARM_S, simulated
from simulated_exporters import ring, serve

PROFILE = Path(__file__).parents[1] / "deploy" / "edge.toml"


def ask(connection: socket.socket) -> int:
    """One request for the summary -> the bytes in both directions."""
    request = f"GET {SUMMARY} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n".encode()
    connection.sendall(request)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")).split()[1])
    while len(body) < length:
        body += connection.recv(65536)
    assert b" 200 " in head.split(b"\r\n")[0], head
    return len(request) + len(head) + 4 + len(body)


def edge(chosen: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        traces = simulated(chosen.seconds + WARM_S + 300)
        connection, far_end = get_context("spawn").Pipe()
        rings = [ring(trace, PAST_S) for trace in traces[:1]]
        exporter = get_context("spawn").Process(
            target=serve, args=(far_end, rings, ["n1"], chosen.threads, None), daemon=True
        )
        exporter.start()
        stack.callback(exporter.kill)
        exporter_port = connection.recv()
        connection.send(int(time.time()) + 1)
        port = free_port()
        settings = {
            "CLUSTERTWIN_SERVICE__HOST": "127.0.0.1",
            "CLUSTERTWIN_SERVICE__PORT": str(port),
            "CLUSTERTWIN_SERVICE__CERTIFICATE": "",
            "CLUSTERTWIN_SERVICE__KEY": "",
            "CLUSTERTWIN_HOME": f"{place}/home",
            "CLUSTERTWIN_SOURCE__URLS": f"http://127.0.0.1:{exporter_port}/n1",
            "CLUSTERTWIN_SCORING__STRIDE_S": str(chosen.stride),
            "CLUSTERTWIN_LEARNING__CHAMPION_URL": "",
            "CLUSTERTWIN_LEARNING__CHAMPION_TOKEN_FILE": "",
            "CLUSTERTWIN_LEARNING__CHAMPION_CA_FILE": "",
        }
        command = [sys.executable, "-m", "clustertwin", "serve", "--config", str(PROFILE), "--json"]
        service = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **settings})
        stack.callback(service.wait)
        stack.callback(service.terminate)
        url = f"http://127.0.0.1:{port}/api/v1/snapshot"
        while True:
            time.sleep(1)
            try:
                if httpx.get(url, timeout=10).json()["phase"] == "watching":
                    break
            except httpx.HTTPError:
                pass
        time.sleep(WARM_S + chosen.stride)
        reader = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        begun_s, used_s, sizes = time.time(), cpu_s(service.pid), []
        while time.time() - begun_s < chosen.seconds:
            sizes.append(ask(reader))
            time.sleep(EVERY_S)
        passed_s = time.time() - begun_s
        status = dict(line.split(":", 1) for line in Path(f"/proc/{service.pid}/status").read_text().splitlines())
        snapshot = httpx.get(url, timeout=10).json()
        nodes = httpx.get(url.replace("snapshot", "nodes"), timeout=10).json()
        return {
            "load": (cpu_s(service.pid) - used_s) / passed_s,
            "peak_mb": rss_mb(service.pid),
            "own_mb": int(status["RssAnon"].split()[0]) / 1024,
            "file_mb": int(status["RssFile"].split()[0]) / 1024,
            "bytes_a_second": sum(sizes) / passed_s,
            "bytes_a_summary": sum(sizes) / len(sizes),
            "threads": sum(node["threads"] for node in nodes),
            "scored": sum(node["threads"] - node["unknown"] for node in nodes),
            "problems": snapshot["problems"],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=128, choices=[128])
    parser.add_argument("--stride", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    row = {"node": edge(chosen)}
    row["joining"] = asdict(measure_joining(chosen.nodes, chosen.threads, 20.0)) if chosen.nodes else {}
    row["load_average"] = os.getloadavg()[0]
    print(json.dumps(row) if chosen.json else json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
