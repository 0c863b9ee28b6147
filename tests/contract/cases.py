"""The adapters under the contract suite, each as near to the real thing as this machine allows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kamebench.systems.base import System
from kamebench.systems.scripted import ScriptedOptions, ScriptedSystem
from tests.contract.harness import Case


@asynccontextmanager
async def scripted(folder: Path) -> AsyncIterator[System]:
    system = ScriptedSystem(ScriptedOptions())
    await system.start()
    try:
        yield system
    finally:
        await system.aclose()


async def break_scripted(system: System) -> None:
    assert isinstance(system, ScriptedSystem)
    system.options = ScriptedOptions(fault="error", fault_after_ms=100.0)


CASES = [Case("scripted", scripted, break_scripted)]
