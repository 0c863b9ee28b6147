"""The streaming recogniser whose results are known: each comes when a chosen frame has been sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from kamebench.asr.base import Partial, StreamingRecogniser
from kamebench.asr.streaming import StreamingEngine
from kamebench.audio import Frame
from kamebench.clock import Activity
from kamebench.errors import BadConfig, EngineFault


@dataclass(frozen=True, slots=True)
class ScriptedResult:
    """`text` is the result once frame `frame` has been sent; `fault` fails there instead."""

    frame: int
    text: str = ""
    final: bool = False
    fault: bool = False


class ScriptedRecogniser(StreamingRecogniser):
    """Plays a script; hears nothing."""

    name = "scripted"

    def __init__(self, script: Sequence[ScriptedResult]) -> None:
        self._script = sorted(script, key=lambda result: result.frame)
        self._queue: asyncio.Queue[ScriptedResult | None] = asyncio.Queue()

    async def send(self, frame: Frame) -> None:
        while self._script and self._script[0].frame <= frame.index:
            self._queue.put_nowait(self._script.pop(0))

    async def results(self) -> AsyncIterator[Partial]:
        while (result := await self._queue.get()) is not None:
            if result.fault:
                raise EngineFault(f"failed as scripted at frame {result.frame}", kind="scripted")
            yield Partial(result.text, result.final)

    async def aclose(self) -> None:
        self._queue.put_nowait(None)


class ScriptedEngine(StreamingEngine):
    """Every session hears the same script."""

    def __init__(self, script: Sequence[ScriptedResult], name: str = "scripted") -> None:
        self.name, self._script = name, tuple(script)

    def open(self, activity: Activity) -> StreamingRecogniser:
        return ScriptedRecogniser(self._script)


def create(argument: str) -> StreamingEngine:
    """The engine of a script file: a JSON list of {"frame": 12, "text": "what is", "final": false}.

    Raises:
        BadConfig: no file given, or one that cannot be read.
    """
    try:
        raw = json.loads(Path(argument).read_text(encoding="utf-8"))
        script = TypeAdapter(list[ScriptedResult]).validate_python(raw)
    except (OSError, json.JSONDecodeError, ValidationError) as error:
        raise BadConfig(
            f"streaming recogniser 'scripted:{argument}': {error}. "
            'Give a JSON file with a list of {"frame": 12, "text": "...", "final": false}.'
        ) from None
    return ScriptedEngine(script, f"scripted:{Path(argument).name}")
