"""One contract for every provider: the real SDKs against servers that speak their protocols, and fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from kamebench.errors import BackendFault, MissingKey
from kamebench.llm import open_backend
from kamebench.llm.base import Backend, ChatRequest, Message, StreamEnd, TextChunk, Usage, close_stream
from tests.wire.llm_servers import DIALECTS, Dialect, Piece, Reply, WireServer, wire_server

REQUEST = ChatRequest(
    (
        Message("system", "Be brief."),
        Message("user", "Hello?"),
        Message("assistant", "Hi."),
        Message("user", "Go on."),
    ),
    temperature=0.5,
    max_tokens=64,
)
SHORT_S = 0.06  # a limit that a test waits for


@dataclass
class Wired:
    """A server, how it speaks, and a back-end that is connected to it."""

    dialect: Dialect
    server: WireServer
    backend: Backend

    def reply(self, *pieces: Piece) -> None:
        self.server.replies.append(Reply(pieces))


@pytest.fixture(params=list(DIALECTS))
async def wired(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wired]:
    dialect = DIALECTS[request.param]
    monkeypatch.setenv(dialect.key_variable, "key-of-the-test")
    limits = getattr(request.function, "limits", {"first_token_s": 10.0, "between_chunks_s": 10.0})
    async with wire_server() as server:
        backend = open_backend(f"{dialect.provider}:{dialect.model}", url=server.url + dialect.base, **limits)
        await backend.start()
        yield Wired(dialect, server, backend)
        await backend.aclose()


async def read(backend: Backend, request: ChatRequest = REQUEST) -> tuple[list[str], StreamEnd]:
    texts: list[str] = []
    end = None
    async for item in backend.stream(request):
        assert end is None, "something came after the end"
        if isinstance(item, StreamEnd):
            end = item
        else:
            assert item.text, "an empty chunk"
            texts.append(item.text)
    assert end is not None, "the stream had no end"
    return texts, end


async def fault(wired: Wired, *, texts: list[str] | None = None) -> BackendFault:
    """The fault of one request, after exactly `texts`; nothing may have been asked twice."""
    came: list[str] = []
    before = len(wired.server.asked)
    with pytest.raises(BackendFault) as raised:
        async for item in wired.backend.stream(REQUEST):
            assert isinstance(item, TextChunk)
            came.append(item.text)
    assert came == (texts or [])
    assert len(wired.server.asked) <= before + 1, "asked again silently"
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None, "an SDK's exception travels along"
    return raised.value


async def test_chunks_come_as_sent_with_the_end_and_the_usage(wired: Wired) -> None:
    wired.reply(*wired.dialect.answer("Hel", "lo ", "there."))
    texts, end = await read(wired.backend)
    assert texts == ["Hel", "lo ", "there."]
    assert end == StreamEnd("stop", Usage(11, 7))


async def test_what_is_asked_reaches_the_provider(wired: Wired) -> None:
    wired.reply(*wired.dialect.answer("Yes."))
    await wired.backend.complete(REQUEST)
    asked = wired.server.asked[0]
    key = asked.headers[wired.dialect.key_header]
    assert key.removeprefix("Bearer ") == "key-of-the-test"
    body = asked.body
    turns = [("user", "Hello?"), ("assistant", "Hi."), ("user", "Go on.")]
    match wired.dialect.provider:
        case "anthropic":
            assert body["system"] == "Be brief."
            assert [(m["role"], m["content"]) for m in body["messages"]] == turns
            assert (body["temperature"], body["max_tokens"], body["stream"]) == (0.5, 64, True)
        case "google":
            assert asked.path.endswith("/models/gemini-2.5-flash:streamGenerateContent?alt=sse")
            assert body["systemInstruction"]["parts"][0]["text"] == "Be brief."
            roles = {"model": "assistant", "user": "user"}
            assert [(roles[c["role"]], c["parts"][0]["text"]) for c in body["contents"]] == turns
            config = body["generationConfig"]
            assert (config["temperature"], config["maxOutputTokens"]) == (0.5, 64)
        case provider:
            assert asked.path == "/v1/chat/completions"
            messages = [(m["role"], m["content"]) for m in body["messages"]]
            assert messages == [("system", "Be brief."), *turns]
            limit = "max_completion_tokens" if provider == "openai" else "max_tokens"
            assert (body["temperature"], body[limit], body["stream"]) == (0.5, 64, True)


async def test_a_chunk_is_passed_on_before_the_next_one_is_sent(wired: Wired) -> None:
    d = wired.dialect
    wired.reply(d.opening(), d.text("first "), "hang")
    stream = wired.backend.stream(REQUEST)
    assert await anext(stream) == TextChunk("first ")
    await close_stream(stream)


async def test_a_slow_first_token_is_waited_for(wired: Wired) -> None:
    wired.reply(wired.dialect.opening(), 0.1, *wired.dialect.answer("Late.")[1:])
    began = time.perf_counter()
    assert (await read(wired.backend))[0] == ["Late."]
    assert time.perf_counter() - began >= 0.1


async def test_a_character_may_be_split_between_packets(wired: Wired) -> None:
    said = "Grüße, 世界 🌍!"
    stream = b"".join(piece for piece in wired.dialect.answer(said) if isinstance(piece, bytes))
    wired.reply(*(stream[n : n + 1] for n in range(len(stream))))
    assert (await read(wired.backend))[0] == [said]


async def test_empty_and_null_content_are_no_chunks(wired: Wired) -> None:
    d = wired.dialect
    wired.reply(d.opening(), d.empty(), d.text("Now."), d.empty(), d.closing())
    assert await read(wired.backend) == (["Now."], StreamEnd("stop", Usage(11, 7)))


async def test_an_empty_answer_is_an_answer(wired: Wired) -> None:
    wired.reply(wired.dialect.opening(), wired.dialect.closing())
    completion = await wired.backend.complete(REQUEST)
    assert (completion.text, completion.finish_reason) == ("", "stop")


@pytest.mark.parametrize("finish", ["length", "refusal"])
async def test_why_an_answer_ended_is_told(wired: Wired, finish: str) -> None:
    d = wired.dialect
    wired.reply(d.opening(), d.text("Well"), d.closing(finish))  # type: ignore[arg-type]
    texts, end = await read(wired.backend)
    assert (texts, end.finish_reason) == (["Well"], finish)


@pytest.mark.parametrize(
    ("status", "kind", "retryable", "party"),
    [
        (400, "bad_request", False, "kamebench"),
        (401, "auth", False, "kamebench"),
        (404, "not_found", False, "kamebench"),
        (429, "rate_limit", True, "backend"),
        (500, "server", True, "backend"),
        (529, "overloaded", True, "backend"),
    ],
)
async def test_an_error_answer_says_whose_fault_it_is(
    wired: Wired, status: int, kind: str, retryable: bool, party: str
) -> None:
    body = wired.dialect.error(status, "the provider's own words")
    wired.server.replies.append(Reply([body], status, content_type="application/json"))
    error = await fault(wired)
    assert (error.kind, error.retryable, error.party) == (kind, retryable, party)
    assert error.retry_after_s is None
    assert str(status) in str(error)
    assert wired.dialect.model in str(error)
    assert len(wired.server.asked) == 1


async def test_an_error_answer_in_no_known_form(wired: Wired) -> None:
    wired.server.replies.append(Reply([b"<html>Bad gateway</html>"], 502, content_type="text/html"))
    error = await fault(wired)
    assert (error.kind, error.retryable, error.party) == ("server", True, "backend")


async def test_how_long_to_wait_is_passed_on(wired: Wired) -> None:
    wired.server.replies.append(
        Reply([wired.dialect.error(429)], 429, {"Retry-After": "17"}, content_type="application/json")
    )
    assert (await fault(wired)).retry_after_s == 17


async def test_an_error_in_mid_stream(wired: Wired) -> None:
    d = wired.dialect
    wired.reply(d.opening(), d.text("So"), 0.01, d.error_within())
    error = await fault(wired, texts=["So"])
    assert error.kind in ("overloaded", "server")
    assert (error.retryable, error.party) == (True, "backend")


async def test_a_connection_reset_before_the_answer(wired: Wired) -> None:
    wired.server.replies.append(Reply(["reset"], status=0))
    error = await fault(wired)
    assert (error.kind, error.party, error.retryable) == ("connection", "network", True)


async def test_a_connection_reset_in_mid_stream(wired: Wired) -> None:
    d = wired.dialect
    wired.reply(d.opening(), d.text("So"), 0.05, "reset")
    error = await fault(wired, texts=["So"])
    assert (error.kind, error.party, error.retryable) == ("connection", "network", True)


async def test_a_connection_closed_in_mid_stream(wired: Wired) -> None:
    d = wired.dialect
    wired.reply(d.opening(), d.text("So"), "eof")
    error = await fault(wired, texts=["So"])
    assert (error.kind, error.party, error.retryable) == ("connection", "network", True)


async def test_nobody_listens(wired: Wired) -> None:
    await wired.backend.aclose()
    d = wired.dialect
    backend = open_backend(f"{d.provider}:{d.model}", url="http://127.0.0.1:9" + d.base)
    began = time.perf_counter()
    error = await fault(Wired(d, wired.server, backend))
    await backend.aclose()
    assert (error.kind, error.party, error.retryable) == ("connection", "network", True)
    assert time.perf_counter() - began < 1.0, "it was tried again"


@pytest.mark.parametrize("garbage", [b'data: {"choi\n\n', b"data: \xff\xfe\x00\n\n", b"data: <html>\n\n"])
async def test_garbage_in_the_stream(wired: Wired, garbage: bytes) -> None:
    d = wired.dialect
    event = b"event: content_block_delta\n" if d.provider == "anthropic" else b""
    wired.reply(d.opening(), d.text("So"), 0.02, event + garbage, d.text("on"), d.closing())
    error = await fault(wired, texts=["So"])
    assert (error.kind, error.party, error.retryable) == ("protocol", "backend", True)


async def test_a_stream_without_its_end_is_no_answer(wired: Wired) -> None:
    wired.reply(wired.dialect.opening(), wired.dialect.text("So"))
    error = await fault(wired, texts=["So"])
    assert (error.kind, error.party) == ("protocol", "backend")


async def test_a_server_that_never_answers(wired: Wired) -> None:
    wired.server.replies.append(Reply(["hang"], status=0))
    error = await fault(wired)
    assert (error.kind, error.party, error.retryable) == ("timeout", "backend", True)
    await asyncio.wait_for(wired.server.client_left.wait(), 1)


test_a_server_that_never_answers.limits = {"first_token_s": SHORT_S}  # type: ignore[attr-defined]


async def test_a_stream_that_stalls(wired: Wired) -> None:
    d = wired.dialect
    wired.reply(d.opening(), d.text("So"), "hang")
    error = await fault(wired, texts=["So"])
    assert (error.kind, error.retryable) == ("timeout", True)
    await asyncio.wait_for(wired.server.client_left.wait(), 1)


test_a_stream_that_stalls.limits = {"between_chunks_s": SHORT_S}  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["task", "stream"])
async def test_cancelling_closes_the_connection_and_the_next_request_works(wired: Wired, how: str) -> None:
    d = wired.dialect
    wired.reply(d.opening(), d.text("So"), "hang")
    wired.reply(*d.answer("Again."))
    first = asyncio.Event()
    stream = wired.backend.stream(REQUEST)

    async def consume() -> None:
        async for _ in stream:
            first.set()

    if how == "task":
        task = asyncio.create_task(consume())
        await asyncio.wait_for(first.wait(), 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert await anext(stream) == TextChunk("So")
        await close_stream(stream)
    await asyncio.wait_for(wired.server.client_left.wait(), 1)
    assert (await read(wired.backend))[0] == ["Again."]


async def test_cancelling_before_the_first_token(wired: Wired) -> None:
    wired.server.replies.append(Reply(["hang"], status=0))
    task = asyncio.create_task(wired.backend.complete(REQUEST))
    while not wired.server.asked:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(wired.server.client_left.wait(), 1)


async def test_several_at_once_do_not_mix(wired: Wired) -> None:
    d = wired.dialect
    for n in range(8):
        wired.reply(d.opening(), 0.01, d.text(f"{n} "), 0.01, d.text(str(n)), d.closing())
    answers = await asyncio.gather(*(wired.backend.complete(REQUEST) for _ in range(8)))
    assert sorted(answer.text for answer in answers) == [f"{n} {n}" for n in range(8)]


async def test_what_was_asked_is_counted(wired: Wired) -> None:
    d = wired.dialect
    wired.reply(*d.answer("Yes."))
    wired.server.replies.append(Reply([d.error(500)], 500, content_type="application/json"))
    wired.reply(d.opening(), d.text("Nope, cut"), "hang")
    await wired.backend.complete(REQUEST)
    await fault(wired)
    stream = wired.backend.stream(REQUEST)
    await anext(stream)
    await close_stream(stream)
    (row,) = wired.backend.usage().values()
    assert (row["requests"], row["completed"], row["failed"], row["cancelled"]) == (3, 1, 1, 1)
    assert (row["input_tokens"], row["output_tokens"]) == (11, 7)
    assert (row["estimated_input_tokens"] > 0, row["estimated_output_tokens"]) == (True, 3)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
async def test_without_a_key_the_variable_is_named(provider: str) -> None:
    backend = open_backend(f"{provider}:{DIALECTS[provider].model}")
    with pytest.raises(MissingKey, match=DIALECTS[provider].key_variable):
        await backend.start()


async def test_a_local_server_needs_no_key() -> None:
    dialect = DIALECTS["openai-compatible"]
    async with wire_server() as server:
        server.replies.append(Reply(dialect.answer("Free.")))
        backend = open_backend(f"openai-compatible:llama3:8b@{server.url}/v1")
        assert (await backend.complete(REQUEST)).text == "Free."
        assert server.asked[0].body["model"] == "llama3:8b"
        await backend.aclose()


async def test_googles_own_words_on_how_long_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "key-of-the-test")
    info = (
        b'{"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED", "details": '
        b'[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s"}]}}'
    )
    async with wire_server() as server:
        server.replies.append(Reply([info], 429, content_type="application/json"))
        backend = open_backend("gemini-2.5-flash", url=server.url)
        with pytest.raises(BackendFault) as raised:
            await backend.complete(REQUEST)
        await backend.aclose()
    assert raised.value.retry_after_s == 3.5


async def test_googles_block_of_the_question_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "key-of-the-test")
    async with wire_server() as server:
        server.replies.append(Reply([b'data: {"promptFeedback": {"blockReason": "SAFETY"}}\r\n\r\n']))
        backend = open_backend("gemini-2.5-flash", url=server.url)
        completion = await backend.complete(REQUEST)
        await backend.aclose()
    assert (completion.text, completion.finish_reason) == ("", "refusal")


async def test_openais_refusal_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-test")
    refusal = (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{"refusal":"I cannot."},"finish_reason":null}]}\n\n'
    )
    dialect = DIALECTS["openai"]
    async with wire_server() as server:
        server.replies.append(Reply([refusal, dialect.closing()]))
        backend = open_backend("gpt-4.1", url=server.url + "/v1")
        completion = await backend.complete(REQUEST)
        await backend.aclose()
    assert (completion.text, completion.finish_reason) == ("I cannot.", "refusal")


@pytest.mark.parametrize(("model", "sent"), [("gpt-4.1", True), ("o3", False), ("gpt-5-mini", False)])
async def test_reasoning_models_get_no_temperature(
    monkeypatch: pytest.MonkeyPatch, model: str, sent: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-test")
    async with wire_server() as server:
        server.replies.append(Reply(DIALECTS["openai"].answer("Yes.")))
        backend = open_backend(model, url=server.url + "/v1")
        await backend.complete(REQUEST)
        await backend.aclose()
    assert ("temperature" in server.asked[0].body) == sent
    assert backend.describe()["send_temperature"] == sent
