"""A judge behind OpenAI's protocol on loopback, with the real SDK; the server fails at random points."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner

from kamebench.cli.score import command as score_command
from kamebench.errors import MissingKey
from kamebench.judge import score_run
from kamebench.judge.asking import Retries
from kamebench.judge.base import JudgeOptions
from kamebench.judge.limit import AdaptiveLimit
from kamebench.judge.model import ModelJudge
from kamebench.judge.prompts import Prompt
from kamebench.llm import open_backend
from kamebench.store import open_run
from tests.synthetic import Planted, make_run
from tests.unit.judge_parts import make_task

KEY = "sk-planted-0123456789abcdef"
PLAN = {
    name: [Planted(text=f"The answer {name} one."), Planted(text=f"The answer {name} two.")] for name in "abc"
}


@pytest.fixture(autouse=True)
def prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = "{question}|{answer}", "{question_1}|{answer_1}|{question_2}|{answer_2}"
    made = {
        name: Prompt(name, "Judge.", two if name.endswith("multi-turn") else one)
        for name in ("single-v1", "single-v1-multi-turn", "single-math-v1", "single-math-v1-multi-turn")
    }
    monkeypatch.setattr("kamebench.judge.prompts.published_prompts", lambda: made)
    monkeypatch.setattr("kamebench.judge.model.published_prompts", lambda: made)


def rating(content: str) -> int:
    """What the server's judge thinks: a function of the prompt alone."""
    return hashlib.sha256(content.encode()).digest()[0] % 10 + 1


class JudgeServer:
    """Answers `/v1/chat/completions`; of each request `faults` says what goes wrong with it."""

    def __init__(self, faults: Callable[[], str | None]) -> None:
        self._faults = faults
        self.seen: list[str | None] = []
        self.in_flight = self.most_in_flight = 0
        self.keys: set[str] = set()
        self.bodies: list[dict[str, Any]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            self.keys.add(request.headers["Authorization"])
            body = await request.json()
            self.bodies.append(body)
            fault = self._faults()
            self.seen.append(fault)
            return await self._answer(request, body["messages"][-1]["content"], fault)
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.Request, content: str, fault: str | None) -> web.StreamResponse:
        if fault is not None and fault.isdigit():
            headers = {"Retry-After": "0"} if fault == "429" else {}
            error = {"error": {"message": f"refused, your key was {KEY}", "type": "x", "code": None}}
            return web.json_response(error, status=int(fault), headers=headers)
        if fault == "reset":
            _reset(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        verdict = "I cannot say." if fault == "no verdict" else f"Fine.\nRating: [[{rating(content)}]]"
        pieces = [] if fault == "empty" else [verdict[:9], verdict[9:]]
        for at, piece in enumerate(pieces):
            if at == 1 and fault == "reset within":
                _reset(request)
            if at == 1 and fault == "garbage":
                await response.write(b"data: {nothing like JSON\n\n")
            await response.write(_event({"content": piece}))
        if fault == "broken off":
            return response
        await response.write(_event({}, "length" if fault == "length" else "stop"))
        await response.write(b"data: [DONE]\n\n")
        return response


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    body = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _reset(request: web.Request) -> None:
    """Tear the connection down, so that the client reads ECONNRESET."""
    transport = request.transport
    assert transport is not None
    transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    transport.abort()
    raise ConnectionResetError


@asynccontextmanager
async def judge_server(faults: Callable[[], str | None] = lambda: None) -> AsyncIterator[JudgeServer]:
    server = JudgeServer(faults)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.handle)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


def make_judge(folder: Path, url: str, most: int = 4) -> ModelJudge:
    options = JudgeOptions(
        "openai:gpt-4.1", url=url, cache=folder / "cache", limits={"openai": AdaptiveLimit(most)}
    )
    return ModelJudge(
        options,
        lambda: open_backend(options.spec, url=url, first_token_s=5.0),
        retries=Retries(attempts=12, max_s=30.0, first_pause_s=0.005),
    )


