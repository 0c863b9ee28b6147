"""A loopback server that speaks the providers' protocols byte by byte, and misbehaves on demand."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

# A piece of body (sent as one HTTP chunk), a pause in seconds, or what happens to the connection:
# "reset": torn down, "eof": closed without the last HTTP chunk, "hang": nothing more until the client goes.
Piece = bytes | float | Literal["reset", "eof", "hang"]


@dataclass(frozen=True)
class Reply:
    """One answer. `status` 0: not even a status line before the pieces' first word."""

    pieces: Sequence[Piece] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"


@dataclass
class Asked:
    """One request as it came over the wire."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class WireServer:
    """Answers the n-th request with the n-th reply, the last one for all further requests."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.asked: list[Asked] = []
        self.client_left = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.client_left.set()
        except asyncio.CancelledError:
            pass  # by aclose; asyncio's own callback does not stand a cancelled task
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        reply = self.replies[min(len(self.asked), len(self.replies) - 1)]
        self.asked.append(Asked(head[0].split()[1], headers, json.loads(body)))
        if reply.status:
            lines = [f"HTTP/1.1 {reply.status} Said", f"Content-Type: {reply.content_type}"]
            lines += [f"{name}: {value}" for name, value in reply.headers.items()]
            writer.write("\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode())
        for piece in reply.pieces:
            if piece == b"":  # an empty HTTP chunk would be the end
                continue
            if isinstance(piece, bytes):
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                await writer.drain()
            elif isinstance(piece, float):
                await asyncio.sleep(piece)
            elif piece == "hang":
                await writer.drain()
                if not await reader.read(1):
                    self.client_left.set()
                return False
            else:
                if piece == "reset":
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def aclose(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def wire_server() -> AsyncIterator[WireServer]:
    server = WireServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await server.aclose()
        await listening.wait_closed()


def _json(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


class Dialect:
    """How one provider says things. Each method gives the bytes of whole events."""

    provider: str
    model: str
    base = ""
    key_variable: str
    key_header: str

    def opening(self) -> bytes:
        return b""

    def text(self, text: str) -> bytes:
        raise NotImplementedError

    def empty(self) -> bytes:
        """Events that carry no text: empty and null content."""
        raise NotImplementedError

    def closing(self, finish: Literal["stop", "length", "refusal"] = "stop") -> bytes:
        """Terminal events; the usage is 11 tokens asked, 7 said."""
        raise NotImplementedError

    def error(self, status: int, message: str = "no") -> bytes:
        """The body of an error answer."""
        raise NotImplementedError

    def error_within(self) -> bytes:
        """The provider says in mid-stream that it is overloaded."""
        raise NotImplementedError

    def answer(self, *texts: str) -> list[Piece]:
        return [self.opening(), *(self.text(text) for text in texts), self.closing()]


class OpenAI(Dialect):
    provider, model, base = "openai", "gpt-4.1", "/v1"
    key_variable, key_header = "OPENAI_API_KEY", "authorization"

    def _chunk(self, delta: object, finish: str | None = None, usage: object = None) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": self.model}
        return b"data: " + _json({**body, "choices": choices, "usage": usage}) + b"\n\n"

    def opening(self) -> bytes:
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def text(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def empty(self) -> bytes:
        return self._chunk({"content": ""}) + self._chunk({"content": None}) + self._chunk({})

    def closing(self, finish: Literal["stop", "length", "refusal"] = "stop") -> bytes:
        said = {"stop": "stop", "length": "length", "refusal": "content_filter"}[finish]
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        return self._chunk({}, said) + self._chunk(None, None, usage) + b"data: [DONE]\n\n"

    def error(self, status: int, message: str = "no") -> bytes:
        code = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}.get(status)
        return _json({"error": {"message": message, "type": "invalid_request_error", "code": code}})

    def error_within(self) -> bytes:
        return (
            b"data: " + _json({"error": {"message": "busy", "type": "server_error", "code": None}}) + b"\n\n"
        )


class Compatible(OpenAI):
    provider, model = "openai-compatible", "llama3"
    key_variable = "OPENAI_COMPATIBLE_API_KEY"

    def error(self, status: int, message: str = "no") -> bytes:
        return _json({"detail": message})  # such servers have error bodies of their own


class Anthropic(Dialect):
    provider, model = "anthropic", "claude-opus-4-1"
    key_variable, key_header = "ANTHROPIC_API_KEY", "authorization"

    def _event(self, kind: str, **fields: object) -> bytes:
        return f"event: {kind}\ndata: ".encode() + _json({"type": kind, **fields}) + b"\n\n"

    def opening(self) -> bytes:
        message = {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 1},
        }
        block = {"type": "text", "text": ""}
        return (
            self._event("message_start", message=message)
            + self._event("content_block_start", index=0, content_block=block)
            + self._event("ping")
        )

    def text(self, text: str) -> bytes:
        return self._event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

    def empty(self) -> bytes:
        return self.text("") + self._event(
            "content_block_delta", index=0, delta={"type": "text_delta", "text": None}
        )

    def closing(self, finish: Literal["stop", "length", "refusal"] = "stop") -> bytes:
        said = {"stop": "end_turn", "length": "max_tokens", "refusal": "refusal"}[finish]
        delta = {"stop_reason": said, "stop_sequence": None}
        return (
            self._event("content_block_stop", index=0)
            + self._event("message_delta", delta=delta, usage={"output_tokens": 7})
            + self._event("message_stop")
        )

    def error(self, status: int, message: str = "no") -> bytes:
        kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
        kinds |= {400: "invalid_request_error", 500: "api_error", 529: "overloaded_error"}
        return _json({"type": "error", "error": {"type": kinds[status], "message": message}})

    def error_within(self) -> bytes:
        return self._event("error", error={"type": "overloaded_error", "message": "busy"})


class Google(Dialect):
    provider, model = "google", "gemini-2.5-flash"
    key_variable, key_header = "GEMINI_API_KEY", "x-goog-api-key"

    def _event(self, parts: object, finish: str | None = None, **more: object) -> bytes:
        candidate: dict[str, object] = {"index": 0, "content": {"role": "model", "parts": parts}}
        if finish:
            candidate["finishReason"] = finish
        return b"data: " + _json({"candidates": [candidate], **more}) + b"\r\n\r\n"

    def text(self, text: str) -> bytes:
        return self._event([{"text": text}])

    def empty(self) -> bytes:
        thought = self._event([{"text": "hm", "thought": True}])
        return self.text("") + self._event([]) + b'data: {"candidates": null}\r\n\r\n' + thought

    def closing(self, finish: Literal["stop", "length", "refusal"] = "stop") -> bytes:
        said = {"stop": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}[finish]
        usage = {"promptTokenCount": 11, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}
        return self._event([], said, usageMetadata=usage)

    def error(self, status: int, message: str = "no") -> bytes:
        names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
        names |= {500: "INTERNAL", 529: "UNAVAILABLE"}
        return _json({"error": {"code": status, "message": message, "status": names[status]}})

    def error_within(self) -> bytes:
        return _json({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}})


DIALECTS: dict[str, Dialect] = {d.provider: d for d in (OpenAI(), Compatible(), Anthropic(), Google())}
