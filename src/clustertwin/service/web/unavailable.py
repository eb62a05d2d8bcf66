"""The answer while the service cannot read its data: a sentence, as a page or as JSON, with the status 503."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse, JSONResponse, Response


def unavailable(sentence: str, accept: str) -> Response:
    """`accept` is the request's Accept header. The page needs no template, style or script that might fail too."""
    headers = {"Retry-After": "10"}
    if "text/html" not in accept:
        return JSONResponse({"detail": sentence}, 503, headers)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Not available · clustertwin</title></head>'
        f'<body><h1>clustertwin</h1><p role="alert">{escape(sentence)}</p></body></html>'
    )
    return HTMLResponse(page, 503, headers)
