"""`twin exporter`: arguments -> a server of this node's counters, until a signal; the exit code says how it ended."""

from __future__ import annotations

import argparse
import sys

from clustertwin import __version__


def main(argv: list[str]) -> int:
    """Run with these arguments."""
    parser = argparse.ArgumentParser(prog="twin exporter", description=__doc__)
    parser.add_argument("--version", action="version", version=f"clustertwin {__version__}")
    parser.parse_args(argv)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
