"""Samples that Prometheus pushes: a POST of remote write 1.0 -> 204, or a 4xx with one sentence.

Senders repeat a request after a 5xx, may repeat it after a 429, and drop it after any other 4xx. So one series that
cannot be used never blocks the queue of a sender: it is left out and counted, the others are used, and the answer is
400, which the sender logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.requests import ClientDisconnect

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.contract import RouteGroup
from clustertwin.telemetry.ingest.pushed.write_request import WriteError, WriteLimits, declared_length

#: How long a request waits for the thread that takes in samples.
ANSWER_S = 20.0
_LIMITS = WriteLimits()


def router(state: ServiceState) -> APIRouter:
    api = APIRouter(tags=["remote write"])

    @api.post(
        "/write",
        summary="Take in samples of Prometheus' remote write 1.0: a snappy block with a protobuf WriteRequest",
        status_code=204,
        response_class=Response,
        responses={status: {"description": text} for status, text in _ANSWERS.items()},
    )
    async def write(request: Request) -> Response:
        receiver = state.receiver
        if receiver is None:
            return _refuse(404, 'this service does not take in samples; set source.kind = "remote-write"')
        try:
            _check_head(request.headers)
            with receiver.reserved(request.state.who, int(request.headers["content-length"])):
                body = await request.body()
                declared_length(body, _LIMITS)
                taken = receiver.submit(request.state.who, body)
                reason = await asyncio.wait_for(asyncio.wrap_future(taken), ANSWER_S)
        except WriteError as error:
            return _refuse(error.status, str(error))
        except ClientDisconnect:
            return _refuse(400, "the request has no end")
        except TimeoutError:
            return _refuse(503, "the samples could not be taken in yet; send them again later")
        return _refuse(400, f"{reason}; the others are used") if reason else Response(status_code=204)

    return api


_ANSWERS = {
    400: "The request is damaged, or some of its series cannot be used",
    404: "The source of this service is another",
    411: "The length of the body is missing",
    413: "The request is over a limit",
    415: "The request is not remote write 1.0",
    429: "The service is busy; send the request again later",
    503: "The samples could not be taken in yet; send them again later",
}

ROUTES = RouteGroup(paths=("/write",), router=router, change_role="push", body_bytes=_LIMITS.body_bytes)


def _check_head(headers: Mapping[str, str]) -> None:
    """WriteError if the head is not that of remote write 1.0."""
    kind, _, parameters = headers.get("content-type", "").partition(";")
    message = parameters.replace(" ", "").removeprefix("proto=")
    version = headers.get("x-prometheus-remote-write-version", "0.1.0")
    if kind.strip() != "application/x-protobuf" or message not in ("", "prometheus.WriteRequest"):
        raise WriteError("only remote write 1.0 is understood: Content-Type application/x-protobuf", 415)
    if headers.get("content-encoding", "") != "snappy":
        raise WriteError("only remote write 1.0 is understood: Content-Encoding snappy", 415)
    if not version.startswith(("0.", "1.")):
        raise WriteError("only remote write 1.0 is understood; set the sender to prometheus.WriteRequest", 415)
    if "content-length" not in headers:
        raise WriteError("the length of the body is missing", 411)


def _refuse(status: int, reason: str) -> Response:
    return PlainTextResponse(f"{reason}\n", status)
