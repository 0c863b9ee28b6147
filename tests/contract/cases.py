"""The adapters under the contract suite, each as near to the real thing as this machine allows.

scripted is itself; the cascade has engines whose answers are known; moshi and kame run the real code on a
tiny random checkpoint; the adapters of running servers talk to a server of the tests on loopback.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kamebench.clock import MonotonicClock
from kamebench.errors import BackendFault
from kamebench.systems import Setup, cascade, kame_server, moshi_server, unmute
from kamebench.systems.base import System
from kamebench.systems.scripted import ScriptedOptions, ScriptedSystem
from tests.contract.harness import Case
from tests.unit.oracle_parts import Answer, TimedBackend
from tests.unit.test_cascade import Counting, Echo, Tone
from tests.wire.remote_parts import ChatServer, UnmuteServer, serving

Make = Callable[[Path], System]


def started(make: Make) -> Callable[[Path], AbstractAsyncContextManager[System]]:
    """A system of `make`, started and closed around the block."""

    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[System]:
        system = make(folder)
        await system.start()
        try:
            yield system
        finally:
            await system.aclose()

    return opened


def make_scripted(folder: Path) -> System:
    return ScriptedSystem(ScriptedOptions())


async def break_scripted(system: System) -> None:
    assert isinstance(system, ScriptedSystem)
    system.options = ScriptedOptions(fault="error", fault_after_ms=100.0)


class KnownParts(cascade.CascadeSystem):
    """The cascade on a recogniser, a voice and a model whose answers are known; silero listens."""

    def __init__(self) -> None:
        super().__init__(cascade.Parts(cascade.CascadeOptions(), Counting(), Tone(), Echo()))

    @property
    def parts(self) -> cascade.Parts:
        return self._parts


async def break_cascade(system: System) -> None:
    assert isinstance(system, KnownParts)
    system.parts.backend = Echo(fail=True)


@cache
def checkpoint() -> Path:
    """A tiny random KAME checkpoint, one a test process."""
    os.environ["NO_TORCH_COMPILE"] = "1"  # read when moshi is imported
    pytest.importorskip("moshi.models.lm")
    import torch

    from tests.tiny_models import SPEAKER, write_checkpoint

    torch.set_num_threads(1)  # tiny products: more threads only wait for each other
    folder = Path(tempfile.mkdtemp(prefix="kamebench-contract-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_checkpoint(folder, SPEAKER, lm_gen_config={"use_sampling": False})
    return folder


def make_moshi(folder: Path) -> System:
    from kamebench.systems.moshi import create

    return create(Setup({"weights": str(checkpoint()), "dtype": "fp32", "device": "cpu"}))


def make_kame(folder: Path) -> System:
    from kamebench.systems.kame import create

    script = folder / "heard.json"
    script.write_text(json.dumps([{"frame": 6, "text": "the quick brown fox", "final": True}]))
    options: dict[str, Any] = {"weights": str(checkpoint()), "dtype": "fp32", "device": "cpu"}
    options["recogniser"] = f"scripted:{script}"
    backend = TimedBackend(MonotonicClock(), [Answer(((20, "seven"), (40, " wise")), end_ms=60)] * 20)
    return create(Setup(options, backend, "timed"))


async def break_kame(system: System) -> None:
    async def failing(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise BackendFault("no answer", kind="timeout")
        yield

    system._backend.stream = failing  # type: ignore[attr-defined]


def served(
    server: Callable[[], Any], path: str, make: Callable[[str], System]
) -> Callable[[Path], AbstractAsyncContextManager[System]]:
    """An adapter of a running server, with such a server on loopback."""

    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[System]:
        async with serving(path, server()) as url:
            system = make(url)
            await system.start()
            try:
                yield system
            finally:
                await system.aclose()

    return opened


def unmute_server() -> UnmuteServer:
    server = UnmuteServer({}, greet=False)
    server.script = {5: [{"type": "response.created", "response": {}}], 6: [server.audio(3)]}
    return server


CASES = [
    Case("scripted", started(make_scripted), break_scripted),
    Case("cascade", started(lambda folder: KnownParts()), break_cascade),
    Case("moshi", started(make_moshi)),
    Case("kame", started(make_kame), break_kame),
    Case(
        "moshi-server",
        served(ChatServer, "/api/chat", lambda url: moshi_server.create(Setup({"url": url}))),
    ),
    Case(
        "kame-server",
        served(ChatServer, "/api/chat", lambda url: kame_server.create(Setup({"url": url}))),
    ),
    Case(
        "unmute",
        served(unmute_server, "/v1/realtime", lambda url: unmute.create(Setup({"url": url}))),
    ),
]
