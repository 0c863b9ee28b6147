"""Streaming recognition over a window, with a batch recogniser and a detector whose answers are known."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from importlib.resources import as_file, files

import numpy as np
import pytest

from kamebench import assets
from kamebench.asr.base import Partial, Recognised, Recogniser, StreamingRecogniser, Word
from kamebench.asr.streaming import open_streaming
from kamebench.asr.whisper_window import Utterance, WindowRecogniser, WindowSettings, agreed_words
from kamebench.audio import FRAME_NS, FRAME_SAMPLES, SAMPLE_RATE, Frame, Pcm, frames_of, read_mono
from kamebench.clock import Activity, StreamClock, VirtualClock
from kamebench.errors import BadConfig, EngineFault, UnknownName
from kamebench.vad.base import StreamingDetector

LOUD = np.full(FRAME_SAMPLES, 0.5, np.float32)
QUIET = np.zeros(FRAME_SAMPLES, np.float32)


class Loudness(StreamingDetector):
    name = "loudness"

    def is_speech(self, pcm: Pcm) -> bool:
        return bool(np.abs(pcm).max() > 0.1)


class WordEveryHalfSecond(Recogniser):
    """Hears 'w0 w1 w2 ...': one word for each half second of loud audio; the last one still unsure."""

    name = "halves"

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.calls = 0
        self.running = 0
        self.most_running = 0
        self.error: Exception | None = None
        self.lock = threading.Lock()

    def transcribe(self, pcm: Pcm) -> Recognised:
        with self.lock:
            self.running += 1
            self.calls += 1
            self.most_running = max(self.most_running, self.running)
        try:
            if self.error is not None:
                raise self.error
            self.longest_s = max(self.longest_s, len(pcm) / SAMPLE_RATE)
            time.sleep(0.002)
            loud = np.flatnonzero(np.abs(pcm) > 0.1)
            if not len(loud):
                return Recognised("")
            first, n = loud[0] / SAMPLE_RATE, len(loud) / SAMPLE_RATE
            whole = int(n / 0.5)
            words = [Word(f"w{k}", first + k / 2, first + k / 2 + 0.5) for k in range(whole)]
            if n - whole / 2 > 0.1:
                words.append(Word(f"maybe{len(loud)}", first + whole / 2, first + n))
            return Recognised(" ".join(w.text for w in words), tuple(words))
        finally:
            with self.lock:
                self.running -= 1


async def listen(recogniser: StreamingRecogniser, into: list[Partial | EngineFault]) -> None:
    try:
        async for result in recogniser.results():
            into.append(result)  # noqa: PERF401 - what came before a fault counts
    except EngineFault as error:
        into.append(error)


def play(
    plan: list[tuple[int, Pcm]], engine: Recogniser, settings: WindowSettings | None = None
) -> Callable[[], list[Partial | EngineFault]]:
    """Play (frames, block) pieces in virtual pace; a function that gives the results."""
    got: list[Partial | EngineFault] = []

    async def scenario(clock: VirtualClock) -> None:
        stream = StreamClock(clock)
        activity = Activity(stream)
        recogniser = WindowRecogniser(engine, Loudness(), activity, settings)
        task = asyncio.create_task(listen(recogniser, got))
        k = 0
        for count, block in plan:
            for _ in range(count):
                await stream.advance_to_ns(k * FRAME_NS, activity)
                await recogniser.send(Frame(k, block))
                await activity.wait_idle()  # recognition takes no stream time here
                k += 1
        await activity.wait_idle()
        await recogniser.aclose()
        await task
        assert activity.idle

    async def run() -> list[Partial | EngineFault]:
        clock = VirtualClock()
        await clock.run(scenario(clock))
        return got

    return lambda: asyncio.run(run())


def test_agreed_words_are_partial_and_only_an_end_point_is_final() -> None:
    engine = WordEveryHalfSecond()
    got = play([(5, QUIET), (25, LOUD), (12, QUIET)], engine)()
    assert all(isinstance(result, Partial) for result in got)
    *partials, last = [r for r in got if isinstance(r, Partial)]
    assert partials
    assert not any(p.final for p in partials)
    assert last.final
    assert last.text == "w0 w1 w2 w3"
    for earlier, later in zip(partials, [*partials[1:], last], strict=True):
        assert later.text.startswith(earlier.text)
    assert not any("maybe" in p.text for p in partials)  # what changes is never agreed on
    # Frame 5 is the first loud one: 0.4 s.
    assert last.words[0].start_s == pytest.approx(0.4, abs=0.01)
    assert last.words[3].end_s == pytest.approx(2.4, abs=0.01)
    assert engine.most_running == 1


def test_two_utterances_are_two_finals_and_a_click_is_none() -> None:
    got = play(
        [(3, LOUD), (1, QUIET), (9, QUIET), (1, LOUD), (9, QUIET), (10, LOUD), (9, QUIET)],
        WordEveryHalfSecond(),
    )()
    finals = [r for r in got if isinstance(r, Partial) and r.final]
    assert [f.text.split()[0][:5] for f in finals] == ["maybe", "w0"]
    assert finals[1].words[0].start_s > finals[0].words[-1].end_s


def test_an_end_point_needs_no_recognition_of_mere_silence() -> None:
    """13 frames of speech; recognised with frames 5, 11 and 17, after which all is silence."""
    engine = WordEveryHalfSecond()
    got = play([(13, LOUD), (6, QUIET)], engine)()
    assert isinstance(got[-1], Partial)
    assert (got[-1].text.split()[:2], got[-1].final) == (["w0", "w1"], True)
    assert engine.calls == 3


def test_the_window_is_bounded_and_no_word_is_lost() -> None:
    engine = WordEveryHalfSecond()
    settings = WindowSettings(window_s=4.0)
    got = play([(150, LOUD), (10, QUIET)], engine, settings)()
    assert engine.longest_s <= 4.0 + 1e-6
    final = got[-1]
    assert isinstance(final, Partial)
    assert final.final
    starts = [word.start_s for word in final.words]
    assert starts == sorted(starts)
    assert len(final.words) == pytest.approx(24, abs=2)  # 12 s


def test_a_failing_recogniser_is_a_fault() -> None:
    engine = WordEveryHalfSecond()
    engine.error = ValueError("bad weights")
    got = play([(12, LOUD), (8, QUIET)], engine)()
    assert isinstance(got[0], EngineFault)
    assert "bad weights" in str(got[0])


async def test_closing_leaves_nothing_in_flight() -> None:
    activity = Activity(StreamClock())
    recogniser = WindowRecogniser(WordEveryHalfSecond(), Loudness(), activity)
    for k in range(30):
        await recogniser.send(Frame(k, LOUD if k < 20 else QUIET))
    assert not activity.idle
    await recogniser.aclose()
    assert activity.idle


def test_agreement_ignores_case_and_punctuation() -> None:
    def words(text: str) -> list[Word]:
        return [Word(w, 0.0, 0.0) for w in text.split()]

    assert agreed_words(words("Hello, wor"), words("hello world")) == 1
    assert agreed_words(words(""), words("hello")) == 0


def test_words_without_times_still_agree() -> None:
    utterance = Utterance(0, np.zeros(10, np.float32))
    assert not utterance.agree(utterance.words_of(Recognised("one two"), 0))
    assert utterance.agree(utterance.words_of(Recognised("one two three"), 0))
    assert utterance.result(utterance.agreed, final=False).text == "one two"


def test_names() -> None:
    pytest.importorskip("faster_whisper")
    assert open_streaming("whisper").name == "window:faster-whisper:tiny.en"
    with pytest.raises(UnknownName, match="kyutai"):
        open_streaming("kyutay")
    with pytest.raises(BadConfig, match="scripted"):
        open_streaming("scripted:/nowhere.json")


@pytest.mark.assets
@pytest.mark.slow
async def test_real_weights_hear_a_real_sentence() -> None:
    pytest.importorskip("faster_whisper")
    if not assets.is_fetched("whisper-tiny.en") and not os.environ.get("KAMEBENCH_TEST_ASSETS"):
        pytest.skip("whisper-tiny.en is not fetched: kamebench fetch whisper-tiny.en")
    with as_file(files("kamebench.systems") / "scripted.flac") as path:
        speech = read_mono(path)
    silence = np.zeros(SAMPLE_RATE, np.float32)
    got: list[Partial | EngineFault] = []
    engine = open_streaming("whisper:tiny.en")
    engine.start()
    stream = StreamClock()
    activity = Activity(stream)
    recogniser = engine.open(activity)
    task = asyncio.create_task(listen(recogniser, got))
    for frame in frames_of(np.concatenate([silence, speech, silence])):
        await stream.advance_to_ns(frame.index * FRAME_NS, activity)
        await recogniser.send(frame)
    await activity.wait_idle()
    await recogniser.aclose()
    await task
    engine.close()
    results = [result for result in got if isinstance(result, Partial)]
    assert [result.final for result in results] == [False] * (len(results) - 1) + [True]
    assert len(results) > 1
    words = results[-1].text.lower()
    assert "answer is" in words and "all i have to say" in words
    assert 0.6 < results[-1].words[0].start_s < results[-1].words[-1].end_s < 4.5
