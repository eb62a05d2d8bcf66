"""Build self-contained HTML reports: tables and figures -> one page without scripts, in light and dark colours."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from clustertwin.core.extras import require
from clustertwin.core.formatting import visible

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #66727f; --line: #d9dee4; --back: #fff; --tint: #f4f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ee; --soft: #9aa7b4; --line: #36404a; --back: #14191f; --tint: #1c232b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 76rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } h3 { font-size: 1rem; }
p.note, figcaption { color: var(--soft); max-width: 60rem; }
a { color: inherit; }
figure { margin: 1.2rem 0; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1rem; color: var(--soft); }
dl.facts dd { margin: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--back); }
tr.yard td { background: var(--tint); color: var(--soft); }
svg { width: 100%; height: auto; font: 10px system-ui, sans-serif; }
h1, td, .key > * { overflow-y: clip; }
.key span { display: inline-block; max-width: 100%; margin-right: 1.2rem; }
.key i { display: inline-block; width: 1.6rem; height: 0.25rem; vertical-align: middle; margin-right: 0.4rem; }
"""
#: Colours that are distinct on light and dark backgrounds.
COLOURS = ("#3b82c4", "#d9713c", "#4aa564", "#b05fb5", "#c9a227", "#2fa8a8", "#d4577a", "#8a7a66")
INK = "#0a0b0c"  # replaced by the page's text colour


def page(title: str, body: str) -> str:
    """The complete document; `body` is HTML."""
    main = body if "<main" in body else f"<main>{body}</main>"
    head = '<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">'
    return f"{head}<title>{escape(title)}</title><style>{STYLE}</style>{main}</html>\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], baselines: int = 0) -> str:
    """A table whose first `baselines` rows are shaded; floats have four significant digits."""
    head = "".join(f"<th>{escape(name)}</th>" if name else "<td></td>" for name in columns)
    lines = []
    for i, row in enumerate(rows):
        cells = "".join(f"<td>{escape(f'{cell:.4g}' if isinstance(cell, float) else str(cell))}</td>" for cell in row)
        lines.append(f"<tr{' class=yard' if i < baselines else ''}>{cells}</tr>")
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f"<div class=scroll tabindex=0><table>{body}</table></div>"


def plot_text(name: str) -> str:
    r"""A name as a text of matplotlib, which takes what stands between dollar signs for a formula.

    >>> plot_text("job$n$1")
    'job\\$n\\$1'
    """
    return visible(name).replace("$", r"\$")


def figure(width: float, height: float, rows: int, columns: int) -> tuple[Any, Any]:
    """A transparent matplotlib figure in the text colour of the page, and its axes (row, column)."""
    drawing = require("matplotlib.figure", "plots").Figure(figsize=(width, height), layout="constrained")
    drawing.patch.set_alpha(0)
    axes = drawing.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.patch.set_alpha(0)
        axis.tick_params(which="both", colors=INK)
        for part in (*axis.spines.values(), axis.xaxis.label, axis.yaxis.label, axis.title):
            part.set_color(INK)
    return drawing, axes


def svg(drawing: Any, name: str, about: str = "Figure") -> str:
    """A figure as an <svg> element: ids prefixed by `name`, text in the page's colour, scaled to the page's width.

    A screen reader says `about` and the titles of the panels.
    """
    titles = ", ".join(filter(None, (axis.get_title() for axis in drawing.axes)))
    label = escape(f"{about}: {titles}" if titles else about, quote=True)
    out = io.StringIO()
    with require("matplotlib", "plots").rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        drawing.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()[out.getvalue().index("<svg") :]
    text = re.sub(r'<svg [^>]*?width="[^"]*"[^>]*?(viewBox="[^"]*")[^>]*>|<svg [^>]*?(viewBox="[^"]*")[^>]*>',
                  lambda match: f'<svg role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg" '
                  f'xmlns:xlink="http://www.w3.org/1999/xlink" {match[1] or match[2]}>', text, count=1)  # fmt: skip
    # Several figures share one page, so their ids must differ.
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S).replace(INK, "currentColor")
