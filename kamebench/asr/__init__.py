"""Recognisers of whole recordings by name.

A name is `kind` or `kind:argument`: `faster-whisper:tiny.en`, `faster-whisper:/path/to/ctranslate2-folder`,
`whisper:turbo`, `whisper:/path/to/checkpoint.pt`. Recognisers of live streams: `kamebench.asr.streaming`.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kamebench.asr.base import Recogniser
from kamebench.errors import BadConfig
from kamebench.registry import Entry, Registry

RECOGNISERS = Registry(
    "recogniser",
    "kamebench.recognisers",
    {
        "faster-whisper": Entry("kamebench.asr.faster_whisper:create", "local", "faster-whisper:SIZE"),
        "whisper": Entry("kamebench.asr.openai_whisper:create", "whisper", "whisper:SIZE"),
    },
)


class DecodingOptions(BaseModel):
    """How text is searched for. Temperature is always 0, without fallback: the same audio, the same text.

    beam_size: 1 is greedy; 5 is about a third slower and has fewer errors.
    language: of the speech; recognisers are not asked to guess it.
    device: "cpu", "cuda", or "auto": a GPU where there is one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    beam_size: int = Field(default=1, ge=1, le=20)
    language: str = "en"
    device: str = "auto"


def open_recogniser(name: str, **options: object) -> Recogniser:
    """The recogniser of a name; no weights are loaded before its `start` or first use.

    Args:
        name: `kind` or `kind:argument`.
        options: fields of `DecodingOptions`.

    Raises:
        UnknownName: no such kind. MissingExtra: a package it needs is not installed.
        BadConfig: the argument or an option cannot be used.
    """
    kind, _, argument = name.partition(":")
    create = RECOGNISERS.load(kind)
    try:
        decoding = DecodingOptions.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadConfig(
            f"recogniser '{name}': option {first['loc'][0]}: {first['msg']}. "
            f"Options: {', '.join(DecodingOptions.model_fields)}."
        ) from None
    recogniser: Recogniser = create(argument, decoding)
    return recogniser
