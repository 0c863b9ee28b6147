"""The tandem loop: streaming recognition -> back-end requests -> oracle updates, beside a speaking model.

The loop never touches the model. Its owner asks `updates(frame)` right before step `frame` and applies what
it gets; it tells the loop with `stepped` what the step consumed and said. Nothing here waits in either call.
Requests are polled for by stream time, frame by frame, so that every pace keeps the released schedule; an
answer's chunks count as arrived when as much stream time has passed since the request as real time had.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from kamebench.asr.base import Partial, StreamingRecogniser
from kamebench.audio import FRAME_NS, Frame
from kamebench.clock import Activity, Operation
from kamebench.errors import BackendFault, KamebenchError, UserError, WorldFault
from kamebench.events import Event, Fault, Heard, OracleIn, StageMark
from kamebench.llm.base import Backend, ChatRequest, StreamEnd, TextChunk, TurnContext
from kamebench.oracle import rebuild
from kamebench.oracle.chunking import Chunker, Chunking, chunker
from kamebench.oracle.log import (
    PADDING_TOKENS,
    Chunk,
    Dropped,
    DropReason,
    HeardRow,
    Injection,
    LogWriter,
    Request,
    RequestEnd,
    RequestOutcome,
    Step,
)
from kamebench.oracle.policy import PolicySettings, Reason, UserState
from kamebench.oracle.prompt import INSTRUCTIONS, Conversation, messages_sha256

Overflow = Literal["drop-chunks", "drop-as-released", "keep"]


class Tokenizer(Protocol):
    """A SentencePiece processor, as far as the loop needs it."""

    def encode(self, text: str) -> Sequence[int]: ...

    def id_to_piece(self, token: int) -> str: ...


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How the loop behaves; the defaults are the released server's.

    capacity, overflow: the queue between back-end and model. 'drop-chunks': text that does not fit is
    dropped, a reset always gets through. 'drop-as-released': a reset is dropped too, and the new answer runs
    on in the old stream. 'keep': nothing is dropped.
    temperature: the released server leaves it to the provider (OpenAI: 1).
    on_backend_fault: 'fault' ends the session as faulted; 'continue' logs it and speaks on, as released.
    """

    policy: PolicySettings = field(default_factory=PolicySettings)
    chunking: Chunking = "released"
    capacity: int = 64
    overflow: Overflow = "drop-chunks"
    temperature: float = 1.0
    max_tokens: int | None = None
    on_backend_fault: Literal["fault", "continue"] = "fault"
    instructions: str = INSTRUCTIONS


