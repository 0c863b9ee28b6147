"""Names of back-ends, and the small back-ends that need no network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kamebench import llm
from kamebench.clock import VirtualClock
from kamebench.errors import BackendFault, BadConfig, UnknownName
from kamebench.llm import open_backend, resolve
from kamebench.llm.base import (
    Backend,
    ChatRequest,
    Completion,
    Message,
    StreamEnd,
    TextChunk,
    TurnContext,
    Usage,
    close_stream,
)
from kamebench.llm.retry import complete_with_retries
from kamebench.llm.scripted import ScriptedBackend, Step, say

MS = 1_000_000


def ask(text: str = "Well?", context: TurnContext | None = None) -> ChatRequest:
    return ChatRequest((Message("user", text),), context=context)


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("gpt-4.1", "openai", "gpt-4.1"),
        ("gpt-4.1-nano", "openai", "gpt-4.1-nano"),
        ("o3", "openai", "o3"),
        ("openai:ft:gpt-4.1:me", "openai", "ft:gpt-4.1:me"),
        ("claude-opus-4-1", "anthropic", "claude-opus-4-1"),
        ("anthropic:claude-next", "anthropic", "claude-next"),
        ("gemini-2.5-flash", "google", "gemini-2.5-flash"),
        ("openai-compatible:a:8b@http://h/v1", "openai-compatible", "a:8b@http://h/v1"),
        ("local", "local", ""),
        ("replay:some/folder", "replay", "some/folder"),
    ],
)
def test_a_name_tells_provider_and_model(name: str, provider: str, model: str) -> None:
    assert resolve(name) == (provider, model)


@pytest.mark.parametrize(
    ("name", "near"), [("gtp-4.1", "gpt-4.1"), ("loacl", "local"), ("clause-opus-4-1", "claude-opus-4-1")]
)
def test_an_unknown_name_comes_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UnknownName, match=f"Did you mean '{near}'"):
        open_backend(name)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("openai", {}, "name a model"),
        ("anthropic:", {}, "name a model"),
        ("gpt-4.1", {"first_token_s": 0}, "first_token_s"),
        ("gpt-4.1", {"colour": "red"}, r"colour.*Options: between_chunks_s"),
        ("openai-compatible:llama3", {}, "name a model and an address"),
        ("openai-compatible:@http://h/v1", {}, "name a model and an address"),
        ("local:nowhere.gguf", {}, "no such file"),
        ("local", {"threads": 0}, "threads"),
        ("scripted", {}, "say what it answers"),
        ("reference", {"speed": 2}, "Options: none"),
    ],
)
def test_what_cannot_be_opened_is_refused_at_once(name: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        open_backend(name, **options)


def test_a_description_names_the_host_and_nothing_secret() -> None:
    described = open_backend("openai-compatible:m@http://me:secret@example.org:8000/v1").describe()
    assert described["host"] == "example.org"
    assert "secret" not in str(described)


def test_every_entry_can_be_loaded() -> None:
    for name in llm.BACKENDS.names():
        assert callable(llm.BACKENDS.load(name))


async def test_the_reference_speaks_the_turns_own_answer_in_words() -> None:
    backend = open_backend("reference")
    context = TurnContext("task", "q1", "stem", 2, ("One.", "Thirty six,\nin all."))
    items = [item async for item in backend.stream(ask(context=context))]
    texts = [item.text for item in items if isinstance(item, TextChunk)]
    assert texts == ["Thirty", " six,", "\nin", " all."]
    assert items[-1] == StreamEnd("stop", Usage(None, 4))


@pytest.mark.parametrize(
    ("context", "said"),
    [
        (None, "outside of a task's turn"),
        (TurnContext("basics", "q7", "stem", 2, ("One.",)), r"'basics', question q7, turn 2"),
        (TurnContext("basics", "q7", "stem", 1, (None,)), r"'basics', question q7, turn 1"),
    ],
)
async def test_without_a_reference_the_question_is_named(context: TurnContext | None, said: str) -> None:
    with pytest.raises(BackendFault, match=said) as raised:
        await open_backend("reference").complete(ask(context=context))
    assert (raised.value.kind, raised.value.retryable) == ("no_reference", False)


async def test_a_script_keeps_its_times() -> None:
    clock = VirtualClock()
    backend = ScriptedBackend([[Step(0.2, "a"), Step(0.3, "b")], say("x y", 0.1, 0.05)], clock)
    times: list[int] = []

    async def run() -> None:
        for _ in range(3):
            began = clock.now_ns()
            stream = backend.stream(ask())
            while isinstance(await anext(stream), TextChunk):
                times.append((clock.now_ns() - began) // MS)
            await close_stream(stream)

    await clock.run(run())
    assert times == [200, 500, 100, 150, 100, 150]
    assert len(backend.requests) == 3
    assert backend.cancelled == []


async def test_a_script_notes_who_left_early_and_fails_on_demand() -> None:
    fault = BackendFault("gone", kind="connection", retryable=True)
    backend = ScriptedBackend([say("a b c"), [Step(0, "a"), Step(0, fault)]])
    stream = backend.stream(ask())
    await anext(stream)
    await close_stream(stream)
    with pytest.raises(BackendFault, match="gone"):
        await backend.complete(ask())
    assert backend.cancelled == [0]


class Flaky(Backend):
    """Fails with the given faults in turn, then answers."""

    name, family = "flaky", "scripted"

    def __init__(self, *faults: BackendFault | Exception) -> None:
        self.faults, self.asked = list(faults), 0

    async def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        self.asked += 1
        if self.faults:
            raise self.faults.pop(0)
        yield TextChunk("Fine.")
        yield StreamEnd("stop")


def busy(retry_after_s: float | None = None, *, retryable: bool = True) -> BackendFault:
    fault = BackendFault("busy", kind="rate_limit", retryable=retryable)
    fault.retry_after_s = retry_after_s
    return fault


async def test_what_may_succeed_later_is_asked_again() -> None:
    backend = Flaky(busy(), busy(), busy())
    answer = await complete_with_retries(backend, ask(), attempts=4, wait_s=0.001)
    assert answer == Completion("Fine.", "stop", Usage())
    assert backend.asked == 4


async def test_retries_end_with_the_last_fault() -> None:
    backend = Flaky(*(busy() for _ in range(9)))
    with pytest.raises(BackendFault, match="busy"):
        await complete_with_retries(backend, ask(), attempts=3, wait_s=0.001)
    assert backend.asked == 3


@pytest.mark.parametrize("fault", [busy(retryable=False), RuntimeError("a bug")])
async def test_what_cannot_succeed_is_not_asked_again(fault: Exception) -> None:
    backend = Flaky(fault)
    with pytest.raises(type(fault)):
        await complete_with_retries(backend, ask(), wait_s=0.001)
    assert backend.asked == 1


async def test_a_retry_waits_as_long_as_was_asked_for() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await complete_with_retries(Flaky(busy(0.08)), ask(), wait_s=0.0)
    assert loop.time() - began >= 0.08


async def test_a_wait_longer_than_there_is_time_is_not_begun() -> None:
    backend = Flaky(busy(3600.0))
    began = asyncio.get_running_loop().time()
    with pytest.raises(BackendFault, match="busy"):
        await complete_with_retries(backend, ask(), max_seconds=1.0)
    assert asyncio.get_running_loop().time() - began < 0.5
    assert backend.asked == 1


ROUTER = """
default = "scripted:the default"
[routes]
reasoning = "scripted:thought"
stem = "scripted:science"
[words]
stem = ["quark"]
"""


@pytest.fixture
def router(tmp_path: Path) -> Backend:
    (tmp_path / "table.toml").write_text(ROUTER)
    return open_backend(f"router:{tmp_path / 'table.toml'}")


async def test_a_known_category_decides(router: Backend) -> None:
    answers = []
    for category in ("stem", "reasoning", "humanities"):
        context = TurnContext("task", "q", category, 1)
        answers.append((await router.complete(ask("A quark?", context))).text)
    assert answers == ["science", "thought", "the default"]
    assert router.describe()["decisions"] == {
        "known: humanities": 1,
        "known: reasoning": 1,
        "known: stem": 1,
    }


async def test_an_unknown_category_is_guessed_and_the_guess_logged(
    router: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kamebench.llm.router")
    assert (await router.complete(ask("What is a QUARK in physics?"))).text == "science"
    assert (await router.complete(ask("Who is older, if Ann is older than Bob?"))).text == "thought"
    assert (await router.complete(ask("Hello there."))).text == "the default"
    assert [record.message for record in caplog.records] == [
        "guessed category 'stem' from ['physics', 'quark']",
        "guessed category 'reasoning' from ['if', 'who is', 'older']",
        "guessed category 'default' from no known word",
    ]
    assert router.describe()["decisions"]["guessed: stem"] == 1


async def test_cancelling_reaches_the_routed_back_end(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('default = "scripted:a b c"\n[routes]\nstem = "scripted:a b c"\n')
    router = open_backend(f"router:{tmp_path / 't.toml'}")
    stream = router.stream(ask())
    await anext(stream)
    await close_stream(stream)
    (row,) = router.usage().values()
    assert (row["requests"], row["cancelled"]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default = 3", "default"),
        ("default = ", "not TOML"),
        ('default = "reference"', "routes"),
        ('default = "reference"\n[routes]\nstem = "local"\n[rules]', "rules"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(BadConfig, match=said):
        open_backend(f"router:{tmp_path / 't.toml'}")


def test_a_table_with_an_unknown_back_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('default = "reference"\n[routes]\nstem = "refrence"\n')
    with pytest.raises(UnknownName, match="Did you mean 'reference'"):
        open_backend(f"router:{tmp_path / 't.toml'}")
