"""What every back-end is made from, and how its options and its key are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from kamebench.clock import Clock, MonotonicClock
from kamebench.errors import BadConfig, MissingKey
from kamebench.llm.base import Backend


@dataclass(frozen=True, slots=True)
class BackendSetup:
    """What a back-end's `create` gets.

    Attributes:
        model: what follows the provider's name and a colon ("gpt-4.1", a file, a folder); may be empty.
        url: the address of a server, where one was given.
        clock: what timed back-ends (scripted, replay) wait on.
        options: given by the caller, to be checked by the back-end's own model with `read_options`.
        open: opens another back-end by name, with the same clock and budget.
    """

    model: str
    url: str | None = None
    clock: Clock = field(default_factory=MonotonicClock)
    options: dict[str, Any] = field(default_factory=dict)
    open: Callable[[str], Backend] | None = None


class BackendOptions(BaseModel):
    """Base of a back-end's own options: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


AnyOptions = TypeVar("AnyOptions", bound=BackendOptions)


def read_options(cls: type[AnyOptions], setup: BackendSetup, kind: str) -> AnyOptions:
    """Options checked by the back-end's own model.

    Raises:
        BadConfig: naming the option, what is wrong with it and which ones exist.
    """
    try:
        return cls.model_validate(setup.options)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        known = ", ".join(sorted(cls.model_fields)) or "none"
        raise BadConfig(f"back-end '{kind}': option '{name}': {first['msg']}. Options: {known}.") from None


def read_key(provider: str, *variables: str) -> SecretStr:
    """A provider's key from the first variable that is set, or from the file that VARIABLE_FILE names.

    Raises:
        MissingKey: none is set. BadConfig: the file cannot be read or is empty.
    """
    key = find_key(*variables)
    if key is None:
        raise MissingKey(provider, variables[0])
    return key


def find_key(*variables: str) -> SecretStr | None:
    """As `read_key`, None where no variable is set."""
    for variable in variables:
        value = os.environ.get(variable, "").strip()
        if value:
            return SecretStr(value)
        file = os.environ.get(f"{variable}_FILE", "")
        if file:
            return SecretStr(_read_key_file(f"{variable}_FILE", Path(file)))
    return None


def _read_key_file(variable: str, path: Path) -> str:
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{variable}={path}: cannot be read ({type(error).__name__}).") from None
    if not key:
        raise BadConfig(f"{variable}={path}: the file is empty. Put the key in it, nothing else.")
    return key
