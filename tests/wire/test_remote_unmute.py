"""The Unmute adapter against a server of the tests that speaks its protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from kamebench.errors import BadConfig
from kamebench.events import Heard, StageMark
from kamebench.systems import Setup
from kamebench.systems.unmute import create
from tests.wire.remote_parts import UnmuteServer, call, serving

PATH = "/v1/realtime"


def transcription(word: str) -> dict[str, object]:
    return {"type": "conversation.item.input_audio_transcription.delta", "delta": word, "start_time": 0.0}


async def test_greeting_is_unprompted_and_an_answer_is_not(tmp_path: Path) -> None:
    server = UnmuteServer({})
    server.script = {
        4: [{"type": "input_audio_buffer.speech_started"}, transcription("hello"), transcription("you")],
        8: [{"type": "input_audio_buffer.speech_stopped"}, {"type": "response.created", "response": {}}],
        9: [
            {"type": "response.text.delta", "delta": "Hi"},
            {"type": "response.text.delta", "delta": "there"},
        ],
        10: [{"type": "response.audio.done"}, {"type": "response.created", "response": {}}],
    }
    async with serving(PATH, server) as url:
        got = await call(create(Setup({"url": url, "voice": "some"})), tmp_path, 15, wait_s=0.2)
    assert got.error is None
    assert server.protocol == "realtime"
    assert [u["voice"] for u in server.updates] == ["some"]
    assert [e.stage for e in got.events if isinstance(e, StageMark)] == [
        "response_unprompted",
        "response_done",
        "speech_started",
        "speech_end",
        "response_created",
        "response_done",
        "response_unprompted",
    ]
    assert [(e.text, e.final) for e in got.events if isinstance(e, Heard)] == [
        ("hello", False),
        ("hello you", False),
        ("hello you", True),
    ]
    assert got.text == " Hi there"
    assert got.samples == 3 * 1920


async def test_late_reordered_and_strange_events_are_survived(tmp_path: Path) -> None:
    server = UnmuteServer({}, greet=False)
    first, second = server.audio(), server.audio()
    server.script = {
        2: [{"type": "response.audio.done"}, second, first],
        3: [{"type": "unmute.interrupted_by_vad"}, server.audio()],
        4: ["not json", "[1, 2]", {"type": "new.event"}, {"no": "type"}],
        5: [{"type": "response.audio.delta", "delta": "*no base64*"}],
        6: [{"type": "error", "error": {"type": "warning", "message": "slow"}}],
    }
    async with serving(PATH, server) as url:
        got = await call(create(Setup({"url": url})), tmp_path, 12, wait_s=0.2)
    assert got.error is None
    assert got.samples > 0
    stages = [e.stage for e in got.events if isinstance(e, StageMark)]
    assert "interrupted" in stages
    assert "server_warning" in stages
    assert "unexpected:not_an_event:3" in stages
    assert "unexpected:new.event:1" in stages
    assert "unexpected:damaged_base64:1" in stages


@pytest.mark.parametrize(
    ("message", "kind"),
    [("Too many people are connected! Please try again later.", "busy"), ("It broke.", "server_error")],
)
async def test_a_fatal_error_of_the_server_is_its_fault(tmp_path: Path, message: str, kind: str) -> None:
    error: dict[str, object] = {"type": "error", "error": {"type": "fatal", "message": message}}
    async with serving(PATH, UnmuteServer({3: [error]})) as url:
        got = await call(create(Setup({"url": url})), tmp_path, 30)
    assert got.error is not None
    assert (got.error.party, got.error.kind) == ("system", kind)
    assert len(got.faults) == 1


async def test_a_full_server_holds_the_upgrade_back_and_is_busy(tmp_path: Path) -> None:
    free = asyncio.Event()

    async def full(request: web.Request) -> web.StreamResponse:
        await free.wait()
        return web.Response(status=500)

    async with serving(PATH, full) as url:
        got = await call(create(Setup({"url": url, "busy_wait_s": 0.2})), tmp_path, 1)
        free.set()
    assert got.error is not None
    assert got.error.kind == "busy"


async def test_an_unhealthy_server_that_closes_is_broken(tmp_path: Path) -> None:
    async def closes(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("realtime",))
        await socket.prepare(request)
        await socket.close(code=1011)
        return socket

    async with serving(PATH, closes) as url:
        got = await call(create(Setup({"url": url})), tmp_path, 1)
    assert got.error is not None
    assert got.error.kind == "closed"


def test_what_it_can_do() -> None:
    can = create(Setup({})).capabilities
    assert (can.idle_prompt_s, can.paces()) == (7.0, ("realtime",))
    with pytest.raises(BadConfig, match="started"):
        create(Setup({}, None, "gpt-4.1"))
