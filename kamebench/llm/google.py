"""Google's Gemini models, by its own SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, cast

import httpx2
from google import genai
from google.genai import errors, types
from pydantic import Field

from kamebench.errors import BackendFault
from kamebench.llm.base import Backend, ChatRequest, FinishReason, StreamEnd, TextChunk, Usage
from kamebench.llm.faults import retry_after_s
from kamebench.llm.remote import RemoteBackend, RemoteOptions, is_loopback
from kamebench.llm.setup import BackendSetup, read_key, read_options

GOOGLE_URL = "https://generativelanguage.googleapis.com/"
KEY_VARIABLES = ("GEMINI_API_KEY", "GOOGLE_API_KEY")

_FINISH: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "MODEL_ARMOR": "refusal",
}


class GoogleOptions(RemoteOptions):
    """thinking_budget: tokens the model may think before it speaks, 0 for none; None is its own choice."""

    thinking_budget: int | None = Field(default=None, ge=-1)


class GoogleBackend(RemoteBackend):
    """A Gemini model."""

    provider: ClassVar[str] = "Google"
    family = "google"
    billed = True

    _client: genai.Client
    _http: httpx2.AsyncClient

    def __init__(self, model: str, url: str, options: GoogleOptions) -> None:
        super().__init__(model, url, options)
        self._thinking_budget = options.thinking_budget

    def _connect(self) -> None:
        self._key = read_key(self.provider, *KEY_VARIABLES)
        self._http = httpx2.AsyncClient(timeout=None, trust_env=not is_loopback(self._url))
        self._client = genai.Client(
            api_key=self._key.get_secret_value(),
            vertexai=False,
            http_options=types.HttpOptions(
                base_url=self._url,
                # Else the SDK takes aiohttp where it is installed, and with it waits up to ten seconds and
                # asks again when a connection fails.
                httpx_async_client=self._http,
                retry_options=types.HttpRetryOptions(attempts=1),
            ),
        )

    async def _disconnect(self) -> None:
        await self._client.aio.aclose()
        await self._http.aclose()
        self._client.close()

    def _config(self, request: ChatRequest) -> types.GenerateContentConfig:
        system = "\n\n".join(m.content for m in request.messages if m.role == "system")
        thinking = self._thinking_budget
        return types.GenerateContentConfig(
            system_instruction=system or None,
            temperature=request.temperature if self._sends_temperature else None,
            max_output_tokens=request.max_tokens or self._options.default_max_tokens,
            thinking_config=None if thinking is None else types.ThinkingConfig(thinking_budget=thinking),
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )

    async def _receive(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        contents = [
            types.Content(
                role="model" if m.role == "assistant" else "user", parts=[types.Part(text=m.content)]
            )
            for m in request.messages
            if m.role != "system"
        ]
        finish: FinishReason | None = None
        usage = Usage()
        stream = await self._client.aio.models.generate_content_stream(
            model=self.name, contents=cast(Any, contents), config=self._config(request)
        )
        async for chunk in stream:
            if chunk.usage_metadata is not None:
                usage = _usage(chunk.usage_metadata)
            if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason is not None:
                finish = "refusal"
            for candidate in (chunk.candidates or [])[:1]:
                for part in (candidate.content.parts if candidate.content else None) or []:
                    if part.text and not part.thought:
                        yield TextChunk(part.text)
                if candidate.finish_reason is not None:
                    finish = _FINISH.get(candidate.finish_reason.value, "unknown")
        if finish is not None:
            yield StreamEnd(finish, usage)

    def _fault_of(self, error: Exception) -> BackendFault | None:
        if not isinstance(error, errors.APIError):
            return None
        details = _details(error.details)
        words = [detail.get("reason") for detail in details] + [error.status]
        wait_s = retry_after_s(getattr(error.response, "headers", None))
        for detail in details:
            delay = detail.get("retryDelay")  # google.rpc.RetryInfo: "17s"
            if wait_s is None and isinstance(delay, str):
                wait_s = retry_after_s({"retry-after": delay.removesuffix("s")})
        return self._answered(error.code, words, error.message or error.status, wait_s)


def _details(body: object) -> list[Mapping[str, Any]]:
    """The `details` of an error body, whatever it really holds."""
    outer = cast("Mapping[str, Any]", body) if isinstance(body, Mapping) else {}
    inner = outer.get("error", outer)
    found = cast("Mapping[str, Any]", inner).get("details") if isinstance(inner, Mapping) else None
    if not isinstance(found, list):
        return []
    return [
        cast("Mapping[str, Any]", detail)
        for detail in cast("list[object]", found)
        if isinstance(detail, Mapping)
    ]


def _usage(counted: types.GenerateContentResponseUsageMetadata) -> Usage:
    """Tokens as billed: thoughts are paid for as output."""
    said = counted.candidates_token_count
    if counted.thoughts_token_count:
        said = (said or 0) + counted.thoughts_token_count
    return Usage(counted.prompt_token_count, said)


def create(setup: BackendSetup) -> Backend:
    """Google itself, or with a `url` a proxy in front of it that takes the same key."""
    options = read_options(GoogleOptions, setup, "google")
    return GoogleBackend(setup.model, setup.url or GOOGLE_URL, options)
