"""Render templates: a page, a template and its values -> an HTML response in which every value is escaped."""

from __future__ import annotations

import hashlib
import shlex
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from clustertwin.core import formatting
from clustertwin.core.channels import label_of
from clustertwin.service.live.problems import problems
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store import name_patterns
from clustertwin.service.web.contract import Page
from clustertwin.service.web.pages import STATIC, navigation
from clustertwin.service.web.unsettled_events import open_events

TEMPLATES = Path(__file__).parent / "templates"
FILTERS = (
    formatting.number,
    formatting.percent,
    formatting.duration,
    formatting.iso_time,
    formatting.clock,
    formatting.ranges,
    formatting.counted,
)


@cache
def static() -> str:
    """The address of scripts and styles. It contains their hash, so browsers may cache them for ever."""
    digest = hashlib.sha256()
    for path in sorted(path for path in STATIC.rglob("*") if path.is_file()):
        digest.update(path.read_bytes())
    return f"/static/{digest.hexdigest()[:12]}"


@cache
def environment() -> Environment:
    """Jinja's environment. An unknown name in a template is an error, not an empty string."""
    jinja = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    jinja.filters.update({function.__name__: function for function in FILTERS})
    jinja.filters["spoken"] = label_of
    jinja.filters["only"] = name_patterns.only
    jinja.filters["shell_word"] = shlex.quote  # of a command that people copy
    jinja.globals.update(navigation=navigation(), sparkline=formatting.sparkline, static=static())
    # A global, not an import in each template: a block that is rendered alone does not see its template's imports.
    jinja.globals["ui"] = jinja.get_template("macros.html").module
    return jinja


def _phase(state: ServiceState, in_shadow: bool) -> str:
    """The phase as the head of a page shows it."""
    if state.snapshot.replay_ended:
        return "replay-ended"
    phase = state.snapshot.phase
    return "shadow" if in_shadow and phase == "watching" else phase


def render(
    request: Request, state: ServiceState, page: Page, template: str, code: int = 200, /, **values: Any
) -> HTMLResponse:
    """The whole page; or only the block that HTMX asks for."""
    loaded = environment().get_template(template)
    shadow = state.shadow
    values = {
        "title": page.title,
        "snapshot": state.snapshot,
        "open_events": open_events(state),
        "phase": _phase(state, shadow.on),
        "shadow": shadow,
        "replayed": state.replayed,
        "here": quote(request.scope["path"]),  # of a block that is loaded again; a name may hold %, ? and #
        "who": request.state.who,
        "role": request.state.role,
        "logged_in": bool(request.state.session),
        "problems": problems(state),
        "joins_clusters": state.members is not None,
        **values,
    }
    block = request.headers.get("HX-Target", "") if request.headers.get("HX-Request") else ""
    if block in loaded.blocks:
        return HTMLResponse("".join(loaded.blocks[block](loaded.new_context(values))), code)
    return HTMLResponse(loaded.render(values), code)
