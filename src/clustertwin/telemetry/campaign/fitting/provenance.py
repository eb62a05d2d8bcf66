"""Describe a host: its /proc -> kernel, CPU model and number of threads."""

from __future__ import annotations

from pathlib import Path


def describe_host(proc: Path) -> dict[str, str | int]:
    """The kernel and CPUs for the provenance of a signatures file; unreadable fields are empty."""
    return {"kernel": " ".join(_read(proc / "version").split()[:3]), **parse_cpuinfo(_read(proc / "cpuinfo"))}


def parse_cpuinfo(text: str) -> dict[str, str | int]:
    """CPU model and number of threads from the text of /proc/cpuinfo.

    >>> parse_cpuinfo("processor\\t: 0\\nmodel name\\t: Abacus 9\\n\\nprocessor\\t: 1\\nmodel name\\t: Abacus 9\\n")
    {'cpu': 'Abacus 9', 'threads': 2}
    """
    lines = [tuple(part.strip() for part in line.split(":", 1)) for line in text.splitlines() if ":" in line]
    models = [value for name, value in lines if name == "model name"]
    return {"cpu": models[0] if models else "", "threads": sum(name == "processor" for name, _ in lines)}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
