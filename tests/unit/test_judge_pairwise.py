"""Two runs against each other, in both orders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kamebench.clock import VirtualClock
from kamebench.errors import UserError
from kamebench.judge import open_judge
from kamebench.judge.base import JudgeOptions
from kamebench.judge.model import ModelJudge
from kamebench.judge.pairwise import compare_runs
from kamebench.judge.prompts import Prompt
from kamebench.llm.base import ChatRequest
from kamebench.store import open_run
from tests.synthetic import Planted, make_run
from tests.unit.judge_parts import Answering, make_task

GOOD, BAD = "a good answer", "a bad answer"


@pytest.fixture(autouse=True)
def prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    later = "{question_1}|{question_2}|A:{answer_a_1};{answer_a_2}|B:{answer_b_1};{answer_b_2}"
    texts = {"pair-v2": "{question}|A:{answer_a}|B:{answer_b}", "pair-v2-multi-turn": later}
    texts |= {name.replace("v2", "math-v1"): f"{text}|{{ref_answer_1}}" for name, text in texts.items()}
    names = ("single-v1", "single-v1-multi-turn", "single-math-v1", "single-math-v1-multi-turn")
    made = {name: Prompt(name, "system", texts.get(name, "")) for name in (*texts, *names)}
    monkeypatch.setattr("kamebench.judge.prompts.published_prompts", lambda: made)
    monkeypatch.setattr("kamebench.judge.model.published_prompts", lambda: made)


def fair(request: ChatRequest) -> str:
    """Names the side whose last answer is the good one."""
    a, b = request.messages[1].content.split("|A:")[1].split("|B:")
    last = [side.split("|")[0].split(";")[-1] for side in (a, b)]
    good = [text == GOOD for text in last]
    return "I see.\n[[C]]" if good[0] == good[1] else f"I see.\n[[{'A' if good[0] else 'B'}]]"


def make_judge(answer: Callable[[ChatRequest], str], folder: Path) -> tuple[ModelJudge, Answering]:
    backend = Answering(answer)
    options = JudgeOptions("gpt-4.1", cache=folder / "cache")
    return ModelJudge(options, lambda: backend, clock=VirtualClock()), backend


def runs(folder: Path) -> tuple[object, object]:
    good, bad, silent = Planted(text=GOOD), Planted(text=BAD), Planted(latency_ms=None)
    this = make_run(folder, {"a": [good, bad], "b": [silent, good], "c": [good, Planted(fault=True)]})
    plan = {"a": [bad, good], "b": [good, good], "c": [bad, bad]}
    return this, make_run(folder, plan, run_id="20260102T000000-bbbbbb")


async def test_both_orders_decide(tmp_path: Path) -> None:
    this, other = runs(tmp_path)
    judge, backend = make_judge(fair, tmp_path)
    file = await compare_runs(this, other, judge, task=make_task())  # type: ignore[arg-type]
    outcomes = {(pair.question_id, pair.turn): pair.outcome for pair in file.turns}
    assert outcomes == {
        ("a", 1): "win",
        ("a", 2): "loss",
        ("b", 1): "loss",
        ("b", 2): "tie",
        ("c", 1): "win",
        ("c", 2): None,
    }
    assert len(backend.requests) == 8
    assert file.counts == {"win": 2, "tie": 1, "loss": 2, "missing": 1}
    assert file.win_rate.value == 0.5
    assert (file.win_rate.n, file.win_rate.n_missing) == (5, 1)
    assert file.position == {"turns": 4, "consistent": 1, "first_both_times": 0, "second_both_times": 0}
    open_run(this.path).check()  # type: ignore[attr-defined]


async def test_a_judge_that_follows_the_order_has_not_decided(tmp_path: Path) -> None:
    this, other = runs(tmp_path)
    judge, _ = make_judge(lambda request: "[[A]]", tmp_path)
    file = await compare_runs(this, other, judge, task=make_task())  # type: ignore[arg-type]
    assert file.counts == {"win": 0, "tie": 4, "loss": 1, "missing": 1}
    assert file.position["first_both_times"] == 1
    assert file.position["consistent"] == 0


async def test_only_one_language_model_can_compare(tmp_path: Path) -> None:
    this, other = runs(tmp_path)
    with pytest.raises(UserError, match="one language model"):
        await compare_runs(this, other, open_judge("facts"), task=make_task())  # type: ignore[arg-type]
