"""Templates: a name and what it is about -> an HTML answer, in which everything is escaped."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from clustertwin.core import formatting
from clustertwin.core.channels import label_of
from clustertwin.service.live.problems import problems
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.access import COOKIE

HERE = Path(__file__).parent
STATIC = HERE / "static"

#: path, name, key: the pages of the bar, in its order
BAR = (
    ("/", "Cluster", "g c"),
    ("/events", "Events", "g e"),
    ("/jobs", "Jobs", "g j"),
    ("/embedding", "Embedding", "g m"),
    ("/models", "Models", "g l"),
    ("/quiet", "Quiet times", "g q"),
    ("/audit", "Audit", "g a"),
)


@cache
def static() -> str:
    """Where scripts and styles are: an address that changes with them, so that browsers may keep them for good."""
    whole = hashlib.sha256()
    for path in sorted(path for path in STATIC.rglob("*") if path.is_file()):
        whole.update(path.read_bytes())
    return f"/static/{whole.hexdigest()[:12]}"


@cache
def environment() -> Environment:
    """A misspelt name in a template is an error, not an empty place."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    for word in (
        formatting.number,
        formatting.percent,
        formatting.lasting,
        formatting.moment,
        formatting.clock,
        formatting.ranges,
        formatting.counted,
    ):
        made.filters[word.__name__] = word
    made.filters["spoken"] = label_of
    made.globals.update(bar=BAR, sparkline=formatting.sparkline, static=static())
    # A global, not an import of each template: a block that is rendered alone does not see its template's imports.
    made.globals["ui"] = made.get_template("parts.html").module
    return made


def render(request: Request, state: ServiceState, template: str, code: int = 200, **about: Any) -> HTMLResponse:
    """A page with the bar around it; or, where HTMX asks for a part, the block of that name alone."""
    found = environment().get_template(template)
    context = {
        "snapshot": state.snapshot,
        "here": request.url.path,
        "who": request.state.who,
        "role": request.state.role,
        "logged_in": COOKIE in request.cookies,
        "problems": problems(state),
        **about,
    }
    part = request.headers.get("HX-Target", "") if request.headers.get("HX-Request") else ""
    if part in found.blocks:
        made = found.new_context(context)
        return HTMLResponse("".join(found.blocks[part](made)), code)
    return HTMLResponse(found.render(context), code)
