"""Anthropic's messages, by its own SDK."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, cast

import anthropic
from anthropic.types import MessageParam

from kamebench.errors import BackendFault
from kamebench.llm.base import Backend, ChatRequest, FinishReason, StreamEnd, TextChunk, Usage
from kamebench.llm.faults import fault_of_kind, retry_after_s
from kamebench.llm.remote import RemoteBackend, RemoteOptions
from kamebench.llm.setup import BackendSetup, read_key, read_options

ANTHROPIC_URL = "https://api.anthropic.com"
KEY_VARIABLE = "ANTHROPIC_API_KEY"

# The API demands a limit; this one is above any spoken answer or verdict.
MAX_TOKENS = 4096

# Models up to Claude 4.6 accept a temperature; later ones refuse any but their own (platform.claude.com,
# pages of the models, read 2026-12-01).
_TAKES_TEMPERATURE = re.compile(r"claude-(2|instant|3|(opus|sonnet|haiku)-4(-[0-6])?(-\d{6,})?$)")

_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class AnthropicBackend(RemoteBackend):
    """A Claude model."""

    provider: ClassVar[str] = "Anthropic"
    family = "anthropic"
    billed = True

    _client: anthropic.AsyncAnthropic

    def _connect(self) -> None:
        self._key = read_key(self.provider, KEY_VARIABLE)
        self._client = anthropic.AsyncAnthropic(
            api_key=self._key.get_secret_value(), base_url=self._url, max_retries=0, timeout=None
        )

    def _takes_temperature(self) -> bool:
        return _TAKES_TEMPERATURE.match(self.name) is not None

    async def _disconnect(self) -> None:
        await self._client.close()

    async def _receive(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        system = "\n\n".join(m.content for m in request.messages if m.role == "system")
        settings: dict[str, Any] = {"system": system} if system else {}
        if self._sends_temperature:
            # Not by its own name: newer SDKs have dropped the parameter, the older models have not.
            settings["extra_body"] = {"temperature": request.temperature}
        finish: FinishReason = "unknown"
        ended = False
        asked: int | None = None
        said: int | None = None
        stream = await self._client.messages.create(
            model=self.name,
            messages=_turns(request),
            max_tokens=request.max_tokens or self._options.default_max_tokens or MAX_TOKENS,
            stream=True,
            **settings,
        )
        async with stream:
            async for event in stream:
                match event.type:
                    case "message_start":
                        asked = event.message.usage.input_tokens
                    case "content_block_delta":
                        if event.delta.type == "text_delta" and event.delta.text:
                            yield TextChunk(event.delta.text)
                    case "message_delta":
                        finish = _FINISH.get(event.delta.stop_reason or "", "unknown")
                        said = event.usage.output_tokens
                    case "message_stop":
                        ended = True
                    case _:
                        pass
        if ended:
            yield StreamEnd(finish, Usage(asked, said))

    def _fault_of(self, error: Exception) -> BackendFault | None:
        if isinstance(error, anthropic.APIConnectionError):
            why = type(error.__cause__).__name__ if error.__cause__ else "no answer"
            return fault_of_kind("connection", f"The connection to {self._who} failed: {why}.")
        if not isinstance(error, anthropic.APIError):
            return None
        body = cast("Mapping[str, Any]", error.body) if isinstance(error.body, Mapping) else {}
        said = body.get("error")
        inner = cast("Mapping[str, Any]", said) if isinstance(said, Mapping) else {}
        status, headers = None, None
        if isinstance(error, anthropic.APIStatusError):
            headers = error.response.headers
            status = error.status_code if error.status_code >= 400 else None  # an error within a stream
        message = inner.get("message") or error.message
        return self._answered(status, (inner.get("type"),), message, retry_after_s(headers))


def _turns(request: ChatRequest) -> list[MessageParam]:
    return [
        cast(MessageParam, {"role": message.role, "content": message.content})
        for message in request.messages
        if message.role != "system"
    ]


def create(setup: BackendSetup) -> Backend:
    """Anthropic itself, or with a `url` a proxy in front of it that takes the same key."""
    options = read_options(RemoteOptions, setup, "anthropic")
    return AnthropicBackend(setup.model, setup.url or ANTHROPIC_URL, options)
