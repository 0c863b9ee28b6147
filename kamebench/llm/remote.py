"""What all providers behind a network have in common: keys, time limits, faults, and how a stream ends."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from kamebench.errors import BackendFault
from kamebench.llm.base import Backend, ChatRequest, StreamEnd, TextChunk
from kamebench.llm.faults import fault_of_kind, kind_of, redacted, shortened
from kamebench.llm.setup import BackendOptions

# Where a library reports a broken connection with an exception of its own.
_NETWORK_MODULES = ("httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "anyio", "ssl")


class RemoteOptions(BackendOptions):
    """How long to wait, and what is sent beside the messages.

    first_token_s: from the request to the first text. between_chunks_s: from one text to the next, or to the
    end. default_max_tokens: for requests that name no limit. send_temperature: None decides by the model's
    name, since several models refuse a temperature.
    """

    first_token_s: float = Field(default=60.0, gt=0)
    between_chunks_s: float = Field(default=30.0, gt=0)
    default_max_tokens: int | None = Field(default=None, ge=1)
    send_temperature: bool | None = None


class RemoteBackend(Backend):
    """A provider's model. Subclasses connect, receive and tell what an SDK's exception means.

    Nothing is retried: an SDK's own retries are off. Each request has a task that reads; closing the stream
    ends that task, which closes the connection.
    """

    provider: ClassVar[str]

    def __init__(self, model: str, url: str, options: RemoteOptions) -> None:
        self.name, self._url, self._options = model, url, options
        self._key: SecretStr | None = None
        self._started = False

    @abstractmethod
    def _connect(self) -> None:
        """Read the key and make the SDK's client."""

    @abstractmethod
    def _receive(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        """Send the request and translate what comes; `StreamEnd` only when the provider ended the answer."""

    @abstractmethod
    def _fault_of(self, error: Exception) -> BackendFault | None:
        """What an exception of the SDK means; None where it is none of its."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close the SDK's client."""

    async def start(self) -> None:
        if not self._started:
            self._connect()
            self._started = True

    async def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        await self.start()
        arrivals: asyncio.Queue[TextChunk | StreamEnd | BackendFault] = asyncio.Queue()
        reader = asyncio.create_task(self._read(request, arrivals))
        limit_s, awaited = self._options.first_token_s, "a first token"
        try:
            while True:
                item = await self._next(arrivals, limit_s, awaited)
                if isinstance(item, BackendFault):
                    raise item
                if isinstance(item, StreamEnd):
                    break
                yield item
                limit_s, awaited = self._options.between_chunks_s, "more of the answer or its end"
        finally:
            reader.cancel()
            await asyncio.wait({reader})
        yield item

    async def aclose(self) -> None:
        if self._started:
            self._started = False
            await self._disconnect()

    def describe(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "family": self.family,
            "host": urlsplit(self._url).hostname,
            **self._options.model_dump(),
            "send_temperature": self._sends_temperature,
        }

    def _takes_temperature(self) -> bool:
        """Whether a model of this name accepts one."""
        return True

    @property
    def _sends_temperature(self) -> bool:
        wanted = self._options.send_temperature
        return self._takes_temperature() if wanted is None else wanted

    async def _next(
        self, arrivals: asyncio.Queue[TextChunk | StreamEnd | BackendFault], limit_s: float, awaited: str
    ) -> TextChunk | StreamEnd | BackendFault:
        try:
            async with asyncio.timeout(limit_s):
                return await arrivals.get()
        except TimeoutError:
            return fault_of_kind("timeout", f"{self._who} sent nothing for {limit_s:g} s: no {awaited}.")

    async def _read(
        self, request: ChatRequest, arrivals: asyncio.Queue[TextChunk | StreamEnd | BackendFault]
    ) -> None:
        fault: BackendFault | None = None
        ended = False
        try:
            async for item in self._receive(request):
                ended = ended or isinstance(item, StreamEnd)
                arrivals.put_nowait(item)
        except Exception as error:
            # Made here and raised elsewhere: an SDK's exception holds the request with its key.
            fault = self._blame(error)
        if fault is None and not ended:
            fault = fault_of_kind(
                "protocol", f"{self._who} broke the answer off: the stream ended too early."
            )
        if fault is not None:
            arrivals.put_nowait(fault)

    def _blame(self, error: Exception) -> BackendFault:
        fault = self._fault_of(error)
        if fault is not None:
            return fault
        what = shortened(redacted(f"{type(error).__name__}: {error}", self._key))
        module = type(error).__module__.partition(".")[0]
        if isinstance(error, OSError) or module in _NETWORK_MODULES:
            return fault_of_kind("connection", f"The connection to {self._who} failed: {what}.")
        return fault_of_kind("protocol", f"{self._who} sent what cannot be understood: {what}.")

    def _answered(
        self, status: int | None, words: Iterable[object], message: object, wait_s: float | None
    ) -> BackendFault:
        """The fault of an error answer; `status` None: it came within a stream."""
        said = f"answered {status}" if status else "reported an error in its answer"
        what = shortened(redacted(str(message), self._key)).rstrip(".")
        return fault_of_kind(kind_of(status, words), f"{self._who} {said}: {what}.", wait_s)

    @property
    def _who(self) -> str:
        return f"{self.provider} ({self.name} at {urlsplit(self._url).netloc.rpartition('@')[2]})"


def is_loopback(url: str) -> bool:
    """Whether an address is this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
