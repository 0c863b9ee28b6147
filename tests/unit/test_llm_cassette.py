"""Cassettes: what was recorded comes again, by content and at its time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kamebench.clock import VirtualClock
from kamebench.errors import BackendFault, BadConfig
from kamebench.llm import open_backend
from kamebench.llm.base import (
    Backend,
    ChatRequest,
    Message,
    StreamEnd,
    TextChunk,
    TurnContext,
    Usage,
    close_stream,
)
from kamebench.llm.cassette import GRACE_S, RecordingBackend, ReplayBackend
from kamebench.llm.scripted import Script, ScriptedBackend, Step

MS = 1_000_000


def ask(text: str, *, temperature: float = 0.0, max_tokens: int | None = None) -> ChatRequest:
    return ChatRequest((Message("system", "Be brief."), Message("user", text)), temperature, max_tokens)


HELLO: Script = [
    Step(0.25, "Hel"),
    Step(0.05, "lo."),
    Step(0.1, StreamEnd("length", Usage(5, 2))),
]


def fault() -> BackendFault:
    error = BackendFault("too many", kind="rate_limit", retryable=True)
    error.retry_after_s = 3.0
    return error


async def timed(backend: Backend, request: ChatRequest, clock: VirtualClock) -> list[tuple[int, object]]:
    """Each item with the milliseconds since the request; a fault as (time, kind)."""
    began = clock.now_ns()
    items: list[tuple[int, object]] = []
    try:
        async for item in backend.stream(request):
            items.append(((clock.now_ns() - began) // MS, item))  # noqa: PERF401 kept when it fails
    except BackendFault as error:
        items.append(((clock.now_ns() - began) // MS, error.kind))
    return items


async def recorded(folder: Path, scripts: Sequence[Script], requests: Sequence[ChatRequest]) -> list[object]:
    clock = VirtualClock()
    backend = RecordingBackend(ScriptedBackend(scripts, clock), folder, clock)

    async def run() -> list[object]:
        return [await timed(backend, request, clock) for request in requests]

    return await clock.run(run())


async def replayed(folder: Path, requests: Sequence[ChatRequest]) -> list[object]:
    clock = VirtualClock()
    backend = ReplayBackend(folder, clock)

    async def run() -> list[object]:
        return [await timed(backend, request, clock) for request in requests]

    return await clock.run(run())


async def test_the_same_text_comes_at_the_same_times(tmp_path: Path) -> None:
    requests = [ask("One"), ask("Two")]
    then = await recorded(tmp_path, [HELLO, [Step(0.5, "Other.")]], requests)
    assert then[0] == [
        (250, TextChunk("Hel")),
        (300, TextChunk("lo.")),
        (400, StreamEnd("length", Usage(5, 2))),
    ]
    assert await replayed(tmp_path, requests) == then
    assert await replayed(tmp_path, requests[::-1]) == then[::-1], "played by content, not by order"


async def test_repeated_requests_play_in_turn_and_then_the_last_again(tmp_path: Path) -> None:
    scripts = [[Step(0.1, "first")], [Step(0.2, "second")]]
    then = await recorded(tmp_path, scripts, [ask("Same")] * 2)
    assert await replayed(tmp_path, [ask("Same")] * 4) == [then[0], then[1], then[1], then[1]]


async def test_a_fault_comes_again_as_it_was(tmp_path: Path) -> None:
    then = await recorded(tmp_path, [[Step(0.1, "So"), Step(0.2, fault())]], [ask("Q")])
    assert then == [[(100, TextChunk("So")), (300, "rate_limit")]]
    assert await replayed(tmp_path, [ask("Q")]) == then
    clock = VirtualClock()
    with pytest.raises(BackendFault) as raised:
        await clock.run(ReplayBackend(tmp_path, clock).complete(ask("Q")))
    assert (raised.value.retryable, raised.value.retry_after_s, raised.value.party) == (True, 3.0, "backend")


async def test_a_cancelled_stream_says_nothing_more_and_then_complains(tmp_path: Path) -> None:
    clock = VirtualClock()
    backend = RecordingBackend(ScriptedBackend([HELLO], clock), tmp_path, clock)

    async def cancel_early() -> None:
        stream = backend.stream(ask("Q"))
        await anext(stream)
        await close_stream(stream)

    await clock.run(cancel_early())
    (file,) = tmp_path.glob("*.json")
    assert json.loads(file.read_text())["outcome"] == "cancelled"
    again = await replayed(tmp_path, [ask("Q")])
    assert again == [[(250, TextChunk("Hel")), (250 + int(GRACE_S * 1000), "cassette_end")]]


async def test_a_cancelled_task_is_recorded_as_cancelled(tmp_path: Path) -> None:
    clock = VirtualClock()
    backend = RecordingBackend(ScriptedBackend([HELLO], clock), tmp_path, clock)

    async def cancel() -> None:
        task = asyncio.create_task(backend.complete(ask("Q")))
        await clock.sleep_until_ns(270 * MS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await clock.run(cancel())
    (file,) = tmp_path.glob("*.json")
    row = json.loads(file.read_text())
    assert (row["outcome"], [c["text"] for c in row["chunks"]]) == ("cancelled", ["Hel"])
    assert row["ended_ns"] == 270 * MS


async def test_the_turn_a_request_belongs_to_does_not_matter(tmp_path: Path) -> None:
    request = ask("Q")
    then = await recorded(tmp_path, [HELLO], [request])
    context = TurnContext("task", "q1", "stem", 1)
    moved = ChatRequest(request.messages, request.temperature, request.max_tokens, context)
    assert await replayed(tmp_path, [moved]) == then


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (ask("Tell me about the sea please"), "'sky' is now 'sea'"),
        (ask("Tell me about the sky please", temperature=1.0), "temperature was 0.0, is 1.0"),
        (ask("Tell me about the sky please", max_tokens=9), "max_tokens was None, is 9"),
        (ask("Tell me about  the sky please"), "white space"),
    ],
)
async def test_a_miss_shows_the_nearest_request(tmp_path: Path, other: ChatRequest, said: str) -> None:
    await recorded(tmp_path, [HELLO], [ask("Something else entirely"), ask("Tell me about the sky please")])
    clock = VirtualClock()
    with pytest.raises(BackendFault) as raised:
        await clock.run(ReplayBackend(tmp_path, clock).complete(other))
    assert (raised.value.kind, raised.value.retryable) == ("cassette_miss", False)
    assert said in str(raised.value)


async def test_recording_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = await recorded(tmp_path, [[Step(0.1, "first")]], [ask("Same")])
    second = await recorded(tmp_path, [[Step(0.2, "second")]], [ask("Same")])
    assert await replayed(tmp_path, [ask("Same")] * 2) == [*first, *second]


async def test_a_killed_recording_leaves_a_gap_that_is_skipped(tmp_path: Path) -> None:
    then = await recorded(tmp_path, [[Step(0.1, w)] for w in "abc"], [ask("Same")] * 3)
    sorted(tmp_path.glob("*.json"))[1].unlink()
    assert await replayed(tmp_path, [ask("Same")] * 2) == [then[0], then[2]]


async def test_by_name_and_described(tmp_path: Path) -> None:
    clock = VirtualClock()
    recording = open_backend("scripted:Good morning all.", record=tmp_path / "new", clock=clock, word_s=0.1)
    await clock.run(recording.complete(ask("Q")))
    assert recording.describe()["recorded"] is True
    replay = open_backend(f"replay:{tmp_path / 'new'}", clock=clock)
    assert (replay.name, replay.family) == ("scripted", "scripted")
    assert (await clock.run(replay.complete(ask("Q")))).text == "Good morning all."
    assert replay.describe()["recordings"] == 1
    assert not list((tmp_path / "new").glob("*.part")), "something half-written was left"


async def test_two_models_in_one_folder_must_be_told_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        inner = ScriptedBackend([[Step(0.0, name)]])
        inner.name = name
        await RecordingBackend(inner, tmp_path, VirtualClock()).complete(ask("Q"))
    with pytest.raises(BadConfig, match=r"one, two.*replay:MODEL@"):
        open_backend(f"replay:{tmp_path}")
    assert (await open_backend(f"replay:two@{tmp_path}").complete(ask("Q"))).text == "two"
    with pytest.raises(BadConfig, match="no recording of 'three'"):
        open_backend(f"replay:three@{tmp_path}")


async def test_what_cannot_be_played_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="no such folder"):
        open_backend(f"replay:{tmp_path / 'nowhere'}")
    with pytest.raises(BadConfig, match="holds no recording"):
        open_backend(f"replay:{tmp_path}")
    await recorded(tmp_path, [HELLO], [ask("Q")])
    (file,) = tmp_path.glob("*.json")
    file.write_text(file.read_text().replace("Be brief", "Be long"))
    with pytest.raises(BadConfig, match="hash"):
        open_backend(f"replay:{tmp_path}")
    file.write_text("{")
    with pytest.raises(BadConfig, match=file.name):
        open_backend(f"replay:{tmp_path}")
