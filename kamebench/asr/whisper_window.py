"""Streaming recognition with a batch recogniser: a bounded window, and agreement between hypotheses.

The utterance so far is recognised again and again. Words on which two successive hypotheses agree from the
start (LocalAgreement, Liu et al. 2020; used for Whisper by Macháček et al. 2023) are given out as *partial*
results and not taken back. Only an end-point, silence by a voice-activity detector, makes a result *final*.
One recognition runs at a time, in a thread; what comes meanwhile waits for the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kamebench.asr import open_recogniser
from kamebench.asr.base import Partial, Recognised, Recogniser, StreamingRecogniser, Word
from kamebench.asr.streaming import StreamingEngine
from kamebench.audio import FRAME_SAMPLES, SAMPLE_RATE, Frame, Pcm, seconds
from kamebench.clock import Activity, Operation
from kamebench.errors import EngineFault, WorldFault
from kamebench.threads import call_in_thread
from kamebench.vad import open_streaming_detector
from kamebench.vad.base import StreamingDetector

_PUNCTUATION = ".,;:!?\"'()[]-…"


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """step_s: new audio before the next recognition. window_s: most audio recognised at once.

    hangover_s: silence that ends an utterance. min_speech_s: speech that begins one. pre_roll_s: audio kept
    from before the detector was sure.
    """

    step_s: float = 0.48
    window_s: float = 15.0
    hangover_s: float = 0.48
    min_speech_s: float = 0.16
    pre_roll_s: float = 0.32


def agreed_words(before: Sequence[Word], now: Sequence[Word]) -> int:
    """How many words from the start two hypotheses share, case and punctuation aside."""
    count = 0
    for old, new in zip(before, now, strict=False):
        if old.text.casefold().strip(_PUNCTUATION) != new.text.casefold().strip(_PUNCTUATION):
            break
        count += 1
    return count


@dataclass(slots=True)
class Utterance:
    """One utterance as it grows. Word times are seconds of the session; `start` is its window's first sample.

    committed: words cut off the window. agreed: words of the window given out. hypothesis: the latest one, of
    the audio up to sample `known_to`. speech_end: one past the last sample of speech.
    """

    start: int
    audio: Pcm
    committed: list[Word] = field(default_factory=list)
    agreed: list[Word] = field(default_factory=list)
    hypothesis: list[Word] = field(default_factory=list)
    known_to: int = 0
    speech_end: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.audio)

    def words_of(self, recognised: Recognised, start: int) -> list[Word]:
        at_s = start / SAMPLE_RATE
        words = recognised.words or tuple(Word(text, 0.0, 0.0) for text in recognised.text.split())
        return [Word(w.text.strip(), at_s + w.start_s, at_s + w.end_s) for w in words if w.text.strip()]

    def agree(self, words: list[Word]) -> bool:
        """Take a new hypothesis; says whether more words are agreed on."""
        count = agreed_words(self.hypothesis, words)
        self.hypothesis = words
        if count <= len(self.agreed):
            return False
        self.agreed = words[:count]
        return True

    def bound(self, window: int) -> None:
        """Cut the window to `window` samples: after the last agreed word where that is enough, else hard."""
        if len(self.audio) <= window:
            return
        timed = [word for word in self.agreed if word.end_s * SAMPLE_RATE > self.start]
        cut, done = round(timed[-1].end_s * SAMPLE_RATE) - self.start if timed else 0, self.agreed
        if len(self.audio) - cut > window:
            cut = len(self.audio) - window
            done = [word for word in self.hypothesis if word.end_s * SAMPLE_RATE <= self.start + cut]
        self.committed += done
        self.agreed, self.hypothesis = [], []
        self.audio, self.start = self.audio[cut:], self.start + cut

    def result(self, words: list[Word], *, final: bool) -> Partial:
        every = (*self.committed, *words)
        return Partial(" ".join(word.text for word in every), final, every)


class EndPointer:
    """Cuts frames into utterances by a detector's word on each frame."""

    def __init__(self, detector: StreamingDetector, settings: WindowSettings) -> None:
        self._detector = detector
        self._hangover = max(1, seconds(settings.hangover_s) // FRAME_SAMPLES)
        self._min_speech = max(1, seconds(settings.min_speech_s) // FRAME_SAMPLES)
        keep = seconds(settings.pre_roll_s) // FRAME_SAMPLES + self._min_speech
        self._recent: deque[Pcm] = deque(maxlen=keep)
        self._run = 0
        self.current: Utterance | None = None

    def take(self, frame: Frame) -> Utterance | None:
        """Take the next frame; gives the utterance that ended with it, if one did."""
        speech = self._detector.is_speech(frame.pcm)
        if self.current is None:
            self._recent.append(frame.pcm)
            self._run = self._run + 1 if speech else 0
            if self._run >= self._min_speech:
                audio = np.concatenate(self._recent)
                end = (frame.index + 1) * FRAME_SAMPLES
                self.current = Utterance(end - len(audio), audio, speech_end=end)
                self._recent.clear()
                self._run = 0
            return None
        self.current.audio = np.concatenate([self.current.audio, frame.pcm])
        self._run = 0 if speech else self._run + 1
        if speech:
            self.current.speech_end = self.current.end
        if self._run < self._hangover:
            return None
        ended, self.current, self._run = self.current, None, 0
        return ended


class WindowRecogniser(StreamingRecogniser):
    """One session's recogniser over a shared batch recogniser."""

    def __init__(
        self,
        recogniser: Recogniser,
        detector: StreamingDetector,
        activity: Activity,
        settings: WindowSettings | None = None,
    ) -> None:
        self.name = f"window:{recogniser.name}"
        self._recogniser, self._activity = recogniser, activity
        self._settings = settings or WindowSettings()
        self._ears = EndPointer(detector, self._settings)
        self._ended: deque[tuple[Utterance, Operation]] = deque()
        self._results: asyncio.Queue[Partial | WorldFault | None] = asyncio.Queue()
        self._job: asyncio.Task[None] | None = None
        self._new = 0

    async def send(self, frame: Frame) -> None:
        ended = self._ears.take(frame)
        self._new += FRAME_SAMPLES
        if ended is not None:
            # Opened now: until the result is there the session is not idle.
            self._ended.append((ended, self._activity.begin("recognition")))
        self._next()

    def _next(self) -> None:
        """Start the next recognition if none is running and there is something to recognise."""
        if self._job is not None and not self._job.done():
            return
        current = self._ears.current
        if self._ended:
            utterance, operation = self._ended.popleft()
            self._job = asyncio.create_task(self._recognise(utterance, operation, final=True))
        elif current is not None and self._new >= seconds(self._settings.step_s):
            operation = self._activity.begin("recognition")
            self._job = asyncio.create_task(self._recognise(current, operation, final=False))
        else:
            return
        self._new = 0
        self._job.add_done_callback(lambda _: self._next())

    async def _recognise(self, utterance: Utterance, operation: Operation, *, final: bool) -> None:
        try:
            end = utterance.end
            if final and utterance.known_to >= utterance.speech_end:
                words = utterance.hypothesis  # only silence has come since
            else:
                utterance.bound(seconds(self._settings.window_s))
                audio, start = utterance.audio, utterance.start
                recognised = await call_in_thread(lambda: self._recogniser.transcribe_words(audio))
                await operation.settle()
                words = utterance.words_of(recognised, start)
            if final:
                result = utterance.result(words, final=True)
                if result.text:
                    self._results.put_nowait(result)
            elif utterance.agree(words):
                self._results.put_nowait(utterance.result(utterance.agreed, final=False))
            utterance.known_to = end
        except WorldFault as error:
            self._results.put_nowait(error)
        except Exception as error:  # a recogniser that dies in its own way
            self._results.put_nowait(EngineFault(f"{type(error).__name__}: {error}", kind="crash"))
        finally:
            self._activity.end(operation)

    async def results(self) -> AsyncIterator[Partial]:
        while (result := await self._results.get()) is not None:
            if isinstance(result, WorldFault):
                raise result
            yield result

    async def aclose(self) -> None:
        self._ears.current = None
        while self._ended:
            self._activity.end(self._ended.popleft()[1])
        if self._job is not None:
            await asyncio.wait({self._job})  # a recognition cannot be interrupted; it is short
        self._results.put_nowait(None)


class WindowEngine(StreamingEngine):
    """A batch recogniser's weights, shared by all sessions."""

    def __init__(
        self, recogniser: Recogniser, detector: str = "silero", settings: WindowSettings | None = None
    ) -> None:
        self.name = f"window:{recogniser.name}"
        self._recogniser, self._detector, self._settings = recogniser, detector, settings

    def start(self) -> None:
        self._recogniser.start()

    def open(self, activity: Activity) -> StreamingRecogniser:
        detector = open_streaming_detector(self._detector)
        return WindowRecogniser(self._recogniser, detector, activity, self._settings)

    def close(self) -> None:
        self._recogniser.close()


def create(argument: str) -> StreamingEngine:
    """`whisper`, `whisper:base`: a model of faster-whisper; tiny.en where none is named."""
    return WindowEngine(open_recogniser(f"faster-whisper:{argument or 'tiny.en'}"))
