"""Report a study: sections -> study.json and one self-contained HTML page without scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from clustertwin.core import files
from clustertwin.page import page, table
from clustertwin.telemetry.studies.reference.section import Picture, Section


def report(title: str, facts: Mapping[str, object], sections: Sequence[Section]) -> str:
    """The HTML page; `facts` describe the run: command, data and time."""
    contents = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a>' for s in sections)
    details = "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
    parts = [f"<h1>{escape(title)}</h1><dl class=facts>{details}</dl><ol>{contents}</ol>"]
    for section in sections:
        parts.append(f'<section id="{section.name}"><h2>{escape(section.title)}</h2><p>{escape(section.text)}</p>')
        for result in section.tables:
            note = f"<p class=note>{escape(result.note)}</p>" if result.note else ""
            rows = table(result.columns, result.rows, result.baselines)
            parts.append(f"<h3>{escape(result.title)}</h3>{note}{rows}")
        parts += [_figure(picture) for picture in section.pictures]
        parts.append("</section>")
    return page(title, "".join(parts))


def _figure(picture: Picture) -> str:
    """Limit the width to that of the drawing, so that its text has the size of the page's text."""
    view_box = re.search(r'viewBox="0 0 ([\d.]+)', picture.svg)
    width = f' style="max-width: {1.4 * float(view_box[1]):.0f}px"' if view_box else ""
    return f"<figure{width}><figcaption>{escape(picture.title)}</figcaption>{picture.svg}</figure>"


def write_report(out: Path, facts: Mapping[str, object], sections: Sequence[Section]) -> dict[str, Any]:
    """Write report.html and study.json to a directory; returns the JSON document."""
    document = {**facts, "sections": {section.name: section.to_json() for section in sections}}
    files.make_directory(out)
    files.write(out / "study.json", json.dumps(document, indent=1, default=str))
    files.write(out / "report.html", report("The study", facts, sections))
    return document
