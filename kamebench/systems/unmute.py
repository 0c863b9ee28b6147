"""A running Unmute: WebSocket /v1/realtime, JSON events after the OpenAI Realtime API.

The client sends `session.update` first and then the microphone as base64 Ogg-Opus. The server speaks first,
and again after about 7 s of silence. As in Unmute's own page everything that arrives is played: the server
itself stops sending when the user interrupts it.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, cast

import aiohttp
from pydantic import Field

from kamebench.errors import BadConfig, SystemFault
from kamebench.events import Heard
from kamebench.systems import Options, Setup, read_options
from kamebench.systems.base import Capabilities, Session, SessionContext, System
from kamebench.systems.wire import Endpoint, Message, RemoteSession, websocket_url

IDLE_PROMPT_S = 7.0  # silence after which the server speaks unprompted (USER_SILENCE_TIMEOUT in its source)

# Events that carry nothing a recording needs.
SILENT = frozenset(
    {
        "session.updated",
        "response.text.done",
        "unmute.additional_outputs",
        "unmute.response.text.delta.ready",
        "unmute.response.audio.delta.ready",
    }
)


class UnmuteOptions(Options):
    """`voice`: the server's name of a voice, None for its own choice. `instructions`: Unmute's own object,
    for example {type = "constant", text = "..."}."""

    url: str = "ws://localhost:8000"
    voice: str | None = None
    instructions: dict[str, Any] | None = None
    busy_wait_s: float = Field(default=30.0, gt=0)
    attempts: int = Field(default=3, ge=1)
    sessions: int = Field(default=4, ge=1, description="as many as one Unmute backend process serves")


class UnmuteSession(RemoteSession):
    """One conversation over /v1/realtime."""

    def __init__(self, context: SessionContext, endpoint: Endpoint, options: UnmuteOptions) -> None:
        super().__init__(context, endpoint, "Unmute")
        self._options = options
        self._heard = ""
        self._user_spoke = False

    async def _opened(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Send the session's settings and wait until the server has confirmed them."""
        session = {
            "voice": self._options.voice,
            "instructions": self._options.instructions or {"type": "smalltalk"},
            "allow_recording": False,
        }
        await socket.send_json({"type": "session.update", "session": session})
        while True:
            message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise SystemFault(
                    f"{self._what} closed the connection before the session was set up (close code "
                    f"{socket.close_code}). See the server's log and its /v1/health.",
                    kind="closed",
                    retryable=True,
                )
            if self._parse(message).get("type") == "session.updated":
                return
            self._receive(message)

    async def _send_audio(self, socket: aiohttp.ClientWebSocketResponse, opus: bytes) -> None:
        audio = base64.b64encode(opus).decode("ascii")
        await socket.send_json({"type": "input_audio_buffer.append", "audio": audio})

    def _parse(self, message: Message) -> dict[str, Any]:
        try:
            event = json.loads(message.data) if message.type is aiohttp.WSMsgType.TEXT else None
        except json.JSONDecodeError:
            event = None
        return cast("dict[str, Any]", event) if isinstance(event, dict) else {}

    def _receive(self, message: Message) -> None:
        event = self._parse(message)
        kind = event.get("type")
        match kind:
            case "response.audio.delta":
                self._audio(event)
            case "response.text.delta":
                self._say(f" {event.get('delta', '')}")  # its words come without spaces
            case "response.created":
                self._mark("response_created" if self._user_spoke else "response_unprompted")
                self._user_spoke = False
            case "response.audio.done":
                self._mark("response_done")
            case "conversation.item.input_audio_transcription.delta":
                self._hear_user(str(event.get("delta", "")))
            case "input_audio_buffer.speech_started":
                self._mark("speech_started")
            case "input_audio_buffer.speech_stopped":
                self._mark("speech_end")
                self._finish_user()
            case "unmute.interrupted_by_vad":
                self._mark("interrupted")
            case "error":
                self._server_error(event)
            case _:
                if kind not in SILENT:
                    self.unexpected[str(kind or "not_an_event")] += 1

    def _audio(self, event: dict[str, Any]) -> None:
        try:
            opus = base64.b64decode(event.get("delta", ""), validate=True)
        except (binascii.Error, TypeError, ValueError):
            self.unexpected["damaged_base64"] += 1
            return
        self._hear(opus)

    def _hear_user(self, delta: str) -> None:
        self._user_spoke = True
        self._heard = f"{self._heard} {delta.strip()}".strip()
        self._context.emit(Heard(self._context.clock.now_ns(), self._frame, self._heard, False))

    def _finish_user(self) -> None:
        if self._heard:
            self._context.emit(Heard(self._context.clock.now_ns(), self._frame, self._heard, True))
        self._heard = ""

    def _server_error(self, event: dict[str, Any]) -> None:
        raw = event.get("error")
        error = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
        message, kind = str(error.get("message", "no message")), str(error.get("type", "error"))
        if kind == "warning":
            self._mark("server_warning")
            return
        # What the server says when it, or a service behind it, is full.
        busy = "too many people" in message.lower()
        raise SystemFault(
            f"Unmute reports an error ({kind}): {message}",
            kind="busy" if busy else "server_error",
            retryable=busy,
        )


class UnmuteSystem(System):
    def __init__(self, options: UnmuteOptions) -> None:
        self._options = options
        self.capabilities = Capabilities(
            full_duplex=True, emits_text=True, max_sessions=options.sessions, idle_prompt_s=IDLE_PROMPT_S
        )
        self._endpoint = Endpoint(
            websocket_url(options.url, "/v1/realtime"),
            ("realtime",),
            busy_wait_s=options.busy_wait_s,
            attempts=options.attempts,
        )

    def session(self, context: SessionContext) -> Session:
        return UnmuteSession(context, self._endpoint, self._options)

    def describe(self) -> dict[str, Any]:
        return {"server": "Unmute", "url": self._endpoint.url, "voice": self._options.voice}


def create(setup: Setup) -> System:
    if setup.backend_name is not None:
        raise BadConfig(
            f"--backend {setup.backend_name}: Unmute's language model is chosen where the server is started. "
            "Leave the option out."
        )
    return UnmuteSystem(read_options(UnmuteOptions, setup.options))
