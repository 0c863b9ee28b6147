"""Counting, estimating and limiting cost."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path

import pytest

from kamebench.errors import BackendFault, BadConfig
from kamebench.llm import open_backend
from kamebench.llm.base import ChatRequest, Message, StreamEnd, TurnContext, Usage, close_stream
from kamebench.llm.cost import (
    CostLimit,
    Ledger,
    Load,
    Meter,
    cascade_load,
    estimate,
    estimate_tokens,
    oracle_load,
    price_of,
    price_table,
)
from kamebench.llm.scripted import Script, ScriptedBackend, Step, say

TURN = TurnContext("task", "q1", "stem", 1)


def ask(text: str = "x" * 40, context: TurnContext | None = None) -> ChatRequest:
    return ChatRequest((Message("user", text),), context=context)


def paid(*scripts: Script, model: str = "gpt-4.1", family: str = "openai") -> ScriptedBackend:
    backend = ScriptedBackend(scripts)
    backend.name, backend.family, backend.billed = model, family, True
    return backend


def end(input_tokens: int | None, output_tokens: int | None) -> Step:
    return Step(0, StreamEnd("stop", Usage(input_tokens, output_tokens)))


def test_prices_are_whole() -> None:
    for provider in price_table().values():
        assert provider.source.startswith("https://")
        for price in provider.models.values():
            assert 0 < price.input < price.output
            assert date(2024, 1, 1) < price.seen <= date.today()


def test_the_models_of_the_benchmark_have_a_price() -> None:
    for family, model in (
        ("openai", "gpt-4.1"),
        ("openai", "gpt-4.1-nano"),
        ("anthropic", "claude-opus-4-1"),
        ("google", "gemini-2.5-flash"),
    ):
        assert price_of(family, model) is not None


@pytest.mark.parametrize("snapshot", ["gpt-4.1-2025-04-14", "gpt-4.1-latest", "gpt-4.1"])
def test_a_snapshot_costs_what_its_model_costs(snapshot: str) -> None:
    price = price_of("openai", snapshot)
    assert price is not None
    assert price.usd(1_000_000, 500_000) == pytest.approx(2.0 + 4.0)


def test_what_is_not_listed_has_no_price() -> None:
    assert price_of("openai", "gpt-4.1-turbo") is None
    assert price_of("openai-compatible", "gpt-4.1") is None


async def test_tokens_are_the_providers_and_priced() -> None:
    ledger = Ledger()
    meter = Meter(paid([Step(0, "Yes."), end(1000, 200)]), ledger)
    for _ in range(3):
        assert (await meter.complete(ask())).usage == Usage(1000, 200)
    row = meter.usage()["openai:gpt-4.1"]
    assert (row["requests"], row["completed"], row["input_tokens"], row["output_tokens"]) == (3, 3, 3000, 600)
    assert (row["estimated_input_tokens"], row["estimated_output_tokens"]) == (0, 0)
    assert row["cost_usd"] == pytest.approx((3000 * 2 + 600 * 8) / 1e6)
    assert row["price"] == {"input": 2.0, "output": 8.0, "seen": "2026-05-07"}


async def test_a_cancelled_stream_is_estimated_and_counted_apart() -> None:
    meter = Meter(paid(say("abcd efgh ijkl"), [Step(0, BackendFault("no", kind="auth"))]), Ledger())
    stream = meter.stream(ask("x" * 41))
    await anext(stream)
    await anext(stream)
    await close_stream(stream)
    with pytest.raises(BackendFault):
        await meter.complete(ask())  # refused at once: nothing is billed
    row = meter.usage()["openai:gpt-4.1"]
    assert (row["cancelled"], row["failed"], row["completed"]) == (1, 1, 0)
    assert (row["input_tokens"], row["output_tokens"]) == (0, 0)
    assert (row["estimated_input_tokens"], row["estimated_output_tokens"]) == (11, 3)
    assert row["cost_usd"] == pytest.approx((11 * 2 + 3 * 8) / 1e6)


async def test_a_provider_that_does_not_count_is_estimated() -> None:
    meter = Meter(paid([Step(0, "abcdefgh"), end(None, None)]), Ledger())
    await meter.complete(ask("x" * 40))
    row = meter.usage()["openai:gpt-4.1"]
    assert (row["estimated_input_tokens"], row["estimated_output_tokens"]) == (10, 2)


async def test_restarts_are_requests_in_place_of_a_cancelled_one() -> None:
    meter = Meter(paid(say("a b c")), Ledger())

    async def cancelled(context: TurnContext | None) -> None:
        stream = meter.stream(ask(context=context))
        await anext(stream)
        await close_stream(stream)

    await cancelled(TURN)  # the first
    await cancelled(TURN)  # a restart
    await meter.complete(ask(context=TURN))  # a restart
    await meter.complete(ask(context=TURN))  # a new question to it
    await cancelled(TurnContext("task", "q2", "stem", 1))
    await cancelled(None)
    await meter.complete(ask())  # a judge's requests are in no turn
    row = meter.usage()["openai:gpt-4.1"]
    assert (row["requests"], row["cancelled"], row["restarts"]) == (7, 4, 2)


async def test_a_request_that_overtakes_the_cancelling_is_a_restart_too() -> None:
    meter = Meter(paid([Step(0, "a"), Step(30, "b")], say("c")), Ledger())
    first = meter.stream(ask(context=TURN))
    await anext(first)
    await meter.complete(ask(context=TURN))
    await close_stream(first)
    assert meter.usage()["openai:gpt-4.1"]["restarts"] == 1


async def test_the_limit_stops_the_next_request() -> None:
    ledger = Ledger(max_cost=0.01)
    meter = Meter(paid([Step(0, "Yes."), end(2000, 200)]), ledger)  # 0.0056 dollars each
    await meter.complete(ask())
    meter.check_cost()
    await meter.complete(ask())
    with pytest.raises(CostLimit, match=r"0\.01 US dollars.*0\.0112 spent"):
        await meter.complete(ask())
    with pytest.raises(CostLimit):
        meter.check_cost()
    assert meter.usage()["openai:gpt-4.1"]["requests"] == 2, "the refused one was not asked"


def test_a_limit_that_cannot_be_held_is_refused() -> None:
    with pytest.raises(BadConfig, match="no price is known for openai:gpt-99"):
        open_backend("openai:gpt-99", max_cost=5.0)
    open_backend("gpt-4.1", max_cost=5.0)
    open_backend("local", max_cost=0.0)
    open_backend("openai-compatible:m@http://127.0.0.1:1/v1", max_cost=1.0)
    with pytest.raises(BadConfig, match="openai-compatible:m"):
        open_backend("openai-compatible:m@http://example.org/v1", max_cost=1.0)


async def test_what_runs_here_costs_nothing(tmp_path: Path) -> None:
    backend = open_backend("scripted:Good morning.", record=tmp_path)
    await backend.complete(ask())
    replay = open_backend(f"replay:{tmp_path}", max_cost=0.0001)
    await replay.complete(ask())
    for usage in (backend.usage(), replay.usage()):
        assert usage["scripted:scripted"]["cost_usd"] == 0.0
        assert usage["scripted:scripted"]["requests"] == 1


async def test_an_unknown_price_is_no_number() -> None:
    meter = Meter(paid(say("a"), model="gpt-99"), Ledger())
    await meter.complete(ask())
    row = meter.usage()["openai:gpt-99"]
    assert (row["cost_usd"], row["price"]) == (None, None)
    assert "no price is known" in row["cost_reason"]


async def test_a_cancelled_task_counts_as_cancelled() -> None:
    meter = Meter(paid([Step(0, "a"), Step(60, "b")]), Ledger())
    task = asyncio.create_task(meter.complete(ask()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert meter.usage()["openai:gpt-4.1"]["cancelled"] == 1


def test_estimates_before_a_run() -> None:
    assert estimate_tokens("x" * 9) == 3
    load = cascade_load([["x" * 400, "x" * 400]], instructions="x" * 200, answer_tokens=100)
    # 50 + 100 tokens, then 50 + 100 + 100 + 100
    assert load == Load(2, 250, 100)
    cost = estimate("openai", "gpt-4.1", load)
    assert cost.usd == pytest.approx((500 * 2 + 200 * 8) / 1e6)
    assert "2026-05-07" in cost.reason
    assert estimate("openai", "gpt-99", load).usd is None
    assert estimate("local", "anything", load, billed=False).usd == 0


def test_an_oracle_is_asked_with_every_poll() -> None:
    load = oracle_load([["x" * 40], ["x" * 40]], [4.0, 2.0], instructions="", poll_s=0.5)
    assert load.requests == 12
    assert load.input_tokens == pytest.approx((10 * 9 // 2 + 10 * 5 // 2) / 12, abs=1)
