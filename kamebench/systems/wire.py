"""What adapters for running servers share: connecting, Opus both ways, and telling failures apart.

A connection is made once for each session and never again within it: what a turn was played to is what
answers it. While connecting, the session's stream clock stands still, so a slow server does not make the
first frames late.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
import numpy as np
import sphn

from kamebench.audio import SAMPLE_RATE, Frame, Pcm
from kamebench.errors import BadConfig, SystemFault, WorldFault
from kamebench.events import AudioOut, Fault, StageMark, TextOut
from kamebench.systems.base import Session, SessionContext

RETRY_S = 0.5
Message = aiohttp.WSMessage


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens and how long to wait for it.

    busy_wait_s: for a server that says it is busy (503), or accepts the connection and then stays silent.
    attempts: tries to reach one that cannot be connected to, each of `connect_s` at most.
    """

    url: str
    protocols: tuple[str, ...] = ()
    busy_wait_s: float = 30.0
    connect_s: float = 10.0
    attempts: int = 3


def websocket_url(url: str, path: str) -> str:
    """The WebSocket address of a server given as ws://, wss://, http:// or https://, path added if absent.

    Raises:
        BadConfig: another scheme, or no host.
    """
    scheme, mark, rest = url.partition("://")
    schemes = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
    if not mark or scheme not in schemes or not rest.strip("/"):
        raise BadConfig(f"url '{url}': expected ws://HOST:PORT or wss://HOST:PORT of the running server.")
    host, _, given = rest.partition("/")
    return f"{schemes[scheme]}://{host}/{given.rstrip('/') or path.lstrip('/')}"


class OpusDecoder:
    """An Ogg-Opus stream to float32 [n] at 24 000 Hz; survives pages that are damaged or out of order."""

    def __init__(self) -> None:
        self._reader = sphn.OpusStreamReader(SAMPLE_RATE)
        self.damaged = 0

    def decode(self, data: bytes) -> Pcm:
        try:
            pcm = np.asarray(self._reader.append_bytes(data), np.float32).reshape(-1)
            return np.clip(pcm, -1.0, 1.0)  # a lossy codec overshoots
        except ValueError:
            # The reader stays stuck at a page it cannot parse; a new one picks up at the next page.
            self.damaged += 1
            self._reader = sphn.OpusStreamReader(SAMPLE_RATE)
            return np.zeros(0, np.float32)


