"""OpenAI's chat completions, by its own SDK: for OpenAI itself and for every server that speaks the same."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, cast

import openai
from pydantic import SecretStr

from kamebench.errors import BackendFault, BadConfig
from kamebench.llm.base import Backend, ChatRequest, FinishReason, StreamEnd, TextChunk, Usage
from kamebench.llm.faults import fault_of_kind, retry_after_s
from kamebench.llm.remote import RemoteBackend, RemoteOptions, is_loopback
from kamebench.llm.setup import BackendSetup, find_key, read_key, read_options

OPENAI_URL = "https://api.openai.com/v1"
KEY_VARIABLE = "OPENAI_API_KEY"
# Not OPENAI_API_KEY: a key must not travel to a server that it was not made for.
COMPATIBLE_KEY_VARIABLE = "OPENAI_COMPATIBLE_API_KEY"

# Reasoning models accept only their own temperature.
_REASONING = re.compile(r"(o\d|gpt-[5-9])")

_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length", "content_filter": "refusal"}


class OpenAIOptions(RemoteOptions):
    """seed: asked for where given; providers promise no more than their best."""

    seed: int | None = None


class OpenAIBackend(RemoteBackend):
    """A model behind OpenAI's chat completions."""

    provider: ClassVar[str] = "OpenAI"
    family = "openai"
    billed = True

    _client: openai.AsyncOpenAI

    def __init__(self, model: str, url: str, options: OpenAIOptions) -> None:
        super().__init__(model, url, options)
        self._seed = options.seed

    def _find_key(self) -> SecretStr | None:
        return read_key(self.provider, KEY_VARIABLE)

    def _connect(self) -> None:
        self._key = self._find_key()
        self._client = openai.AsyncOpenAI(
            api_key=self._key.get_secret_value() if self._key else "none",
            base_url=self._url,
            max_retries=0,
            timeout=None,
            **(_to_this_machine() if is_loopback(self._url) else {}),
        )

    async def _disconnect(self) -> None:
        await self._client.close()

    def _takes_temperature(self) -> bool:
        return not _REASONING.match(self.name)

    def _settings(self, request: ChatRequest) -> dict[str, Any]:
        """What is sent beside model and messages."""
        settings: dict[str, Any] = {}
        if self._sends_temperature:
            settings["temperature"] = request.temperature
        limit = request.max_tokens or self._options.default_max_tokens
        if limit is not None:
            settings["max_completion_tokens"] = limit
        if self._seed is not None:
            settings["seed"] = self._seed
        return settings

    async def _receive(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        finish: FinishReason | None = None
        refused = False
        usage = Usage()
        stream = await self._client.chat.completions.create(
            model=self.name,
            messages=cast(Any, [{"role": m.role, "content": m.content} for m in request.messages]),
            stream=True,
            stream_options={"include_usage": True},
            **self._settings(request),
        )
        async with stream:
            async for chunk in stream:
                if chunk.usage is not None:
                    usage = Usage(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
                for choice in (chunk.choices or [])[:1]:
                    if choice.delta.content:
                        yield TextChunk(choice.delta.content)
                    refusal = getattr(choice.delta, "refusal", None)
                    if refusal:
                        refused = True
                        yield TextChunk(refusal)
                    if choice.finish_reason is not None:
                        finish = _FINISH.get(choice.finish_reason, "unknown")
        if finish is not None:
            yield StreamEnd("refusal" if refused else finish, usage)

    def _fault_of(self, error: Exception) -> BackendFault | None:
        if isinstance(error, openai.APIConnectionError):
            why = type(error.__cause__).__name__ if error.__cause__ else "no answer"
            return fault_of_kind("connection", f"The connection to {self._who} failed: {why}.")
        if not isinstance(error, openai.APIError):
            return None
        body = cast("Mapping[str, Any]", error.body) if isinstance(error.body, Mapping) else {}
        status, headers = None, None
        if isinstance(error, openai.APIStatusError):
            status, headers = error.status_code, error.response.headers
        words = (body.get("code"), body.get("type"))
        return self._answered(status, words, body.get("message") or error.message, retry_after_s(headers))


class CompatibleBackend(OpenAIBackend):
    """A server that speaks OpenAI's protocol: vLLM, Ollama, llama.cpp. It needs no key."""

    provider: ClassVar[str] = "The openai-compatible server"
    family = "openai-compatible"

    def __init__(self, model: str, url: str, options: OpenAIOptions) -> None:
        super().__init__(model, url, options)
        self.billed = not is_loopback(url)

    def _find_key(self) -> SecretStr | None:
        return find_key(COMPATIBLE_KEY_VARIABLE)

    def _takes_temperature(self) -> bool:
        return True

    def _settings(self, request: ChatRequest) -> dict[str, Any]:
        settings = super()._settings(request)
        if "max_completion_tokens" in settings:  # the older name is the one that all servers know
            settings["max_tokens"] = settings.pop("max_completion_tokens")
        return settings


def _to_this_machine() -> dict[str, Any]:
    """Never through a proxy, and a connection for each request.

    llama.cpp's server closes a connection after a streamed answer without having said so: of requests that
    follow at once on a kept one, about a tenth failed. Connecting to this machine costs less than 1 ms.
    """
    return {
        "http_client": openai.DefaultAsyncHttpxClient(trust_env=False),
        "default_headers": {"Connection": "close"},
    }


def create(setup: BackendSetup) -> Backend:
    """OpenAI itself, or with a `url` a proxy in front of it that takes the same key."""
    options = read_options(OpenAIOptions, setup, "openai")
    return OpenAIBackend(setup.model, setup.url or OPENAI_URL, options)


def create_compatible(setup: BackendSetup) -> Backend:
    """`MODEL@URL`, or MODEL with a `url`.

    Raises:
        BadConfig: there is no URL, or it cannot be one.
    """
    model, url = setup.model, setup.url
    given = re.fullmatch(r"(?P<model>.*?)@(?P<url>https?://.+)", model)
    if given:
        model, url = given["model"], given["url"]
    if not model or url is None or not re.match(r"https?://[^/]", url):
        raise BadConfig(
            f"back-end 'openai-compatible:{setup.model}' with url {url!r}: name a model and an address, "
            "for example openai-compatible:llama3@http://localhost:11434/v1."
        )
    return CompatibleBackend(model, url, read_options(OpenAIOptions, setup, "openai-compatible"))
