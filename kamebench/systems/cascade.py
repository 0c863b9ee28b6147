"""The embedded cascade: end of speech -> recognition -> language model -> synthesis, streaming throughout.

The first sentence goes to synthesis while the rest is still being generated. When the user begins to speak
again the answer stops and what was not yet heard is flushed; where nothing had been heard, the utterance was
not over, and what follows is joined to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import Field

from kamebench.asr import open_recogniser
from kamebench.asr.base import Recogniser
from kamebench.audio import Frame, Pcm, samples_to_ns
from kamebench.errors import BadConfig, EngineFault, KamebenchError, UserError, WorldFault
from kamebench.events import AudioOut, Event, Fault, Heard, OutputFlushed, StageMark, TextOut
from kamebench.llm.base import Backend, ChatRequest, Message, StreamEnd, TurnContext
from kamebench.speech import normalise, open_engine
from kamebench.speech.base import SpeechEngine
from kamebench.systems import Options, Setup, read_options
from kamebench.systems.base import Capabilities, Session, SessionContext, System
from kamebench.systems.ear import Ear
from kamebench.systems.sentences import SentenceCutter
from kamebench.threads import call_in_thread, iterate_in_thread
from kamebench.vad import open_streaming_detector

INSTRUCTIONS = (
    "You answer by voice. Give the answer itself first, in at most three short sentences of plain words, "
    "without lists, markup or a question back."
)


class CascadeOptions(Options):
    """`hangover_ms`: silence after which the user's turn counts as over; part of every latency."""

    recogniser: str = "faster-whisper:tiny.en"
    voice: str = "piper:joe"
    detector: str = "silero"
    hangover_ms: int = Field(default=480, ge=80, le=5000)
    instructions: str = INSTRUCTIONS
    max_tokens: int = Field(default=90, ge=1)
    temperature: float = Field(default=0.0, ge=0, le=2)


@dataclass(slots=True)
class Parts:
    """The engines that all sessions of a cascade share."""

    options: CascadeOptions
    recogniser: Recogniser
    voice: SpeechEngine
    backend: Backend


@dataclass(slots=True)
class Answer:
    """One answer in the making. `sentences`: (text, stream time at which it begins to be heard)."""

    audio: Pcm
    turn: TurnContext | None
    user_text: str = ""
    sentences: list[tuple[str, int]] = field(default_factory=list)

    def heard_until(self, t_ns: int) -> str:
        return " ".join(text for text, start_ns in self.sentences if start_ns < t_ns)


