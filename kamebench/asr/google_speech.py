"""Google Cloud Speech-to-Text (v1, streaming), set up as the released KAME server sets it up.

16 kHz LINEAR16, enhanced model, interim results, no single-utterance mode: the service finds the end-points.
A response may split the pending text into a stable and a less stable part; they are joined here (the released
server keeps the last part only). The service ends a stream after 305 s of audio, so a new one is begun before
that, at an end-point where there is one. Being remote it cannot say when it is idle: real time only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from kamebench.asr.base import Partial, StreamingRecogniser, Word
from kamebench.asr.streaming import StreamingEngine
from kamebench.audio import FRAME_SAMPLES, FRAMES_PER_S, SAMPLE_RATE, Frame, resample, to_int16
from kamebench.clock import Activity
from kamebench.errors import EngineFault, MissingKey, WorldFault

if TYPE_CHECKING:
    from google.cloud.speech_v1 import SpeechAsyncClient, StreamingRecognizeRequest

RATE = 16_000
DEFAULT_LANGUAGE = "en-US"
RENEW_S, LIMIT_S = 240.0, 290.0  # a new stream at the first end-point after RENEW_S, at LIMIT_S in any case
RETRYABLE = ("ServiceUnavailable", "DeadlineExceeded", "ResourceExhausted", "Aborted", "InternalServerError")

ClientFactory = Callable[[], "SpeechAsyncClient"]


class GoogleEngine(StreamingEngine):
    """Google's service; each session opens a client of its own, in its event loop.

    Args:
        language: BCP-47 code.
        client: makes the client; default: from the environment's credentials.
    """

    realtime_only: ClassVar[bool] = True

    def __init__(self, language: str = DEFAULT_LANGUAGE, client: ClientFactory | None = None) -> None:
        self.name = f"google-speech:{language}"
        self._language, self._client = language, client

    def start(self) -> None:
        """Check that there are credentials.

        Raises:
            MissingKey: none are set.
        """
        if self._client is not None:
            return
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError

        try:
            google.auth.default()
        except DefaultCredentialsError:
            raise MissingKey("Google Cloud Speech", "GOOGLE_APPLICATION_CREDENTIALS") from None

    def open(self, activity: Activity) -> StreamingRecogniser:
        from google.cloud.speech_v1 import SpeechAsyncClient

        return GoogleRecogniser(self.name, self._language, self._client or SpeechAsyncClient)


class GoogleRecogniser(StreamingRecogniser):
    """One session: one stream after another, none longer than the service allows."""

    def __init__(self, name: str, language: str, client: ClientFactory) -> None:
        self.name = name
        self._language, self._make_client = language, client
        self._audio: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._results: asyncio.Queue[Partial | WorldFault | None] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None
        self._renew = asyncio.Event()
        self._sent = 0  # frames of the present stream

    async def send(self, frame: Frame) -> None:
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        self._audio.put_nowait(frame)

    async def results(self) -> AsyncIterator[Partial]:
        while (result := await self._results.get()) is not None:
            if isinstance(result, WorldFault):
                raise result
            yield result

    async def aclose(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker
            self._worker = None
        self._results.put_nowait(None)

    async def _work(self) -> None:
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError

        client = self._make_client()
        try:
            while True:
                await self._stream(client)
        except (GoogleAPICallError, GoogleAuthError) as error:
            kind = type(error).__name__
            self._results.put_nowait(
                EngineFault(f"{self.name}: {kind}: {error}", kind=kind, retryable=kind in RETRYABLE)
            )
        finally:
            await client.transport.close()

    async def _stream(self, client: SpeechAsyncClient) -> None:
        """One stream, from its settings to where it is renewed."""
        self._renew.clear()
        self._sent = 0
        first = await self._audio.get()
        if first is None:
            return
        offset_s = first.index * FRAME_SAMPLES / SAMPLE_RATE
        # No retries: within a session a failure is a fault. No time limit: a stream is as long as it is.
        responses: Any = await client.streaming_recognize(
            requests=self._requests(first), retry=None, timeout=None
        )
        async for response in responses:
            self._take(response, offset_s)

    async def _requests(self, first: Frame) -> AsyncIterator[StreamingRecognizeRequest]:
        from google.cloud import speech_v1 as speech

        config = speech.RecognitionConfig(
            encoding=speech.RecognitionConfig.AudioEncoding.LINEAR16,
            sample_rate_hertz=RATE,
            language_code=self._language,
            use_enhanced=True,
            enable_word_time_offsets=True,
        )
        settings = speech.StreamingRecognitionConfig(config=config, interim_results=True)
        yield speech.StreamingRecognizeRequest(streaming_config=settings)
        frame: Frame | None = first
        while frame is not None:
            samples, _ = to_int16(resample(frame.pcm, SAMPLE_RATE, RATE))
            yield speech.StreamingRecognizeRequest(audio_content=samples.tobytes())
            self._sent += 1
            if self._renew.is_set() or self._sent >= LIMIT_S * FRAMES_PER_S:
                return
            frame = await self._audio.get()

    def _take(self, response: Any, offset_s: float) -> None:
        """One response: final results one by one, the pending ones together."""
        pending: list[str] = []
        for result in response.results:
            if not result.alternatives:
                continue
            best = result.alternatives[0]
            text = str(best.transcript).strip()
            if not result.is_final:
                pending.append(text)
                continue
            words = tuple(
                Word(
                    str(word.word),
                    offset_s + word.start_time.total_seconds(),
                    offset_s + word.end_time.total_seconds(),
                )
                for word in best.words
            )
            self._results.put_nowait(Partial(text, True, words))
            if self._sent >= RENEW_S * FRAMES_PER_S:
                self._renew.set()
        text = " ".join(part for part in pending if part)
        if text:
            self._results.put_nowait(Partial(text, False))


def create(argument: str) -> StreamingEngine:
    """`google-speech` or `google-speech:LANGUAGE`."""
    from google.cloud import speech_v1  # noqa: F401  # pyright: ignore[reportUnusedImport]

    return GoogleEngine(argument or DEFAULT_LANGUAGE)
