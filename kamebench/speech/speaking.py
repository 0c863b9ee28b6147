"""A task spoken: every turn of its questions as audio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kamebench.audio import Pcm
from kamebench.records import SpokenTurn
from kamebench.speech.base import SpeechEngine
from kamebench.speech.cache import synthesise
from kamebench.tasks import Question


@dataclass(frozen=True, slots=True)
class Spoken:
    """Turn `turn` (1-based) of a question; `pcm` is float32 [n] at 24 000 Hz."""

    question_id: str
    turn: int
    spoken: SpokenTurn
    pcm: Pcm


def speak_questions(
    questions: Sequence[Question], engine: SpeechEngine, *, folder: Path | None = None
) -> Iterator[Spoken]:
    """Speak every turn, in order, from the cache where it has been spoken before.

    Raises:
        UserError: a turn has nothing that can be said. EngineFault: the engine failed.
    """
    for question in questions:
        for number, turn in enumerate(question.turns, 1):
            yield Spoken(question.id, number, *synthesise(turn.text, engine, folder=folder))
