"""Sections of a study -> one self-contained HTML page: no script, no network, light and dark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from clustertwin.page import page, table
from clustertwin.telemetry.studies.reference.section import Picture, Section


def report(title: str, facts: Mapping[str, object], sections: Sequence[Section]) -> str:
    """The page; `facts` say how it was made: data, command, seeds, time."""
    contents = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a>' for s in sections)
    details = "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
    parts = [f"<h1>{escape(title)}</h1><dl class=facts>{details}</dl><ol>{contents}</ol>"]
    for section in sections:
        parts.append(f'<section id="{section.name}"><h2>{escape(section.title)}</h2><p>{escape(section.text)}</p>')
        for one in section.tables:
            note = f"<p class=note>{escape(one.note)}</p>" if one.note else ""
            parts.append(f"<h3>{escape(one.title)}</h3>{note}{table(one.columns, one.rows, one.yardsticks)}")
        parts += [_figure(picture) for picture in section.pictures]
        parts.append("</section>")
    return page(title, "".join(parts))


def _figure(picture: Picture) -> str:
    """As wide as it was drawn, with letters of the page's size, and never wider than the page."""
    drawn = re.search(r'viewBox="0 0 ([\d.]+)', picture.svg)
    width = f' style="max-width: {1.4 * float(drawn[1]):.0f}px"' if drawn else ""
    return f"<figure{width}><figcaption>{escape(picture.title)}</figcaption>{picture.svg}</figure>"


def write(out: Path, facts: Mapping[str, object], sections: Sequence[Section]) -> dict[str, Any]:
    """report.html and study.json in a directory; returns the document of the latter."""
    document = {**facts, "sections": {section.name: section.to_json() for section in sections}}
    out.mkdir(parents=True, exist_ok=True)
    (out / "study.json").write_text(json.dumps(document, indent=1, default=str))
    (out / "report.html").write_text(report("The study", facts, sections))
    return document
