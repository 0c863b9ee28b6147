"""Servers of the tests for the adapters of running servers, and a caller that plays frames to them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import sphn
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from kamebench.audio import FRAME_SAMPLES, SAMPLE_RATE, Frame
from kamebench.clock import NS_PER_MS, Activity, StreamClock
from kamebench.errors import WorldFault
from kamebench.events import AudioOut, Event, Fault, TextOut
from kamebench.systems.base import SessionContext, System

TestServer.__test__ = False  # type: ignore[attr-defined]  # a server, not a test

TONE = (0.3 * np.sin(2 * np.pi * 440 * np.arange(FRAME_SAMPLES) / SAMPLE_RATE)).astype(np.float32)


@dataclass
class Call:
    """What one session gave."""

    events: list[Event] = field(default_factory=list)
    error: WorldFault | None = None

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, TextOut))

    @property
    def samples(self) -> int:
        return sum(len(e.pcm) for e in self.events if isinstance(e, AudioOut))

    @property
    def faults(self) -> list[Fault]:
        return [e for e in self.events if isinstance(e, Fault)]


async def call(
    system: System, folder: Path, n_frames: int, *, beat_ms: int = 10, wait_s: float = 0.0
) -> Call:
    """One session: n frames, one every `beat_ms`, then `wait_s` to listen on. Faults are returned."""
    clock, result = StreamClock(), Call()
    context = SessionContext(clock, Activity(clock), result.events.append, "realtime", 0, folder)
    try:
        async with system.session(context) as session:
            for k in range(n_frames):
                await session.send(Frame(k, TONE))
                await clock.sleep_until_ns((k + 1) * beat_ms * NS_PER_MS)
            await asyncio.sleep(wait_s)
    except WorldFault as error:
        result.error = error
    return result


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(path: str, handler: Handler) -> AsyncIterator[str]:
    """Serve `handler` on loopback; gives the address."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await handler(request)

    app = web.Application()
    app.router.add_get(path, handle)
    server = TestServer(app)
    await server.start_server()
    try:
        yield f"ws://{server.host}:{server.port}"
    finally:
        await server.close()


class ChatServer:
    """Speaks /api/chat: echoes the caller's audio; `before`, `oddities` and `hang_up_after` disturb it.

    One session at a time; another one is answered 503, as the released KAME server does.
    """

    def __init__(
        self,
        *,
        oddities: tuple[bytes | str, ...] = (),
        before: tuple[bytes, ...] = (),
        hang_up_after: int | None = None,
        shake: bool = True,
        on_session: Callable[[], None] | None = None,
    ) -> None:
        self.oddities, self.before, self.hang_up_after = oddities, before, hang_up_after
        self.shake, self.on_session = shake, on_session
        self.busy = False
        self.sessions = 0
        self.received = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if self.busy:
            return web.Response(status=503, text="busy")
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.busy = True
        self.sessions += 1
        try:
            await self._talk(socket)
        finally:
            self.busy = False
        return socket

    async def _talk(self, socket: web.WebSocketResponse) -> None:
        for data in self.before:
            await socket.send_bytes(data)
        if self.shake:
            await socket.send_bytes(b"\x00")
            if self.on_session:
                self.on_session()
        reader, writer = sphn.OpusStreamReader(SAMPLE_RATE), sphn.OpusStreamWriter(SAMPLE_RATE)
        count = 0
        async for message in socket:
            assert message.type is WSMsgType.BINARY
            assert message.data[0] == 1
            pcm = reader.append_bytes(message.data[1:])
            self.received += len(pcm)
            count += 1
            if self.hang_up_after is not None and count > self.hang_up_after:
                return
            if len(pcm):
                with suppress(ConnectionError):
                    await socket.send_bytes(b"\x01" + writer.append_pcm(pcm))
                    await socket.send_bytes(b"\x02" + f" w{count}".encode())
            if count == 3:
                for odd in self.oddities:
                    await (socket.send_str(odd) if isinstance(odd, str) else socket.send_bytes(odd))


class UnmuteServer:
    """Speaks /v1/realtime: greets, then answers after a given number of appended pieces."""

    def __init__(self, script: dict[int, list[dict[str, object] | str]], *, greet: bool = True) -> None:
        self.script, self.greet = script, greet
        self.updates: list[dict[str, object]] = []
        self.writer = sphn.OpusStreamWriter(SAMPLE_RATE)
        self.protocol: str | None = None

    def audio(self, n_frames: int = 1) -> dict[str, object]:
        """An audio event, continuing the session's Opus stream."""
        opus = b"".join(self.writer.append_pcm(TONE) for _ in range(n_frames))
        return {"type": "response.audio.delta", "delta": base64.b64encode(opus).decode()}

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("realtime",))
        await socket.prepare(request)
        self.protocol = socket.ws_protocol
        count = 0
        async for message in socket:
            event = json.loads(message.data)
            if event["type"] == "session.update":
                self.updates.append(event["session"])
                await socket.send_json({"type": "session.updated", "session": event["session"]})
                if self.greet:
                    await socket.send_json({"type": "response.created", "response": {}})
                    await socket.send_json(self.audio(3))
                    await socket.send_json({"type": "response.audio.done"})
                continue
            assert event["type"] == "input_audio_buffer.append"
            assert base64.b64decode(event["audio"])
            count += 1
            for out in self.script.get(count, []):
                await socket.send_str(out if isinstance(out, str) else json.dumps(out))
        return socket
