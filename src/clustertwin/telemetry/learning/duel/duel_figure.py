"""A night's contestants -> one figure: errors on normal data, and the recall of each golden-set anomaly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clustertwin.core import files
from clustertwin.core.extras import require


def draw_duel(contestants: list[dict[str, Any]], path: Path) -> None:
    figure = require("matplotlib.figure", "plots").Figure(
        figsize=(9, 1.2 + 0.3 * len(contestants)), layout="constrained"
    )
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 2))
    names = [row["name"] for row in contestants]
    left.barh(names, [row["error"] for row in contestants], color="#4477aa")
    left.invert_yaxis()
    left.set_xlabel("mean squared error, held-out normal windows")
    kinds = sorted({kind for row in contestants for kind in row["detection"]["recall"]})
    cells = [[row["detection"]["recall"].get(kind, float("nan")) for kind in kinds] for row in contestants]
    right.imshow(cells, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    right.set_xticks(range(len(kinds)), kinds, rotation=35, ha="right")
    right.set_title("recall on the golden set", loc="left")
    files.make_directory(path.parent)
    with files.replacing(path) as out:
        figure.savefig(out, format="png", dpi=90)
