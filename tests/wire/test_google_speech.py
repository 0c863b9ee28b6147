"""Google Cloud Speech against a gRPC server on loopback that speaks its protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from kamebench.asr import google_speech
from kamebench.asr.base import Partial, StreamingRecogniser
from kamebench.asr.google_speech import GoogleEngine
from kamebench.audio import FRAME_SAMPLES, Frame
from kamebench.clock import Activity, StreamClock
from kamebench.errors import EngineFault, MissingKey

grpc = pytest.importorskip("grpc")
speech = pytest.importorskip("google.cloud.speech_v1")

BLOCK = np.full(FRAME_SAMPLES, 0.25, np.float32)
Script = Callable[[int, int], list[Any]]


class Service:
    """Counts what it gets; answers frame n of stream s with `script(s, n)`."""

    def __init__(self, script: Script, fail_at: int | None = None) -> None:
        self.script, self.fail_at = script, fail_at
        self.settings: list[Any] = []
        self.samples: list[int] = []
        self.sum = 0.0

    async def recognise(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        stream, count = len(self.settings), 0
        async for request in requests:
            if request.streaming_config.config.language_code:
                self.settings.append(request.streaming_config)
                self.samples.append(0)
                continue
            samples = np.frombuffer(request.audio_content, np.int16)
            self.samples[-1] += len(samples)
            self.sum = float(samples.mean())
            if count == self.fail_at:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "down for repair")
            results = self.script(stream, count)
            count += 1
            if results:
                yield speech.StreamingRecognizeResponse(results=results)


def result(text: str, final: bool = False, words: tuple[tuple[str, float, float], ...] = ()) -> Any:
    timed = [
        speech.WordInfo(word=w, start_time=timedelta(seconds=a), end_time=timedelta(seconds=b))
        for w, a, b in words
    ]
    best = speech.SpeechRecognitionAlternative(transcript=text, words=timed)
    return speech.StreamingRecognitionResult(alternatives=[best], is_final=final)


@asynccontextmanager
async def listening(service: Service) -> AsyncIterator[StreamingRecogniser]:
    from google.cloud.speech_v1.services.speech.transports import SpeechGrpcAsyncIOTransport

    method = grpc.stream_stream_rpc_method_handler(
        service.recognise,
        request_deserializer=speech.StreamingRecognizeRequest.deserialize,
        response_serializer=speech.StreamingRecognizeResponse.serialize,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "google.cloud.speech.v1.Speech", {"StreamingRecognize": method}
            ),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    def client() -> Any:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        return speech.SpeechAsyncClient(transport=SpeechGrpcAsyncIOTransport(channel=channel))

    engine = GoogleEngine(client=client)
    engine.start()
    recogniser = engine.open(Activity(StreamClock()))
    try:
        yield recogniser
    finally:
        await recogniser.aclose()
        await server.stop(None)


async def send(recogniser: StreamingRecogniser, n_frames: int) -> None:
    for k in range(n_frames):
        await recogniser.send(Frame(k, BLOCK))
        await asyncio.sleep(0.002)


async def take(recogniser: StreamingRecogniser, n: int) -> list[Partial]:
    found: list[Partial] = []
    async with asyncio.timeout(10):
        async for item in recogniser.results():
            found.append(item)
            if len(found) == n:
                break
    return found


async def test_interim_and_final_results_with_word_times() -> None:
    def script(stream: int, frame: int) -> list[Any]:
        if frame == 3:
            return [result("what is"), result(" the")]
        if frame == 6:
            return [result("what is the time", True, (("what", 0.1, 0.3), ("is", 0.3, 0.5)))]
        return []

    service = Service(script)
    async with listening(service) as recogniser:
        await send(recogniser, 10)
        partial, final = await take(recogniser, 2)
        assert (partial.text, partial.final) == ("what is the", False)
        assert (final.text, final.final) == ("what is the time", True)
        assert [(w.text, w.start_s, w.end_s) for w in final.words] == [("what", 0.1, 0.3), ("is", 0.3, 0.5)]
    config = service.settings[0]
    assert (config.config.sample_rate_hertz, config.config.language_code) == (16_000, "en-US")
    assert (config.interim_results, config.single_utterance) == (True, False)
    assert service.samples[0] == 10 * 1280
    assert service.sum == pytest.approx(0.25 * 32767, rel=0.01)


async def test_a_stream_is_renewed_at_an_end_point_and_no_frame_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(google_speech, "RENEW_S", 0.4)
    monkeypatch.setattr(google_speech, "LIMIT_S", 2.0)

    def script(stream: int, frame: int) -> list[Any]:
        return [result(f"s{stream} f{frame}", True, (("w", 0.0, 0.1),))] if frame == 5 else []

    service = Service(script)
    async with listening(service) as recogniser:
        sending = asyncio.create_task(send(recogniser, 60))
        finals = await take(recogniser, 3)
        await sending
        await asyncio.sleep(0.1)
    assert [f.text for f in finals] == ["s0 f5", "s1 f5", "s2 f5"]
    assert sum(service.samples) == 60 * 1280
    # Word times count from the session's start, not the stream's.
    assert finals[1].words[0].start_s == pytest.approx(service.samples[0] / 16_000)


async def test_a_failing_service_is_a_fault_of_the_recogniser() -> None:
    async with listening(Service(lambda s, f: [], fail_at=2)) as recogniser:
        await send(recogniser, 5)
        with pytest.raises(EngineFault, match="down for repair") as caught:
            await take(recogniser, 1)
    assert (caught.value.party, caught.value.kind, caught.value.retryable) == (
        "recogniser",
        "ServiceUnavailable",
        True,
    )


def test_without_credentials_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    def none(*args: object, **kwargs: object) -> None:
        raise DefaultCredentialsError("none")

    monkeypatch.setattr(google.auth, "default", none)
    with pytest.raises(MissingKey, match="GOOGLE_APPLICATION_CREDENTIALS"):
        GoogleEngine().start()
    assert GoogleEngine.realtime_only
