"""A running `moshi.server`: WebSocket /api/chat, binary messages whose first byte is the kind.

0 handshake (once the server is ready), 1 Ogg-Opus audio, 2 a piece of text. A busy server accepts the socket
and sends no handshake until it is free.
"""

from __future__ import annotations

from typing import Any

import aiohttp
from pydantic import Field

from kamebench.errors import BadConfig, SystemFault
from kamebench.systems import Options, Setup, read_options
from kamebench.systems.base import Capabilities, Session, SessionContext, System
from kamebench.systems.wire import Endpoint, Message, RemoteSession, websocket_url

HANDSHAKE, AUDIO, TEXT = 0, 1, 2


class ServerOptions(Options):
    """`busy_wait_s`: how long a server may be busy with another session before that is a fault."""

    url: str = "ws://localhost:8998"
    busy_wait_s: float = Field(default=30.0, gt=0)
    attempts: int = Field(default=3, ge=1)


class ChatSession(RemoteSession):
    """One conversation over /api/chat."""

    async def _opened(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            message = await socket.receive()
            if message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSING):
                raise SystemFault(
                    f"{self._what} closed the connection before its handshake (close code "
                    f"{socket.close_code}). See the server's log.",
                    kind="closed",
                    retryable=True,
                )
            if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == bytes([HANDSHAKE]):
                return
            self.unexpected["before_handshake"] += 1

    async def _send_audio(self, socket: aiohttp.ClientWebSocketResponse, opus: bytes) -> None:
        await socket.send_bytes(bytes([AUDIO]) + opus)

    def _receive(self, message: Message) -> None:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            self.unexpected["not_binary"] += 1
            return
        kind, payload = message.data[0], message.data[1:]
        if kind == AUDIO:
            self._hear(payload)
        elif kind == TEXT:
            self._say(payload.decode("utf-8", errors="replace"))
        else:
            self.unexpected[f"kind_{kind}"] += 1


class ChatSystem(System):
    """A server that speaks /api/chat."""

    capabilities = Capabilities(full_duplex=True, emits_text=True)

    def __init__(self, options: ServerOptions, what: str = "moshi.server") -> None:
        self._what = what
        self._endpoint = Endpoint(
            websocket_url(options.url, "/api/chat"),
            busy_wait_s=options.busy_wait_s,
            attempts=options.attempts,
        )

    def session(self, context: SessionContext) -> Session:
        return ChatSession(context, self._endpoint, self._what)

    def describe(self) -> dict[str, Any]:
        return {"server": self._what, "url": self._endpoint.url}


def create(setup: Setup) -> System:
    if setup.backend_name is not None:
        raise BadConfig(f"--backend {setup.backend_name}: Moshi has no back-end. Leave the option out.")
    return ChatSystem(read_options(ServerOptions, setup.options))