class CascadeSession(Session):
    def __init__(self, context: SessionContext, parts: Parts) -> None:
        self._context, self._parts = context, parts
        self._ear = Ear(
            open_streaming_detector(parts.options.detector), hangover_ms=parts.options.hangover_ms
        )
        self._history: list[Message] = []
        self._answer: Answer | None = None
        self._task: asyncio.Task[None] | None = None
        self._frame = -1
        self._queue_end_ns = 0
        self._error: KamebenchError | None = None

    async def send(self, frame: Frame) -> None:
        if self._error is not None:
            raise self._error
        self._frame = frame.index
        heard = self._ear.hear(frame)
        if heard == "began":
            self._barge_in()
        elif heard == "ended":
            self._begin_answer(self._ear.take())

    def _barge_in(self) -> None:
        """The user speaks: stop what is being said or prepared, and settle what of it was heard."""
        answer, task, now_ns = self._answer, self._task, self._context.clock.now_ns()
        if answer is None or task is None:
            return
        unfinished = not task.done()
        task.cancel()
        if self._queue_end_ns > now_ns:
            self._emit(lambda t: OutputFlushed(t, self._frame))
            self._queue_end_ns = now_ns
        heard = answer.heard_until(now_ns)
        if heard:
            self._history += [Message("user", answer.user_text), Message("assistant", heard)]
        if heard or not unfinished:
            self._answer = None

    def _begin_answer(self, audio: Pcm) -> None:
        unheard, before = self._answer, self._task
        if unheard is not None:
            audio = np.concatenate([unheard.audio, audio])
        self._emit(lambda t: StageMark(t, self._frame, "speech_end"))
        operation = self._context.activity.begin("answer")
        self._answer = Answer(audio, self._context.turn)
        self._task = asyncio.create_task(self._make(self._answer, before))
        # Not in the task itself: cancelled before its first step, it would never end the operation.
        self._task.add_done_callback(lambda _: self._context.activity.end(operation))

    async def _make(self, answer: Answer, before: asyncio.Task[None] | None) -> None:
        """Recognise, think and speak."""
        try:
            if before is not None:
                await asyncio.wait({before})  # one answer at a time on the engines
            recognised = await call_in_thread(lambda: self._parts.recogniser.transcribe(answer.audio))
            answer.user_text = recognised.text.strip()
            self._emit(lambda t: Heard(t, self._frame, answer.user_text, True))
            self._emit(lambda t: StageMark(t, self._frame, "asr_done"))
            if answer.user_text:
                await self._think_and_speak(answer)
        except WorldFault as error:
            self._fail(error)
        except UserError as error:  # nobody's fault, such as a limit of cost: it ends the run
            self._error = error
        except Exception as error:  # an engine that dies in its own way
            self._fail(EngineFault(f"{type(error).__name__}: {error}", kind="crash", party="system"))

    async def _think_and_speak(self, answer: Answer) -> None:
        sentences: asyncio.Queue[str | None] = asyncio.Queue()
        thinking = asyncio.create_task(self._think(answer, sentences))
        try:
            while (sentence := await sentences.get()) is not None:
                await self._speak(answer, sentence)
            await thinking
        finally:
            thinking.cancel()
            with suppress(asyncio.CancelledError, KamebenchError):
                await thinking

    async def _think(self, answer: Answer, sentences: asyncio.Queue[str | None]) -> None:
        options, cutter, first = self._parts.options, SentenceCutter(), True
        request = ChatRequest(
            (Message("system", options.instructions), *self._history, Message("user", answer.user_text)),
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            context=answer.turn,
        )
        try:
            async for item in self._parts.backend.stream(request):
                if isinstance(item, StreamEnd):
                    break
                if first:
                    self._emit(lambda t: StageMark(t, self._frame, "llm_first_token"))
                    first = False
                for sentence in cutter.feed(item.text):
                    sentences.put_nowait(sentence)
            if rest := cutter.rest():
                sentences.put_nowait(rest)
        finally:
            sentences.put_nowait(None)

    async def _speak(self, answer: Answer, sentence: str) -> None:
        spoken, clock = normalise(sentence), self._context.clock
        if not spoken:
            return
        first = not answer.sentences
        if first:
            self._emit(lambda t: StageMark(t, self._frame, "first_sentence"))
        chunks = iterate_in_thread(lambda: self._parts.voice.stream(spoken))
        begun = False
        async for pcm in chunks:
            if first and not begun:
                self._emit(lambda t: StageMark(t, self._frame, "tts_first_chunk"))
            start_ns = max(clock.now_ns(), self._queue_end_ns)
            if not begun:
                answer.sentences.append((spoken, start_ns))
                self._emit(lambda t: TextOut(t, self._frame, spoken + " "))
                begun = True
            self._queue_end_ns = start_ns + samples_to_ns(len(pcm))
            self._emit(lambda t, pcm=pcm: AudioOut(t, self._frame, pcm))

    def _emit(self, make: Callable[[int], Event]) -> None:
        self._context.emit(make(self._context.clock.now_ns()))

    def _fail(self, error: WorldFault) -> None:
        self._error = error
        self._emit(lambda t: Fault(t, self._frame, error.party, error.kind, str(error), error.retryable))

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


class CascadeSystem(System):
    # One conversation: a second one on the same cores would be measured as latency of the first.
    capabilities = Capabilities(knows_idle=True, emits_text=True, max_sessions=1)

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def start(self) -> None:
        parts = self._parts
        await parts.backend.start()
        await call_in_thread(parts.recogniser.start)
        await call_in_thread(parts.voice.start)
        speech = await call_in_thread(lambda: np.concatenate(list(parts.voice.stream("Ready to begin."))))
        await call_in_thread(lambda: parts.recogniser.transcribe(speech))

    def session(self, context: SessionContext) -> Session:
        return CascadeSession(context, self._parts)

    def describe(self) -> dict[str, Any]:
        parts = self._parts
        return {
            "options": parts.options.model_dump(),
            "recogniser": parts.recogniser.name,
            "voice": f"{parts.voice.name} {parts.voice.version} {parts.voice.voice}",
        }

    async def aclose(self) -> None:
        await call_in_thread(self._parts.recogniser.close)
        await call_in_thread(self._parts.voice.close)


def create(setup: Setup) -> System:
    options = read_options(CascadeOptions, setup.options)
    if setup.backend is None:
        raise BadConfig("a cascade needs a back-end. Name one with --backend, for example --backend local.")
    parts = Parts(options, open_recogniser(options.recogniser), open_engine(options.voice), setup.backend)
    return CascadeSystem(parts)
