"""Streaming recognisers by name, loaded once and opened for each session.

A name is `kind` or `kind:argument`: `whisper:tiny.en`, `kyutai:kyutai/stt-1b-en_fr`, `google-speech:en-US`,
`scripted:FILE`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from kamebench.asr.base import StreamingRecogniser
from kamebench.clock import Activity
from kamebench.registry import Entry, Registry


class StreamingEngine(ABC):
    """A recogniser's weights or connection, from which each session gets a `StreamingRecogniser` of its own.

    realtime_only: it cannot say when it has nothing in flight (a remote service), so stream time cannot be
    skipped while it listens.
    """

    name: str
    realtime_only: ClassVar[bool] = False

    def start(self) -> None:
        """Load the weights. Blocking: call it in a thread, before any session's clock runs."""

    @abstractmethod
    def open(self, activity: Activity) -> StreamingRecogniser:
        """A recogniser for one session; what it has in flight is reported to `activity`."""

    def close(self) -> None:
        """Free the weights."""


STREAMING = Registry(
    "streaming recogniser",
    "kamebench.streaming_recognisers",
    {
        "whisper": Entry("kamebench.asr.whisper_window:create", "local"),
        "kyutai": Entry("kamebench.asr.kyutai:create", "moshi"),
        "google-speech": Entry("kamebench.asr.google_speech:create", "google-speech"),
        "scripted": Entry("kamebench.asr.scripted:create"),
    },
)


def open_streaming(name: str) -> StreamingEngine:
    """The engine of a name; nothing heavy is loaded before its `start`.

    Raises:
        UnknownName: no such kind. MissingExtra: a package it needs is not installed.
        BadConfig: the argument cannot be used.
    """
    kind, _, argument = name.partition(":")
    engine: StreamingEngine = STREAMING.load(kind)(argument)
    return engine
