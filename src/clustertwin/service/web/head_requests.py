"""Answer HEAD wherever GET is answered: the same status and headers, without the body."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """ASGI middleware. The routes below it see a GET request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_head(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        async def receive_until_started() -> Message:
            # A stream ends when its client disconnects. After the headers there is nothing left to send.
            return {"type": "http.disconnect"} if started else await receive()

        # A copy: the server reads the method of its own scope to know that the body is empty.
        await self.app({**scope, "method": "GET"}, receive_until_started, send_head)
