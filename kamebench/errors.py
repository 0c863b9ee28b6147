"""The exception tree. Every message names the value, the limit and the mend.

KamebenchError
├── UserError              exit 2: what the caller gave is wrong
│   ├── UnknownName        no such system, task, back-end, ... (with the nearest match)
│   ├── BadAudio           unreadable, empty, NaN, wrong shape or rate
│   ├── BadTask            a task file with a missing, extra or contradicting field
│   ├── BadConfig          a system file, an option or a rule that cannot be used
│   ├── BadRun             a stored run that is incomplete, edited or of another schema
│   ├── BadCheckpoint      model weights or a config that do not fit
│   ├── MissingExtra       an optional dependency is not installed
│   └── MissingKey         a provider needs a key and none is set
└── WorldFault             exit 3: something outside failed; says who and whether a retry makes sense
    ├── AssetFault         a fetch that failed or whose hash is wrong
    ├── SystemFault        the system under test failed
    ├── BackendFault       a language model provider failed
    ├── EngineFault        a recogniser or synthesiser failed
    └── JudgeFault         the judge failed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar, Literal

Party = Literal["system", "backend", "recogniser", "synthesiser", "judge", "network", "asset", "kamebench"]


class KamebenchError(Exception):
    """Base of everything kamebench raises on purpose."""

    exit_code: ClassVar[int] = 3


class UserError(KamebenchError):
    """What the caller gave is wrong; trying again unchanged cannot help."""

    exit_code: ClassVar[int] = 2


class UnknownName(UserError):
    """A name that no registry, folder or table holds."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = difflib.get_close_matches(name, self.known, n=1, cutoff=0.5)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        choices = ", ".join(self.known) or "none"
        super().__init__(f"There is no {kind} named '{name}'.{hint} Known: {choices}.")


class BadAudio(UserError):
    """Audio that cannot be used as it is."""


class BadTask(UserError):
    """A task folder that does not hold what its format asks for."""


class BadConfig(UserError):
    """A system file, an option or a rule that cannot be used."""


class BadRun(UserError):
    """A stored run that is incomplete, edited by hand or of another schema."""


class BadCheckpoint(UserError):
    """Model weights or a model configuration that do not fit the model asked for."""


class MissingExtra(UserError):
    """An optional dependency is needed and not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs an optional dependency. Install it with: pip install 'kamebench[{extra}]'"
        )


class MissingKey(UserError):
    """A provider needs a key and none is set."""

    def __init__(self, provider: str, variable: str) -> None:
        super().__init__(
            f"{provider} needs a key: set the environment variable {variable}, "
            f"or {variable}_FILE to a file that holds it."
        )


class WorldFault(KamebenchError):
    """Something outside kamebench failed. It never lowers a system's score.

    `party` says whose fault it is, `kind` is a short stable word ("timeout", "rate_limit", ...),
    `retryable` whether the same call may succeed later.
    """

    party: Party = "kamebench"

    def __init__(
        self, message: str, *, kind: str = "error", retryable: bool = False, party: Party | None = None
    ):
        super().__init__(message)
        self.kind, self.retryable = kind, retryable
        if party is not None:
            self.party = party


class AssetFault(WorldFault):
    party: Party = "asset"


class SystemFault(WorldFault):
    party: Party = "system"


class BackendFault(WorldFault):
    """A language model provider failed. `retry_after_s`: how long it asked to be left alone, if it said."""

    party: Party = "backend"
    retry_after_s: float | None = None


class EngineFault(WorldFault):
    party: Party = "recogniser"


class JudgeFault(WorldFault):
    party: Party = "judge"
