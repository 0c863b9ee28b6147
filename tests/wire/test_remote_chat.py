"""Adapters of /api/chat against a server of the tests: busy, broken, lost, and the server's own log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from aiohttp import web

from kamebench.errors import BadConfig
from kamebench.events import Fault, StageMark
from kamebench.oracle import log as oracle_log
from kamebench.oracle import server_log
from kamebench.oracle.log import LogWriter
from kamebench.oracle.rebuild import last_injected, rebuild_stream
from kamebench.oracle.server_log import Entry, SessionSpan
from kamebench.systems import Setup
from kamebench.systems.kame_server import create as create_kame
from kamebench.systems.kame_server import load_tokenizer
from kamebench.systems.moshi_server import create as create_moshi
from kamebench.systems.wire import websocket_url
from tests.tiny_models import TEXT_CARD, write_tokenizer
from tests.wire.remote_parts import ChatServer, call, serving

PATH = "/api/chat"


def moshi(url: str, **options: object) -> Setup:
    return Setup({"url": url, **options})


async def test_audio_and_text_come_back(tmp_path: Path) -> None:
    server = ChatServer()
    async with serving(PATH, server) as url:
        got = await call(create_moshi(moshi(url)), tmp_path, 20, wait_s=0.2)
    assert got.error is None
    assert server.received == 20 * 1920
    assert got.samples == 20 * 1920
    assert got.text == "".join(f" w{n}" for n in range(1, 21))


async def test_strange_late_and_reordered_messages_are_survived_and_counted(tmp_path: Path) -> None:
    oddities = (b"", b"\x07what", "text", b"\x01not ogg at all", b"\x02\xff\xfe", b"\x00")
    server = ChatServer(oddities=oddities, before=(b"\x01early", b"\x02early"))
    async with serving(PATH, server) as url:
        got = await call(create_moshi(moshi(url)), tmp_path, 20, wait_s=0.2)
    assert got.error is None
    assert got.samples >= 19 * 1920
    marks = {e.stage for e in got.events if isinstance(e, StageMark)}
    assert marks == {
        "unexpected:before_handshake:2",
        "unexpected:not_binary:2",
        "unexpected:kind_7:1",
        "unexpected:kind_0:1",
        "unexpected:damaged_opus:1",
    }


async def test_a_lost_connection_is_a_fault_and_the_next_session_connects_anew(tmp_path: Path) -> None:
    server = ChatServer(hang_up_after=5)
    async with serving(PATH, server) as url:
        system = create_moshi(moshi(url))
        lost = await call(system, tmp_path, 40)
        server.hang_up_after = None
        again = await call(system, tmp_path, 10, wait_s=0.1)
    assert lost.error is not None
    assert (lost.error.party, lost.error.kind, lost.error.retryable) == ("system", "disconnected", True)
    assert len(lost.faults) == 1
    assert again.error is None
    assert again.samples == 10 * 1920
    assert server.sessions == 2


async def test_503_is_busy_and_waited_for(tmp_path: Path) -> None:
    server = ChatServer()
    server.busy = True
    async with serving(PATH, server) as url:
        refused = await call(
            create_kame(Setup({"url": url, "busy_wait_s": 0.2}, None, "gpt-4.1")), tmp_path, 1
        )
        server.busy = False
        accepted = await call(create_kame(Setup({"url": url})), tmp_path, 1, wait_s=0.1)
    assert refused.error is not None
    assert (refused.error.kind, refused.error.retryable) == ("busy", True)
    assert [type(e) for e in refused.events] == [Fault]
    assert accepted.error is None


async def test_no_handshake_is_busy(tmp_path: Path) -> None:
    async with serving(PATH, ChatServer(shake=False)) as url:
        got = await call(create_moshi(moshi(url, busy_wait_s=0.2)), tmp_path, 1)
    assert got.error is not None
    assert got.error.kind == "busy"
    assert "busy_wait_s" in str(got.error)


async def test_broken_servers_are_not_busy(tmp_path: Path) -> None:
    async def not_found(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404)

    async def hangs_up(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.close(code=1011)
        return socket

    async with serving(PATH, not_found) as url:
        missing = await call(create_moshi(moshi(url)), tmp_path, 1)
    async with serving(PATH, hangs_up) as url:
        crashed = await call(create_moshi(moshi(url)), tmp_path, 1)
    gone = await call(create_moshi(moshi(url, attempts=2)), tmp_path, 1)
    errors = [missing.error, crashed.error, gone.error]
    assert [(e.kind, e.retryable) for e in errors if e] == [
        ("refused", False),
        ("closed", True),
        ("unreachable", True),
    ]


async def test_waiting_for_a_busy_server_makes_no_frame_late(tmp_path: Path) -> None:
    """The stream clock stands still until the handshake."""
    server = ChatServer()
    server.busy = True

    async def frees_itself(request: web.Request) -> web.StreamResponse:
        answer = await server(request)
        server.busy = False
        return answer

    async with serving(PATH, frees_itself) as url:
        began = time.monotonic()
        got = await call(create_moshi(moshi(url, busy_wait_s=5.0)), tmp_path, 3, wait_s=0.1)
        took_s = time.monotonic() - began
    assert took_s > 0.5
    assert min(e.t_ns for e in got.events) < 300_000_000


@pytest.mark.parametrize("name", ["claude-opus-4-1", "local", "gpt-4.1-nano"])
def test_another_backend_than_the_servers_is_refused(name: str) -> None:
    with pytest.raises(BadConfig, match="fixed"):
        create_kame(Setup({}, None, name))


def test_a_backend_for_moshi_is_refused() -> None:
    with pytest.raises(BadConfig, match="no back-end"):
        create_moshi(Setup({}, None, "gpt-4.1"))


def test_addresses() -> None:
    assert websocket_url("https://host:1/", PATH) == "wss://host:1/api/chat"
    assert websocket_url("ws://host/deep/chat", PATH) == "ws://host/deep/chat"
    for bad in ("host:8998", "ftp://host", "ws://"):
        with pytest.raises(BadConfig):
            websocket_url(bad, PATH)


def test_a_log_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="no such folder"):
        create_kame(Setup({"log_dir": str(tmp_path / "no")}))


async def test_the_injection_log_comes_from_the_servers_files(tmp_path: Path) -> None:
    """Written as the released server writes them: at the end of a request, sorted by that, in epoch time."""
    logs, out = tmp_path / "logs", tmp_path / "session"
    logs.mkdir()
    out.mkdir()

    def write() -> None:
        t0 = time.time_ns() // 1_000_000
        (logs / "asr_partial.txt").write_text(f"{t0 + 100}: what is\n{t0 + 700}: what is the capital\n")
        (logs / "user_words.txt").write_text(f"{t0 + 1500}: what is the capital of France\n")
        (logs / "llm_stream_words.txt").write_text(
            f"1000000000000: an old session\n{t0 + 560}: [CANCELLED] A guess\n{t0 + 1560}: Paris is it .\n"
        )
        (logs / "oracle_stream.txt").write_text(
            f"{t0 + 960}: [RESET]\n{t0 + 960}: A\n{t0 + 1040}: guess\n"
            f"{t0 + 2000}: [RESET]\n{t0 + 2000}: Paris\n{t0 + 2010}: is\n{t0 + 2080}: it\n{t0 + 2081}: .\n"
        )

    async with serving(PATH, ChatServer(on_session=write)) as url:
        options = {"url": url, "log_dir": str(logs), "log_settle_s": 0.05}
        got = await call(create_kame(Setup(options)), out, 40)
    assert got.error is None
    log = oracle_log.read(out)
    assert log.header.source == "kame-server"
    assert [(r.request_id, r.trigger, r.reason) for r in log.requests] == [
        (1, "what is", None),
        (2, "what is the capital of France", None),
    ]
    assert [(i.request_id, i.reset, i.text) for i in log.injections] == [
        (1, True, ""),
        (1, False, "A"),
        (1, False, " guess"),
        (2, True, ""),
        (2, False, "Paris"),
        (2, False, " is"),
        (2, False, " it"),
        (2, False, " ."),
    ]
    assert abs(log.injections[0].frame - 12) <= 1
    assert {n: end.outcome for n, end in log.ends.items()} == {1: "cancelled", 2: "completed"}
    last = last_injected(log)
    assert (last.text, last.completed, last.consumed) == ("Paris is it .", True, None)
    assert rebuild_stream(log) is None  # without the server's tokenizer
    assert (log.answer(1), log.answer(2)) == ("A guess", "Paris is it .")


async def test_a_server_that_wrote_no_log_is_said_so(tmp_path: Path) -> None:
    async with serving(PATH, ChatServer()) as url:
        options = {"url": url, "log_dir": str(tmp_path), "log_settle_s": 0.0}
        got = await call(create_kame(Setup(options)), tmp_path, 3)
    assert "no_server_log" in {e.stage for e in got.events if isinstance(e, StageMark)}
    assert last_injected(oracle_log.read(tmp_path)).text is None


def test_with_the_servers_tokenizer_the_consumed_stream_is_rebuilt(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    tokenizer, size = load_tokenizer(write_tokenizer(tmp_path))
    assert tokenizer is not None
    entries = {
        "llm_stream_words": [Entry(1_000_000, "the quick fox")],
        "oracle_stream": [
            Entry(1_000_800, "[RESET]"),
            Entry(1_000_800, "the quick"),
            Entry(1_002_400, "fox"),
        ],
        "user_words": [],
        "asr_partial": [],
    }
    writer = LogWriter(tmp_path, server_log.header(tokenizer, size, {}))
    log = server_log.convert(entries, SessionSpan(1_000_000, 40), writer, tokenizer)
    words = list(tokenizer.encode("the quick"))
    assert len(words) + len(tokenizer.encode("fox")) < 19  # all of 'fox' comes too late, at step 30
    expected = [3] * 40
    expected[10 : 11 + len(words)] = [TEXT_CARD, *words]
    assert [step.oracle for step in log.steps] == expected
    last = last_injected(log)
    assert (last.consumed, last.tokens) == (len(words), len(words) + len(tokenizer.encode("fox")))
    assert last.consumed_text == "the quick"


def test_a_tokenizer_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    with pytest.raises(BadConfig, match="tokenizer"):
        create_kame(Setup({"tokenizer": str(tmp_path / "no.model")}))