def written(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("seed", range(4))
async def test_a_misbehaving_judge_changes_no_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    rng = random.Random(seed)
    kinds = [
        "429",
        "500",
        "503",
        "reset",
        "reset within",
        "garbage",
        "broken off",
        "empty",
        "no verdict",
        "length",
    ]

    def faults() -> str | None:
        return rng.choice(kinds) if rng.random() < 0.35 else None

    run = make_run(tmp_path / "results", PLAN)
    async with judge_server(faults) as server:
        judge = make_judge(tmp_path, server.url)
        file = await score_run(run, judge, task=make_task())
        await judge.aclose()
    asked = {
        content: rating(content) for body in server.bodies for content in [body["messages"][-1]["content"]]
    }
    for verdict in file.turns:
        if verdict.status == "unparsed":  # four answers in a row without a verdict
            assert verdict.attempts == 4
            continue
        assert verdict.status == "scored", verdict.reason
        (content,) = (c for c in asked if c.endswith(f"|{verdict.answer}"))
        assert verdict.score == asked[content]
    assert server.keys == {f"Bearer {KEY}"}
    assert server.most_in_flight <= 4
    assert any(server.seen), "no fault was injected"
    assert {(b["temperature"], b["max_completion_tokens"]) for b in server.bodies} == {(0.0, 2048)}
    assert KEY not in written(tmp_path)


async def test_a_refused_key_is_said_once_and_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    caplog.set_level("DEBUG")
    run = make_run(tmp_path / "results", PLAN)
    async with judge_server(lambda: "401") as server:
        judge = make_judge(tmp_path, server.url)
        file = await score_run(run, judge, task=make_task())
        await judge.aclose()
    assert {v.status for v in file.turns} == {"judge_fault"}
    assert all("auth" in v.reason and v.score is None for v in file.turns)
    assert len(server.seen) <= 4  # those in flight; nobody asked after the first refusal
    assert not list((tmp_path / "cache").rglob("*.json"))
    assert KEY not in written(tmp_path) + caplog.text


async def test_a_cached_score_needs_no_server_and_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    run = make_run(tmp_path / "results", PLAN)
    async with judge_server() as server:
        judge = make_judge(tmp_path, server.url)
        first = await score_run(run, judge, task=make_task())
        await judge.aclose()
    monkeypatch.delenv("OPENAI_API_KEY")
    path = run.path / "scores" / f"{first.name}.json"
    before = path.read_bytes()
    path.unlink()
    judge = make_judge(tmp_path, server.url)
    second = await score_run(run, judge, task=make_task())
    await judge.aclose()
    assert second == first
    assert path.read_bytes() == before
    assert judge.usage() == {"requests": 0, "cached": 6, "models": {}}
    open_run(run.path).check()
    # One turn that is not cached is enough to need the key again.
    next((tmp_path / "cache").rglob("*.json")).unlink()
    with pytest.raises(MissingKey):
        await score_run(run, judge, task=make_task())
    await judge.aclose()


async def test_two_judges_at_once_may_share_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    runs = [make_run(tmp_path / str(n), PLAN) for n in range(2)]
    async with judge_server() as server:
        judges = [make_judge(tmp_path, server.url) for _ in runs]
        files = await asyncio.gather(
            *(score_run(run, judge, task=make_task()) for run, judge in zip(runs, judges, strict=True))
        )
        for judge in judges:
            await judge.aclose()
    assert files[0] == files[1]
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 6
    assert not list((tmp_path / "cache").rglob("*.part"))


async def test_a_rate_limit_narrows_the_stream_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    answers = iter(["429"] * 2)
    told: list[tuple[float, str]] = []
    run = make_run(tmp_path / "results", PLAN)
    async with judge_server(lambda: next(answers, None)) as server:
        judge = make_judge(tmp_path, server.url)
        judge.listen(lambda seconds, why: told.append((seconds, why)))
        file = await score_run(run, judge, task=make_task())
        await judge.aclose()
    assert {v.status for v in file.turns} == {"scored"}
    assert server.seen.count("429") == 2
    assert all(why == "the provider's rate limit" for _, why in told)


def test_the_command_scores_and_scores_again_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kamebench score` end to end on the shipped task; the second time with no server and no key."""
    from kamebench.tasks import load_task

    task = load_task("spoken-basics")
    plan = {q.id: [Planted(text=t.reference or "") for t in q.turns] for q in task.questions[:2]}
    run = make_run(
        tmp_path / "results",
        plan,
        task=task.name,
        version=task.version,
        categories={q.id: q.category for q in task.questions},
    )
    manifest = run.path / "manifest.json"
    raw = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(raw | {"task_sha256": task.sha256}))
    monkeypatch.setenv("KAMEBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    async def serve(work: Callable[[str], Any]) -> Any:
        async with judge_server() as server:
            return await asyncio.to_thread(work, server.url)

    def score(url: str, *more: str) -> Any:
        arguments = [str(run.path), "--judge", "gpt-4.1", "--judge-url", url, "--json", *more]
        return CliRunner().invoke(score_command, arguments, catch_exceptions=False)

    urls: list[str] = []
    first = asyncio.run(serve(lambda url: (urls.append(url), score(url))[1]))
    monkeypatch.delenv("OPENAI_API_KEY")
    second = score(urls[0])
    one, two = (json.loads(result.stdout) for result in (first, second))
    assert one["usage"]["requests"] == 4 and two["usage"]["requests"] == 0
    assert one["turns"] == two["turns"] and {v["status"] for v in one["turns"]} == {"scored"}
    dry = json.loads(score(urls[0], "--dry-run").stdout)
    assert dry["estimate"][0]["requests"] == 0
    assert KEY not in written(tmp_path) + first.output + second.output
