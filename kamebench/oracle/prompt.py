"""What the back-end is asked: the instructions and the conversation so far as one transcript."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Literal

from kamebench.llm.base import Message

Speaker = Literal["user", "assistant"]

INSTRUCTIONS = (
    "You whisper to a voice assistant what to say next. You get the spoken conversation so far, as heard by "
    "a speech recogniser, one line for each change of speaker. The last 'user' line may break off in the "
    "middle of a sentence: work out where it is going and answer that. Give only the words the assistant "
    "should speak now, 30 at most, as plain sentences that sound natural when read aloud, with numbers and "
    "symbols spelled as they are spoken and no lists, formatting or speaker names. Be definite. If the "
    "assistant said something wrong earlier, set it right. Never ask the user anything back."
)


@dataclass(slots=True)
class Conversation:
    """What user and model have said in a session. User text is committed only by final results."""

    pending: str = ""
    _lines: list[tuple[Speaker, str]] = field(default_factory=list)
    _committed_words: int = 0
    _most_pending: int = 0

    @property
    def committed(self) -> str:
        """All final user text, joined by spaces."""
        return " ".join(text for speaker, text in self._lines if speaker == "user")

    @property
    def words(self) -> int:
        """Cumulative count of user words; within an utterance it never falls (as the released server)."""
        return self._committed_words + self._most_pending

    def hear_partial(self, text: str) -> None:
        """Replace the pending text."""
        self.pending = text.strip()
        self._most_pending = max(self._most_pending, len(self.pending.split()))

    def hear_final(self, text: str) -> None:
        """Commit an utterance; nothing is pending after it."""
        text = text.strip()
        if text:
            self._say("user", text, " ")
            self._committed_words += len(text.split())
        self.pending, self._most_pending = "", 0

    def speak(self, piece: str) -> None:
        """Add a piece of the model's own text, spaces kept."""
        self._say("assistant", piece, "")

    def _say(self, speaker: Speaker, text: str, gap: str) -> None:
        if self._lines and self._lines[-1][0] == speaker:
            self._lines[-1] = (speaker, self._lines[-1][1] + gap + text)
        else:
            self._lines.append((speaker, text))

    def messages(self, instructions: str = INSTRUCTIONS) -> tuple[Message, ...]:
        """The request: instructions, then the transcript with the pending text at its end.

        One user message holds the whole transcript, as in the released server: both sides of a full-duplex
        conversation overlap, which alternating chat roles cannot show.
        """
        lines = [f"{speaker}: {' '.join(text.split())}" for speaker, text in self._lines if text.strip()]
        if self.pending:
            lines.append(f"user: {self.pending}")
        return Message("system", instructions), Message("user", "\n".join(lines))


def messages_sha256(messages: tuple[Message, ...]) -> str:
    """Hash of a request's messages."""
    rows = [[message.role, message.content] for message in messages]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()
