"""The embedded model: a real server with real weights, and every way in which it can fail to start."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kamebench import assets
from kamebench.errors import BackendFault
from kamebench.llm import open_backend
from kamebench.llm.base import Backend, ChatRequest, Message, TextChunk, close_stream
from kamebench.llm.local import ASSET, LocalBackend, LocalOptions, LocalServer

pytest.importorskip("xllamacpp")
needs_weights = pytest.mark.skipif(
    not assets.is_fetched(ASSET), reason="the weights are not here: kamebench fetch smollm2-135m"
)


def ask(text: str, max_tokens: int = 24) -> ChatRequest:
    return ChatRequest((Message("system", "Answer briefly."), Message("user", text)), 0.0, max_tokens)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def server_of(backend: Backend) -> LocalServer:
    server = backend._inner._server  # type: ignore[attr-defined]
    assert isinstance(server, LocalServer)
    return server


@pytest.fixture
async def local() -> AsyncIterator[Backend]:
    backend = open_backend("local")
    await backend.start()
    yield backend
    await backend.aclose()


@pytest.mark.assets
@needs_weights
async def test_it_answers_streamed_and_the_same_every_time(local: Backend) -> None:
    answers = [await local.complete(ask(q)) for q in ("What is the capital of France?", "Why?") * 2]
    assert all(answer.text for answer in answers)
    assert answers[0] != answers[1]
    assert answers[:2] == answers[2:], "the same question, another answer"
    chunks = [i async for i in local.stream(ask("Count to ten.")) if isinstance(i, TextChunk)]
    assert len(chunks) > 3
    assert answers[0].usage.output_tokens


@pytest.mark.assets
@needs_weights
async def test_requests_may_follow_at_once(local: Backend) -> None:
    for _ in range(40):  # on a kept connection about a tenth of them failed
        await local.complete(ask("Well?", max_tokens=2))


@pytest.mark.assets
@needs_weights
async def test_cancelling_frees_it_for_the_next_request(local: Backend) -> None:
    stream = local.stream(ask("Tell me a very long story.", max_tokens=1500))
    await anext(stream)
    await close_stream(stream)
    began = time.perf_counter()
    answer = await local.complete(ask("What is the capital of France?", max_tokens=5))
    assert answer.finish_reason == "length"
    assert time.perf_counter() - began < 5, "the cancelled answer was still being made"


@pytest.mark.assets
@needs_weights
async def test_a_server_that_dies_is_a_fault_of_the_connection(local: Backend) -> None:
    pid = server_of(local).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(BackendFault) as raised:
        await local.complete(ask("Well?"))
    assert raised.value.kind == "connection"


@pytest.mark.assets
@needs_weights
async def test_no_process_is_left(local: Backend) -> None:
    pid = server_of(local).pid
    assert pid is not None
    assert alive(pid)
    await local.aclose()
    assert not alive(pid)
    await local.aclose()
    await local.start()  # and again
    assert (await local.complete(ask("Well?"))).text


@pytest.mark.assets
@needs_weights
def test_it_ends_with_the_process_that_started_it() -> None:
    code = (
        "import asyncio, os\n"
        "from kamebench.llm import open_backend\n"
        "async def main():\n"
        "    backend = open_backend('local')\n"
        "    await backend.start()\n"
        "    print(backend._inner._server.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    pid = int(killed.stdout)
    for _ in range(100):
        if not alive(pid):
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the server outlived the process that started it")


async def test_weights_that_cannot_be_loaded_are_a_fault_with_the_servers_words(tmp_path: Path) -> None:
    weights = tmp_path / "broken.gguf"
    weights.write_bytes(b"not a model")
    backend = LocalBackend(LocalOptions(start_s=30), weights)
    with pytest.raises(BackendFault, match=r"ended with status.*last words") as raised:
        await backend.start()
    assert (raised.value.kind, raised.value.party) == ("start", "backend")
    await backend.aclose()


async def test_a_server_that_is_not_ready_in_time_is_ended() -> None:
    server = LocalServer(Path("none"), 1)
    server._command = [sys.executable, "-c", "import time; time.sleep(60)"]
    task = asyncio.create_task(server.start(0.3))
    await asyncio.sleep(0.1)
    pid = server.pid
    assert pid is not None
    with pytest.raises(BackendFault, match="not ready within"):
        await task
    assert not alive(pid)


async def test_cancelling_a_start_ends_the_server() -> None:
    backend = LocalBackend(LocalOptions(), Path(__file__))
    task = asyncio.create_task(backend.start())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises((asyncio.CancelledError, BackendFault)):
        await task
    await backend.aclose()
