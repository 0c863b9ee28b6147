"""The embedded model: SmolLM2-135M-Instruct on this machine's CPU, served by llama.cpp on loopback.

Fluent and mostly wrong: it shows that everything works, not how good anything is. The server is a process of
its own (a crash or a busy interpreter lock there cannot touch the session's timing) and the client is the one
for every openai-compatible server.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, ClassVar

from pydantic import Field

from kamebench import assets
from kamebench.errors import BackendFault, BadConfig
from kamebench.llm.base import Backend, ChatRequest
from kamebench.llm.openai import CompatibleBackend, OpenAIOptions
from kamebench.llm.setup import BackendSetup, read_options
from kamebench.threads import call_in_thread

ASSET = "smollm2-135m"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_STOP_S = 5.0


class LocalOptions(OpenAIOptions):
    """threads: half the CPU's cores by default: llama.cpp's threads spin while they wait for each other, and
    slow down many times over when recognition or synthesis takes a core from them.
    start_s: how long loading may take. default_max_tokens: small models ramble.
    """

    threads: int = Field(default_factory=lambda: max(1, (os.cpu_count() or 2) // 2), ge=1)
    start_s: float = Field(default=60.0, gt=0)
    seed: int | None = 0
    default_max_tokens: int | None = 200


class LocalServer:
    """The server's process. It ends when its standard input closes, so it cannot outlive this process."""

    def __init__(self, model: Path, threads: int) -> None:
        self._command = [sys.executable, "-m", "kamebench.llm.local_server", str(model), str(threads)]
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self, limit_s: float) -> str:
        """Start it and wait until it is ready.

        Returns: its address.

        Raises:
            BackendFault: it ended, or was not ready in time.
        """
        process = self._process = self._spawn()
        assert process.stdout is not None
        address = asyncio.ensure_future(call_in_thread(process.stdout.readline))
        done, _ = await asyncio.wait({address}, timeout=limit_s)
        url = address.result().decode().strip() if done else ""
        if url:
            return url
        process.kill()
        await asyncio.wait({address})
        await call_in_thread(process.wait)
        why = f"ended with status {process.returncode}" if done else f"was not ready within {limit_s:g} s"
        said = self._last_words()
        await self.stop()
        raise BackendFault(f"the embedded model's server {why}. {said}".rstrip(), kind="start")

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 lives as long as the process
        return subprocess.Popen(  # noqa: S603 this interpreter, no shell
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    async def stop(self) -> None:
        """End the process: closed input, then a signal. May be called twice."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            await call_in_thread(lambda: _wait(process))
            process.stdout.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return "Its last words: " + " / ".join(lines[-3:]) if lines else ""


def _wait(process: subprocess.Popen[bytes]) -> None:
    for end in (process.terminate, process.kill):
        try:
            process.wait(_STOP_S)
            return
        except subprocess.TimeoutExpired:
            end()
    process.wait()


class LocalBackend(CompatibleBackend):
    """SmolLM2 behind its own server."""

    provider: ClassVar[str] = "The embedded model"
    family = "local"

    def __init__(self, options: LocalOptions, weights: Path | None = None) -> None:
        super().__init__("smollm2-135m-instruct", "http://127.0.0.1", options)
        self._weights = weights
        self._threads, self._start_s = options.threads, options.start_s
        self._server: LocalServer | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        async with self._starting:
            if self._server is not None:
                return
            model = self._weights or await call_in_thread(lambda: assets.fetch(ASSET)) / MODEL_FILE
            server = LocalServer(model, self._threads)
            try:
                self._url = f"{await server.start(self._start_s)}/v1"
            except BaseException:
                await server.stop()
                raise
            self._server = server
            await super().start()

    async def aclose(self) -> None:
        await super().aclose()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def _settings(self, request: ChatRequest) -> dict[str, Any]:
        # A prompt continued from a cached one is computed in other batches, and then rounds differently.
        return {**super()._settings(request), "extra_body": {"cache_prompt": False}}

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        if self._weights is None:
            described["weights_sha256"] = assets.sha256s(ASSET)[f"{ASSET}/{MODEL_FILE}"]
        return described


def create(setup: BackendSetup) -> Backend:
    """The embedded model, or with `local:FILE.gguf` any other that llama.cpp loads.

    Raises:
        BadConfig: there is no such file.
    """
    weights = Path(setup.model) if setup.model else None
    if weights is not None and not weights.is_file():
        raise BadConfig(f"back-end 'local:{setup.model}': there is no such file. Name a GGUF file.")
    return LocalBackend(read_options(LocalOptions, setup, "local"), weights)
