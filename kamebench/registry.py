"""Name -> "module:attribute", imported only when named. Plug-ins join by entry point.

A distribution adds a system with an entry point in the group `kamebench.systems` (and likewise
`kamebench.backends`, `kamebench.recognisers`, `kamebench.speech_engines`, `kamebench.judges`).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from kamebench.errors import MissingExtra, UnknownName


@dataclass(frozen=True)
class Entry:
    """Where a named part lives, which extra it needs ('' for none), and how it is named ('' as it is)."""

    target: str
    extra: str = ""
    usage: str = ""


class Registry:
    """The parts of one kind.

    Args:
        kind: what error messages call them ("system", "back-end").
        group: entry-point group for plug-ins.
        builtin: the parts that ship with kamebench.
    """

    def __init__(self, kind: str, group: str, builtin: dict[str, Entry]) -> None:
        self.kind, self.group, self._builtin = kind, group, builtin

    def names(self) -> list[str]:
        return sorted({*self._builtin, *(point.name for point in entry_points(group=self.group))})

    def rows(self) -> list[dict[str, str]]:
        """What `kamebench list` shows: how each part is named and which extra it needs."""
        known = {name: self._builtin.get(name, Entry("", "a plug-in")) for name in self.names()}
        return [{"name": e.usage or name, "extra": e.extra or "-"} for name, e in known.items()]

    def load(self, name: str) -> Any:
        """The class or function behind `name`.

        Raises:
            UnknownName: with the nearest known name.
            MissingExtra: a package it imports is not installed.
        """
        entry = self._builtin.get(name)
        if entry is None:
            for point in entry_points(group=self.group):
                if point.name == name:
                    return point.load()
            raise UnknownName(self.kind, name, self.names())
        module, _, attribute = entry.target.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if entry.extra and not (error.name or "").startswith("kamebench"):
                raise MissingExtra(f"{self.kind} '{name}'", entry.extra) from error
            raise