class RemoteSession(Session):
    """One conversation over one WebSocket. Subclasses say how it opens and what the messages mean."""

    def __init__(self, context: SessionContext, endpoint: Endpoint, what: str) -> None:
        self._context, self._endpoint, self._what = context, endpoint, what
        self._encoder = sphn.OpusStreamWriter(SAMPLE_RATE)
        self._decoder = OpusDecoder()
        self._client: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._listener: asyncio.Task[None] | None = None
        self._frame = -1
        self._error: WorldFault | None = None
        self.unexpected: Counter[str] = Counter()

    @abstractmethod
    async def _opened(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Greet the server and return once it is ready; runs within the busy limit."""

    @abstractmethod
    async def _send_audio(self, socket: aiohttp.ClientWebSocketResponse, opus: bytes) -> None:
        """Send a piece of the user's Ogg-Opus stream."""

    @abstractmethod
    def _receive(self, message: Message) -> None:
        """Take a message; raises `WorldFault` where it says that the server failed."""

    async def __aenter__(self) -> Session:
        try:
            with self._context.clock.stopped():
                self._socket = await self._connect()
        except WorldFault as error:
            self._fail(error)
            await self.aclose()
            raise
        except BaseException:
            await self.aclose()
            raise
        self._listener = asyncio.create_task(self._listen(self._socket))
        return self

    async def send(self, frame: Frame) -> None:
        if self._error is not None:
            raise self._error
        if self._socket is None:
            raise SystemFault(f"{self._what}: the session was not opened", kind="not_started")
        self._frame = frame.index
        opus: bytes = self._encoder.append_pcm(frame.pcm)
        if opus:
            try:
                await self._send_audio(self._socket, opus)
            except (ConnectionError, aiohttp.ClientError) as error:
                raise self._fail(self._lost(str(error))) from None

    async def aclose(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
            self._listener = None
        if self._socket is not None:
            await self._socket.close()
            self._socket = None
        if self._client is not None:
            await self._client.close()
            self._client = None
            if self._decoder.damaged:
                self.unexpected["damaged_opus"] += self._decoder.damaged
            for name, count in self.unexpected.items():
                self._mark(f"unexpected:{name}:{count}")

    # For subclasses

    def _hear(self, opus: bytes) -> None:
        pcm = self._decoder.decode(opus)
        if len(pcm):
            self._context.emit(AudioOut(self._context.clock.now_ns(), self._frame, pcm))

    def _say(self, text: str) -> None:
        self._context.emit(TextOut(self._context.clock.now_ns(), self._frame, text))

    def _mark(self, stage: str) -> None:
        self._context.emit(StageMark(self._context.clock.now_ns(), self._frame, stage))

    # Connecting and listening

    async def _connect(self) -> aiohttp.ClientWebSocketResponse:
        """Connect and wait until the server is ready.

        Raises:
            SystemFault: kind "busy", "unreachable", "refused" or "closed".
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._endpoint.connect_s)
        self._client = aiohttp.ClientSession(timeout=limits)
        endpoint, refused = self._endpoint, 0
        give_up = asyncio.get_running_loop().time() + endpoint.busy_wait_s
        while True:
            try:
                return await self._try(self._client, give_up)
            except aiohttp.WSServerHandshakeError as error:
                if error.status != 503:
                    raise self._refused(error.status) from None
                if asyncio.get_running_loop().time() + RETRY_S > give_up:
                    raise self._busy("answers 503: another session is active") from None
            except aiohttp.ClientConnectionError as error:
                refused += 1
                if refused >= endpoint.attempts:
                    raise SystemFault(
                        f"{self._what} at {endpoint.url} cannot be reached after {refused} attempts "
                        f"({error or 'no answer'}). Start the server, or correct the option 'url'.",
                        kind="unreachable",
                        retryable=True,
                    ) from None
            await asyncio.sleep(RETRY_S)

    async def _try(self, client: aiohttp.ClientSession, give_up: float) -> aiohttp.ClientWebSocketResponse:
        endpoint = self._endpoint
        socket: aiohttp.ClientWebSocketResponse | None = None
        limit = asyncio.timeout_at(give_up)
        try:
            async with limit:
                # No limit on a message's size: a server that fell behind sends what it has at once.
                socket = await client.ws_connect(endpoint.url, protocols=endpoint.protocols, max_msg_size=0)
                await self._opened(socket)
                return socket
        except BaseException as error:
            if socket is not None:
                await socket.close()
            if isinstance(error, TimeoutError) and limit.expired():
                raise self._busy("accepts the connection and sends no handshake") from None
            raise

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        try:
            async for message in socket:
                self._receive(message)
            self._fail(self._lost(f"close code {socket.close_code}"))
        except WorldFault as error:
            self._fail(error)

    def _busy(self, how: str) -> SystemFault:
        return SystemFault(
            f"{self._what} at {self._endpoint.url} {how}, for {self._endpoint.busy_wait_s:g} s. It holds a "
            "limited number of sessions: end the others, or raise the option 'busy_wait_s'.",
            kind="busy",
            retryable=True,
        )

    def _refused(self, status: int) -> SystemFault:
        return SystemFault(
            f"{self._what} at {self._endpoint.url} refused the connection with status {status}. "
            "Correct the option 'url', or see the server's log.",
            kind="refused",
        )

    def _lost(self, how: str) -> SystemFault:
        return SystemFault(
            f"{self._what} closed the connection within the session ({how}). See the server's log; the next "
            "session connects anew.",
            kind="disconnected",
            retryable=True,
        )

    def _fail(self, error: WorldFault) -> WorldFault:
        """Report a failure once; later calls of `send` raise it."""
        if self._error is None:
            self._error = error
            now_ns = self._context.clock.now_ns()
            self._context.emit(
                Fault(now_ns, self._frame, error.party, error.kind, str(error), error.retryable)
            )
        return self._error