@dataclass(frozen=True, slots=True)
class OracleUpdate:
    """To be applied between steps: a reset, or tokens to append."""

    request_id: int
    reset: bool
    text: str = ""
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the session gives the loop: time, where events go, and which turn is being played."""

    activity: Activity
    emit: Callable[[Event], None]
    turn: Callable[[], TurnContext | None] = lambda: None


@dataclass(slots=True)
class _Running:
    """A request in flight."""

    request_id: int
    chunker: Chunker
    operation: Operation
    reset_sent: bool = False
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class LoopUsage:
    """Requests and tokens of one session; tokens as far as the provider said."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class TandemLoop:
    """One session's loop. `start`, then for each frame `send`, `updates`, `stepped`; `aclose` at the end."""

    def __init__(
        self,
        backend: Backend,
        recogniser: StreamingRecogniser,
        tokenizer: Tokenizer,
        log: LogWriter,
        around: Surroundings,
        settings: LoopSettings | None = None,
    ) -> None:
        self._backend, self._recogniser, self._tokenizer = backend, recogniser, tokenizer
        self._log, self._around = log, around
        self._settings = settings or LoopSettings()
        self._policy = self._settings.policy.build()
        self._next_poll_ns = self._policy.poll_ns
        self._clock = around.activity.clock
        self._conversation = Conversation()
        self._final_since_request = False
        self._last_final = ""
        self._queue: deque[OracleUpdate] = deque()
        self._running: _Running | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._frame = 0  # the step that comes next
        self._received = -1
        self._error: KamebenchError | None = None
        self.usage = LoopUsage()

    def start(self) -> None:
        """Begin to listen to the recogniser."""
        self._spawn(self._listen())

    async def send(self, frame: Frame) -> None:
        """Take the user's next frame; polls the policy when stream time says so.

        Raises:
            WorldFault: the back-end or the recogniser has failed.
        """
        if self._error is not None:
            raise self._error
        self._received = frame.index
        await self._recogniser.send(frame)
        t_ns = frame.index * FRAME_NS
        if t_ns >= self._next_poll_ns:
            self._next_poll_ns = (t_ns // self._policy.poll_ns + 1) * self._policy.poll_ns
            self._poll(t_ns)

    def updates(self, frame: int) -> tuple[OracleUpdate, ...]:
        """What to apply right before step `frame`, in order. Never blocks."""
        self._frame = frame
        drained = tuple(self._queue)
        self._queue.clear()
        for update in drained:
            row = Injection(
                request_id=update.request_id,
                frame=frame,
                t_ns=self._clock.now_ns(),
                reset=update.reset,
                text=update.text,
                tokens=update.tokens,
                pieces=tuple(self._tokenizer.id_to_piece(token) for token in update.tokens),
            )
            self._log.write(row)
            self._around.emit(
                OracleIn(row.t_ns, frame, update.request_id, update.text, update.tokens, update.reset)
            )
        return drained

    def stepped(self, frame: int, oracle_token: int, text_token: int | None) -> None:
        """What step `frame` consumed, and the text token it produced (None while the model's delay lasts)."""
        piece = ""
        if text_token is not None and text_token >= 0 and text_token not in PADDING_TOKENS:
            piece = self._tokenizer.id_to_piece(text_token)
            self._conversation.speak(piece.replace("▁", " "))
        self._log.write(Step(frame=frame, oracle=oracle_token, text=text_token, piece=piece))
        self._frame = frame + 1

    async def aclose(self) -> None:
        """Stop everything and end the log. May be called twice."""
        self._cancel("the session ended")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._queue:
            self._drop(self._queue.popleft(), "session_ended")
        await self._recogniser.aclose()
        if self._log.log.summary is None:
            self._log.write(rebuild.summarise(self._log.log))
        self._log.close()

    # Listening

    async def _listen(self) -> None:
        try:
            async for result in self._recogniser.results():
                self._hear(result)
        except WorldFault as error:
            self._fail(error)

    def _hear(self, result: Partial) -> None:
        if result.final:
            self._conversation.hear_final(result.text)
            self._final_since_request = True
            self._last_final = result.text.strip()
        else:
            self._conversation.hear_partial(result.text)
        t_ns = self._clock.now_ns()
        self._log.write(HeardRow(frame=self._frame, t_ns=t_ns, text=result.text, final=result.final))
        self._around.emit(Heard(t_ns, self._received, result.text, result.final))

    # Asking

    def _poll(self, t_ns: int) -> None:
        conversation = self._conversation
        state = UserState(
            text=bool(conversation.pending or conversation.committed),
            words=conversation.words,
            final=self._final_since_request,
            asked=self.usage.requests > 0,
            running=self._running is not None,
        )
        reason = self._policy.decide(t_ns, state)
        if reason is not None:
            self._cancel("superseded")
            self._ask(reason)

    def _ask(self, reason: Reason) -> None:
        self.usage.requests += 1
        request_id = self.usage.requests
        conversation, settings, turn = self._conversation, self._settings, self._around.turn()
        messages = conversation.messages(settings.instructions)
        digest = messages_sha256(messages)
        self._log.store_messages(digest, messages)
        committed = conversation.committed
        self._log.write(
            Request(
                request_id=request_id,
                frame=self._frame,
                t_ns=self._clock.now_ns(),
                reason=reason,
                trigger=conversation.pending or self._last_final,
                committed=committed,
                pending=conversation.pending,
                committed_words=len(committed.split()),
                pending_words=len(conversation.pending.split()),
                messages_sha256=digest,
                temperature=settings.temperature,
                turn=turn.turn if turn else None,
            )
        )
        self._final_since_request = False
        chat = ChatRequest(messages, settings.temperature, settings.max_tokens, turn)
        # Opened here, not in the task: between the two the session must not look idle.
        operation = self._around.activity.begin("backend")
        running = _Running(request_id, chunker(settings.chunking), operation)
        self._running = running
        running.task = self._spawn(self._run(running, chat))
        running.task.add_done_callback(lambda _: self._around.activity.end(operation))

    def _cancel(self, why: str) -> None:
        running = self._running
        if running is None or running.task is None:
            return
        running.task.cancel()
        self._end(running, "cancelled", why)

    async def _run(self, running: _Running, chat: ChatRequest) -> None:
        """Deliver what the back-end says, each item when it is due in stream time."""
        arrivals: asyncio.Queue[tuple[int, TextChunk | StreamEnd | WorldFault]] = asyncio.Queue()
        reader = asyncio.create_task(self._read(running, chat, arrivals))
        try:
            while True:
                due_ns, item = await arrivals.get()
                if due_ns > self._clock.now_ns():
                    await self._clock.sleep_until_ns(due_ns)
                match item:
                    case TextChunk():
                        self._deliver(running, item.text)
                    case StreamEnd():
                        self._complete(running, item)
                        return
                    case WorldFault():
                        self._end(running, "failed", f"{item.kind}: {item}")
                        self._backend_failed(item)
                        return
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader

    async def _read(
        self,
        running: _Running,
        chat: ChatRequest,
        arrivals: asyncio.Queue[tuple[int, TextChunk | StreamEnd | WorldFault]],
    ) -> None:
        """Take the stream's items as they come, each with the stream time at which it is due."""
        operation = running.operation
        stream = self._backend.stream(chat)
        try:
            async for item in stream:
                arrivals.put_nowait((operation.due_ns(), item))
                if isinstance(item, StreamEnd):
                    return
            arrivals.put_nowait((operation.due_ns(), StreamEnd("unknown")))
        except WorldFault as error:
            arrivals.put_nowait((operation.due_ns(), error))
        except UserError as error:  # nobody's fault, such as a limit of cost: it ends the run
            self._error = error
            arrivals.put_nowait((operation.due_ns(), StreamEnd("cancelled")))
        except Exception as error:
            fault = BackendFault(f"{self._backend.name}: {type(error).__name__}: {error}", kind="error")
            arrivals.put_nowait((operation.due_ns(), fault))
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    def _deliver(self, running: _Running, text: str) -> None:
        row = Chunk(request_id=running.request_id, frame=self._frame, t_ns=self._clock.now_ns(), text=text)
        self._log.write(row)
        for piece in running.chunker.feed(text):
            self._enqueue(running, piece)

    def _complete(self, running: _Running, end: StreamEnd) -> None:
        for piece in running.chunker.flush():
            self._enqueue(running, piece)
        self.usage.input_tokens += end.usage.input_tokens or 0
        self.usage.output_tokens += end.usage.output_tokens or 0
        self._end(running, "completed", "", end)

    def _end(
        self, running: _Running, outcome: RequestOutcome, reason: str, end: StreamEnd | None = None
    ) -> None:
        if self._running is running:
            self._running = None
        self._log.write(
            RequestEnd(
                request_id=running.request_id,
                frame=self._frame,
                t_ns=self._clock.now_ns(),
                outcome=outcome,
                reason=reason,
                finish_reason=end.finish_reason if end else None,
                input_tokens=end.usage.input_tokens if end else None,
                output_tokens=end.usage.output_tokens if end else None,
            )
        )

    # Injecting

    def _enqueue(self, running: _Running, text: str) -> None:
        if not running.reset_sent:
            running.reset_sent = True
            self._put(OracleUpdate(running.request_id, reset=True))
        tokens = tuple(self._tokenizer.encode(text.strip()))
        self._put(OracleUpdate(running.request_id, False, text, tokens))

    def _put(self, update: OracleUpdate) -> None:
        settings = self._settings
        full = len(self._queue) >= settings.capacity and settings.overflow != "keep"
        if full and (not update.reset or settings.overflow == "drop-as-released"):
            self._drop(update, "queue_full")
        else:
            self._queue.append(update)

    def _drop(self, update: OracleUpdate, reason: DropReason) -> None:
        row = Dropped(
            request_id=update.request_id,
            frame=self._frame,
            t_ns=self._clock.now_ns(),
            reset=update.reset,
            text=update.text,
            reason=reason,
        )
        self._log.write(row)

    # Failing

    def _backend_failed(self, error: WorldFault) -> None:
        if self._settings.on_backend_fault == "fault":
            self._fail(error)
        else:
            self._around.emit(StageMark(self._clock.now_ns(), self._received, "oracle_failed"))

    def _fail(self, error: WorldFault) -> None:
        if self._error is None:
            self._error = error
            now_ns = self._clock.now_ns()
            fault = Fault(now_ns, self._received, error.party, error.kind, str(error), error.retryable)
            self._around.emit(fault)

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            message = f"the tandem loop failed: {type(error).__name__}: {error}"
            self._fail(WorldFault(message, kind="bug", party="kamebench"))
