"""Kyutai's streaming recogniser (delayed streams modelling) through the `moshi` package.

Mimi codes go in frame by frame; the model's text stream is the transcript, `audio_delay_seconds` late. Models
with semantic voice-activity heads say when the user's turn is over; for others a silence of the text does.
The weights hold the state of one stream, so one session at a time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kamebench.asr.base import Partial, StreamingRecogniser, Word
from kamebench.asr.streaming import StreamingEngine
from kamebench.audio import FRAME_SAMPLES, FRAMES_PER_S, Frame, Pcm
from kamebench.clock import Activity, Operation
from kamebench.errors import BadCheckpoint, BadConfig, EngineFault, WorldFault

if TYPE_CHECKING:
    import torch
    from moshi.models.compression import MimiModel
    from moshi.models.lm import LMGen

DEFAULT_REPO = "kyutai/stt-1b-en_fr"
FRAME_S = 1 / FRAMES_PER_S
PADDING = (0, 3)  # end of padding, padding
PAUSE_HEAD = 2  # of the heads for pauses of 0.5, 1, 2 and 3 s, the one Kyutai's own client uses
PAUSE_PROBABILITY = 0.5


@dataclass(slots=True)
class WordDecoder:
    """Text tokens, one a frame, to results: words with times, partial as they grow, final at an end-point.

    Args:
        delay_s: how far the text lags the audio.
        quiet_frames: without pause heads, frames of padding after a word that end the utterance.
    """

    delay_s: float
    quiet_frames: int = 10
    _words: list[Word] = field(default_factory=list)
    _quiet: int = 0

    def step(self, frame: int, piece: str | None, pause: float | None) -> Partial | None:
        """Take frame `frame`'s piece (None: padding) and the pause head's probability (None: no heads)."""
        if piece is not None:
            self._add(frame, piece)
            self._quiet = 0
            return self._result(final=False)
        self._quiet += 1
        over = pause > PAUSE_PROBABILITY if pause is not None else self._quiet >= self.quiet_frames
        if not over or not self._words:
            return None
        result = self._result(final=True)
        self._words = []
        return result

    def _add(self, frame: int, piece: str) -> None:
        start_s = max(0.0, frame * FRAME_S - self.delay_s)
        if piece.startswith("▁") or not self._words:
            self._words.append(Word(piece.removeprefix("▁"), start_s, start_s + FRAME_S))
        else:
            last = self._words[-1]
            self._words[-1] = Word(last.text + piece.replace("▁", " "), last.start_s, start_s + FRAME_S)

    def _result(self, *, final: bool) -> Partial:
        words = tuple(word for word in self._words if word.text)
        return Partial(" ".join(word.text for word in words), final, words)


class KyutaiEngine(StreamingEngine):
    """The weights of a Kyutai speech-to-text model.

    Args:
        source: a hub repository or a folder in its layout.
        device: "cuda", "cpu", or None: CUDA where there is one.
    """

    def __init__(self, source: str, device: str | None = None) -> None:
        self.name = f"kyutai:{source}"
        self._source, self._device = source, device
        self._mimi: MimiModel | None = None
        self._generator: LMGen | None = None
        self._streams = ExitStack()
        self._taken = False
        self.delay_s = 0.0
        self.prefix_frames = 0

    def start(self) -> None:
        """Load the weights.

        Raises:
            BadCheckpoint: not a speech-to-text model, or not loadable.
        """
        import torch
        from safetensors import SafetensorError

        device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
        if device == "cpu":
            os.environ.setdefault("NO_TORCH_COMPILE", "1")  # compiling takes longer than it saves there
        from moshi.models.lm import LMGen

        try:
            info = _checkpoint(self._source)
            if info.model_type != "stt":
                raise BadCheckpoint(
                    f"{self._source}: its config.json says model_type '{info.model_type}', expected 'stt'. "
                    f"Name a speech-to-text model, for example {DEFAULT_REPO}."
                )
            dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
            mimi: Any = info.get_mimi(device=device)
            model = info.get_moshi(device=device, dtype=dtype)
            self._tokenizer = info.get_text_tokenizer()
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, SafetensorError) as error:
            raise BadCheckpoint(
                f"{self._source}: cannot be loaded as a Kyutai speech-to-text model ({error}). Name a hub "
                "repository or a folder with its config.json, weights and tokenizer."
            ) from error
        self._generator = LMGen(model, use_sampling=False, temp=0.0, temp_text=0.0)
        self.delay_s = float(info.stt_config.get("audio_delay_seconds", 0.0))
        prefix_s = float(info.stt_config.get("audio_silence_prefix_seconds", 0.0))
        self.prefix_frames = round(prefix_s * FRAMES_PER_S)
        self._mimi = mimi
        for module in (mimi, self._generator):
            self._streams.enter_context(cast("AbstractContextManager[None]", module.streaming(1)))

    def open(self, activity: Activity) -> StreamingRecogniser:
        if self._generator is None:
            raise EngineFault(f"{self.name} was not started", kind="not_started")
        if self._taken:
            raise BadConfig(f"{self.name} holds one session at a time. Use --sessions 1.")
        self._taken = True
        return KyutaiRecogniser(self, activity)

    def release(self) -> None:
        self._taken = False

    def close(self) -> None:
        self._streams.close()
        self._mimi = self._generator = None

    def reset(self) -> None:
        """Forget the stream before."""
        assert self._mimi is not None and self._generator is not None
        self._mimi.reset_streaming()
        self._generator.reset_streaming()

    def step(self, pcm: Pcm, first: bool) -> tuple[str | None, float | None]:
        """One frame, float32 [1920]: the text piece (None: padding) and the pause probability, if known.

        The first codes of a stream go in twice: the model's first step sees initial tokens instead of them.
        """
        import torch

        assert self._mimi is not None and self._generator is not None
        with torch.no_grad():
            device = next(self._mimi.parameters()).device
            audio = torch.from_numpy(np.array(pcm, np.float32))[None, None].to(device)
            codes: torch.Tensor = self._mimi.encode(audio)
            if first:
                self._generator.step(codes)
            out = self._generator.step_with_extra_heads(codes)
        if out is None:
            return None, None
        tokens, heads = out
        token = int(tokens[0, 0, 0].item())
        pause = float(heads[PAUSE_HEAD][0, 0, 0].item()) if len(heads) > PAUSE_HEAD else None
        return (None if token in PADDING or token < 0 else self._tokenizer.id_to_piece(token)), pause


class KyutaiRecogniser(StreamingRecogniser):
    """One session: frames are worked off in order by one thread."""

    def __init__(self, engine: KyutaiEngine, activity: Activity) -> None:
        self.name = engine.name
        self._engine, self._activity = engine, activity
        self._decoder = WordDecoder(engine.delay_s)
        self._results: asyncio.Queue[Partial | WorldFault | None] = asyncio.Queue()
        self._frames: asyncio.Queue[tuple[Frame, Operation]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kyutai")
        self._worker: asyncio.Task[None] | None = None
        self._failed = False

    async def send(self, frame: Frame) -> None:
        if self._failed:
            return
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        self._frames.put_nowait((frame, self._activity.begin("recognition")))

    async def _work(self) -> None:
        first = True
        while True:
            frame, operation = await self._frames.get()
            try:
                result = await self._recognise(frame, first)
                await operation.settle()
                if result is not None:
                    self._results.put_nowait(result)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                fault = EngineFault(f"{self.name}: {type(error).__name__}: {error}", kind="crash")
                self._results.put_nowait(fault)
                self._failed = True
                self._forget_frames()
                return
            finally:
                self._activity.end(operation)
            first = False

    async def _recognise(self, frame: Frame, first: bool) -> Partial | None:
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._steps, frame.pcm, first)
        try:
            piece, pause = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait({work})
            raise
        return self._decoder.step(frame.index, piece, pause)

    def _steps(self, pcm: Pcm, first: bool) -> tuple[str | None, float | None]:
        engine = self._engine
        if first:
            engine.reset()
            for at in range(engine.prefix_frames):
                engine.step(np.zeros(FRAME_SAMPLES, np.float32), at == 0)
        return engine.step(pcm, first and engine.prefix_frames == 0)

    async def results(self) -> AsyncIterator[Partial]:
        while (result := await self._results.get()) is not None:
            if isinstance(result, WorldFault):
                raise result
            yield result

    async def aclose(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
            self._worker = None
        self._forget_frames()
        self._thread.shutdown()
        self._engine.release()
        self._results.put_nowait(None)

    def _forget_frames(self) -> None:
        while not self._frames.empty():
            self._activity.end(self._frames.get_nowait()[1])


def _checkpoint(source: str) -> Any:
    """The `moshi` package's description of a repository's or folder's files."""
    from moshi.models.loaders import CheckpointInfo

    folder = Path(source)
    if not folder.is_dir():
        return CheckpointInfo.from_hf_repo(source)
    import json

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    mimi_config = config.get("mimi_config_name")
    return CheckpointInfo.from_hf_repo(
        source,
        moshi_weights=folder / config["moshi_name"],
        mimi_weights=folder / config["mimi_name"],
        tokenizer=folder / config["tokenizer_name"],
        config_path=folder / "config.json",
        mimi_config_path=folder / str(mimi_config).removeprefix("file://") if mimi_config else None,
    )


def create(argument: str) -> StreamingEngine:
    """`kyutai`, `kyutai:REPOSITORY` or `kyutai:FOLDER`."""
    import moshi  # noqa: F401  # pyright: ignore[reportUnusedImport]  # its absence is said at once

    return KyutaiEngine(argument or DEFAULT_REPO)
