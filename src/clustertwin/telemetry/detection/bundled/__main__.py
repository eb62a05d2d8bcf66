"""Make the bundled detector. This takes a minute or two on one core.

python -m clustertwin.telemetry.detection.bundled --out DIR
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import typer

from clustertwin.telemetry.detection import bundled
from clustertwin.telemetry.detection.bundled.recipe import Recipe, make
from clustertwin.telemetry.detection.detector_store import save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path(bundled.__file__).parent, help="target directory; default: in the package"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    detector = make(Recipe(seed=options.seed), report=typer.echo)
    save(options.out, detector)
    size = sum(path.stat().st_size for path in options.out.iterdir() if path.suffix in (".json", ".safetensors"))
    typer.echo(f"{detector.version}: {size / 1e6:.2f} MB in {options.out}")


if __name__ == "__main__":
    main()
