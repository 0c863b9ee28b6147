"""The topline: speaks the task's own reference answer, at once.

What a system scores with it is what its recognition, synthesis and timing leave of a right answer.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from kamebench.errors import BackendFault
from kamebench.llm.base import Backend, ChatRequest, StreamEnd, TextChunk, Usage
from kamebench.llm.setup import BackendOptions, BackendSetup, read_options


class ReferenceBackend(Backend):
    """Streams `TurnContext.references[turn - 1]` word by word, without a pause."""

    name = "reference"
    family = "reference"

    async def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        words = words_of(self._reference(request))
        for word in words:
            yield TextChunk(word)
        yield StreamEnd("stop", Usage(None, len(words)))

    def _reference(self, request: ChatRequest) -> str:
        context = request.context
        if context is None:
            raise BackendFault(
                "the back-end 'reference' was asked outside of a task's turn. It can only answer a task's "
                "questions; take another back-end, for example 'local'.",
                kind="no_reference",
                party="kamebench",
            )
        answers = context.references
        answer = answers[context.turn - 1] if 1 <= context.turn <= len(answers) else None
        if not answer or not answer.strip():
            raise BackendFault(
                f"task '{context.task}', question {context.question_id}, turn {context.turn}: there is no "
                "reference answer. Leave the question out or take another back-end.",
                kind="no_reference",
                party="kamebench",
            )
        return answer


def words_of(text: str) -> list[str]:
    """A text as words, each with the space before it; joined they are the text again."""
    return re.findall(r"\s*\S+|\s+$", text)


def create(setup: BackendSetup) -> Backend:
    read_options(BackendOptions, setup, "reference")
    return ReferenceBackend()
