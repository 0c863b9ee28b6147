"""Systems under test: their files (systems/*.toml) and the adapters behind them, loaded by name.

A system file is data:

    name = "cascade"                 # must equal the file's name
    adapter = "cascade"              # a name in ADAPTERS or an entry point of group kamebench.systems
    description = "what it is, in one line"
    backend = "local"                # default back-end, or left out where the system has none
    [options]                        # given to the adapter, which checks them

An adapter is a function `create(setup: Setup) -> System`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kamebench.errors import BadConfig, UnknownName
from kamebench.llm.base import Backend
from kamebench.registry import Entry, Registry
from kamebench.roots import data_folders
from kamebench.systems.base import System

ADAPTERS = Registry(
    "system adapter",
    "kamebench.systems",
    {
        "scripted": Entry("kamebench.systems.scripted:create"),
        "cascade": Entry("kamebench.systems.cascade:create", "local"),
        "moshi": Entry("kamebench.systems.moshi:create", "moshi"),
        "kame": Entry("kamebench.systems.kame:create", "moshi"),
        "moshi-server": Entry("kamebench.systems.moshi_server:create", "remote"),
        "kame-server": Entry("kamebench.systems.kame_server:create", "remote"),
        "unmute": Entry("kamebench.systems.unmute:create", "remote"),
    },
)


@dataclass(frozen=True, slots=True)
class Setup:
    """What an adapter gets to build its system from.

    backend: opened, not started; None where the system has none. sessions: conversations side by side.
    """

    options: dict[str, Any] = field(default_factory=dict)
    backend: Backend | None = None
    backend_name: str | None = None
    sessions: int = 1


class Options(BaseModel):
    """Base of an adapter's own options: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


AnyOptions = TypeVar("AnyOptions", bound=Options)


def read_options(cls: type[AnyOptions], options: dict[str, Any]) -> AnyOptions:
    """Options checked by the adapter's own model.

    Raises:
        BadConfig: naming the option, what is wrong with it and which ones exist.
    """
    try:
        return cls.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        known = ", ".join(sorted(cls.model_fields))
        raise BadConfig(
            f"option '{name}' = {first.get('input')!r}: {first['msg']}. Options: {known}."
        ) from None


class SystemFile(BaseModel):
    """One systems/*.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    adapter: str
    description: str
    backend: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)


def list_systems(root: Path | None = None) -> dict[str, Path]:
    """Name -> file of every system that can be found, nearest folder first."""
    found: dict[str, Path] = {}
    for folder in data_folders("systems", root):
        for path in sorted(folder.glob("*.toml")):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def load_system_file(name: str, root: Path | None = None) -> SystemFile:
    """The system file of a name, or at a path ending in `.toml`.

    Raises:
        UnknownName: no such file; BadConfig: a field is missing, extra or wrong.
    """
    files = list_systems(root)
    path = Path(name) if name.endswith(".toml") else files.get(name)
    if path is None or not path.is_file():
        raise UnknownName("system", name, files)
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        system = SystemFile.model_validate(raw)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path}: is not TOML ({error}). See CONTRIBUTING.md for the format.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadConfig(f"{path}: {where}: {first['msg']}. See CONTRIBUTING.md for the format.") from None
    if system.name != path.stem:
        raise BadConfig(f"{path}: name is '{system.name}', the file is '{path.stem}'. Make them equal.")
    return system


def open_system(file: SystemFile, setup: Setup) -> System:
    """Build the system of a file; nothing heavy is loaded before `System.start`."""
    create = ADAPTERS.load(file.adapter)
    system: System = create(setup)
    return system
