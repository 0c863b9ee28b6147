"""A running KAME server as released: `moshi.server`'s protocol, 503 while another session is active.

Its back-end is fixed, and it sends no oracle over the wire. With `log_dir`, the folder of the server's own
--log-dir as seen from here, each session's injection log is taken from the server's files.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from pydantic import Field

from kamebench.errors import BadConfig
from kamebench.events import StageMark
from kamebench.oracle import server_log
from kamebench.oracle.log import LogWriter
from kamebench.oracle.loop import Tokenizer
from kamebench.systems import Setup, read_options
from kamebench.systems.base import Session, SessionContext, System
from kamebench.systems.moshi_server import ChatSession, ChatSystem, ServerOptions
from kamebench.systems.wire import Endpoint

SERVER_BACKEND = "gpt-4.1"


class KameServerOptions(ServerOptions):
    """`log_dir`: the server's --log-dir; `tokenizer`: the SentencePiece model it runs with, for tokens.

    `log_settle_s`: how long to wait after a session until the server has written its last line.
    """

    log_dir: Path | None = None
    tokenizer: Path | None = None
    log_settle_s: float = Field(default=1.0, ge=0)
    server_backend: str = SERVER_BACKEND


class KameServerSession(ChatSession):
    """A conversation that leaves an injection log where the server keeps one."""

    def __init__(self, context: SessionContext, endpoint: Endpoint, options: KameServerOptions) -> None:
        super().__init__(context, endpoint, "KAME server")
        self._options = options
        self._start_epoch_ms: int | None = None

    async def __aenter__(self) -> Session:
        session = await super().__aenter__()
        now_ms = time.time_ns() // 1_000_000
        self._start_epoch_ms = now_ms - self._context.clock.now_ns() // 1_000_000
        return session

    async def aclose(self) -> None:
        await super().aclose()
        if self._options.log_dir is None or self._start_epoch_ms is None:
            return
        span = server_log.SessionSpan(self._start_epoch_ms, self._frame + 1)
        self._start_epoch_ms = None
        # A request that the end of the session cancels is written after it.
        await asyncio.sleep(self._options.log_settle_s)
        files = server_log.read_folder(self._options.log_dir, span.start_epoch_ms)
        tokenizer, size = load_tokenizer(self._options.tokenizer)
        settings: dict[str, object] = {"backend": self._options.server_backend}
        writer = LogWriter(self._context.folder, server_log.header(tokenizer, size, settings))
        server_log.convert(files, span, writer, tokenizer)
        if not files["oracle_stream"]:
            now_ns = self._context.clock.now_ns()
            self._context.emit(StageMark(now_ns, self._frame, "no_server_log"))


def load_tokenizer(path: Path | None) -> tuple[Tokenizer | None, int | None]:
    """The SentencePiece model at a path and its vocabulary's size, or None twice.

    Raises:
        BadConfig: it cannot be read.
    """
    if path is None:
        return None, None
    import sentencepiece

    try:
        processor: Any = sentencepiece.SentencePieceProcessor(str(path))  # pyright: ignore[reportCallIssue]
    except (OSError, RuntimeError) as error:
        raise BadConfig(
            f"tokenizer '{path}': {error}. Give the SentencePiece model the server uses."
        ) from None
    return processor, int(processor.vocab_size())


class KameServerSystem(ChatSystem):
    def __init__(self, options: KameServerOptions) -> None:
        super().__init__(options, "KAME server")
        self._options = options

    def session(self, context: SessionContext) -> Session:
        return KameServerSession(context, self._endpoint, self._options)

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "backend": self._options.server_backend,
            "injection_log": self._options.log_dir is not None,
        }


def create(setup: Setup) -> System:
    """Refuses a back-end the server does not have, and a log folder that is not there.

    Raises:
        BadConfig
    """
    options = read_options(KameServerOptions, setup.options)
    own = options.server_backend
    if setup.backend_name not in (None, own, f"openai:{own}"):
        raise BadConfig(
            f"--backend {setup.backend_name}: the server's back-end is fixed ({own}). Use --backend {own}, "
            "or --system kame to run the model here with any back-end."
        )
    if options.log_dir is not None and not options.log_dir.is_dir():
        raise BadConfig(f"log_dir '{options.log_dir}': no such folder. Give the server's --log-dir.")
    load_tokenizer(options.tokenizer)
    return KameServerSystem(options)
