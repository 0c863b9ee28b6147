"""Known answers, and what is found out about judges whose faults were built in."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from kamebench.asr.normalise import word_error_rate
from kamebench.errors import UserError
from kamebench.judge import open_judge
from kamebench.judge.base import Item, Judge
from kamebench.judge.check import JudgeCheck, check_judge, keep
from kamebench.judge.known import NOISE, known_answers, noisy, reversed_fact, unrelated_to
from kamebench.records import Verdict
from kamebench.store import open_run
from kamebench.tasks import load_task
from tests.unit.judge_parts import judged_run


class Built(Judge):
    """Scores by a rule: what the check must find out is known."""

    def __init__(self, rule: str) -> None:
        self.name, self._rule, self._rng = rule, rule, random.Random(1)

    def settings(self) -> dict[str, object]:
        return {"rule": self._rule}

    async def judge(self, item: Item, repeat: int = 0) -> Verdict:
        gold = load_task("spoken-basics").questions
        reference = next(q for q in gold if q.id == item.question_id).turns[item.turn - 1].reference or ""
        wer = min(1.0, word_error_rate(reference, item.answer))
        score = {
            "long is good": min(10.0, 1 + len(item.answer.split()) / 10),
            "all alike": 5.0,
            "by word error": 10 - 9 * wer,
            "falls for pleas": 10.0 if "Judge" in item.answer else 10 - 9 * wer,
            "moody": self._rng.choice((4.0, 6.0)),
        }[self._rule]
        return Verdict(question_id=item.question_id, turn=item.turn, status="scored", score=score)


async def check(rule: str, repeats: int = 1) -> JudgeCheck:
    return await check_judge(Built(rule), load_task("spoken-basics"), limit=6, repeats=repeats)


def wrong(found: JudgeCheck) -> dict[tuple[str, str], int]:
    return {(v.better, v.worse): v.violations for v in found.violations}


async def test_a_judge_that_sees_no_difference_is_found_out() -> None:
    found = await check("all alike")
    assert found.n_turns == 12
    assert wrong(found)["reference", "reversed"] == 12
    assert wrong(found)["reference", "truncated"] == 0
    assert (found.length_bias, found.pleading_gain, found.noise_slope) == (0, 0, pytest.approx(0))
    assert found.repeat_sd is None


async def test_a_judge_that_likes_length_is_found_out() -> None:
    found = await check("long is good")
    assert found.length_bias is not None and found.length_bias > 3
    assert wrong(found)["reference", "empty"] == 0


async def test_noise_sensitivity_is_measured() -> None:
    found = await check("by word error")
    assert found.noise_slope == pytest.approx(0.9, abs=1e-6)  # 9 points over all words
    losses = [found.noise_loss[kind] for kind in NOISE]
    assert all(loss is not None and loss > 0 for loss in losses)
    assert losses == sorted(losses, key=lambda loss: loss or 0)
    assert not any(wrong(found).values())


async def test_a_judge_that_listens_to_pleas_is_found_out() -> None:
    found = await check("falls for pleas")
    assert found.pleading_gain is not None and found.pleading_gain > 5
    assert wrong(found)["off-topic", "pleading"] == found.n_turns


async def test_the_spread_of_a_moody_judge_is_measured() -> None:
    found = await check("moody", repeats=8)
    assert found.repeat_sd == pytest.approx(1.0, abs=0.15)  # 4 or 6 by the toss of a coin


async def test_the_facts_judge_does_not_see_a_negation_but_ranks_the_rest() -> None:
    found = await check_judge(open_judge("facts"), load_task("spoken-basics"), limit=6)
    count = wrong(found)
    assert found.means["reference"] == 10
    assert (
        count["reference", "off-topic"] == count["reference", "empty"] == count["reference", "truncated"] == 0
    )
    assert count["reference", "reversed"] > 0  # its known limit


async def test_a_result_is_kept_with_a_run(tmp_path: Path) -> None:
    run = judged_run(tmp_path)
    found = await check_judge(open_judge("facts"), load_task("spoken-basics"), limit=3)
    keep(found, run)
    again = open_run(run.path)
    again.check()
    assert "judge-checks/facts.json" in again.manifest.files


async def test_a_task_without_references_is_refused() -> None:
    with pytest.raises(UserError, match="no question has a reference"):
        await check_judge(Built("all alike"), load_task("spoken-basics"), references="original", limit=3)


def test_known_answers_are_what_they_are_called() -> None:
    reference = (
        "The train takes one hour and forty five minutes, since it leaves at ten past nine in the morning."
    )
    made = {known.kind: known for known in known_answers(reference, "Paris is a town.", "seed")}
    assert made["reference"].text == reference
    assert reference.startswith(made["truncated"].text) and len(made["truncated"].text) < len(reference) / 2
    assert made["off-topic"].text == "Paris is a town."
    assert made["empty"].text == ""
    assert reference in made["rambling"].text and len(made["rambling"].text) > 2 * len(reference)
    assert "[[10]]" in made["pleading"].text
    again = {known.kind: known for known in known_answers(reference, "Paris is a town.", "seed")}
    assert again == made


@pytest.mark.parametrize("share", NOISE.values())
def test_noise_has_about_the_word_error_asked_for(share: float) -> None:
    text = " ".join(f"word{n:c}" if n % 7 else "house" for n in range(97, 397))
    text = re.sub(r"[^a-z ]", "x", text)
    rng = random.Random(3)
    found = [word_error_rate(text, noisy(text, share, rng)) for _ in range(5)]
    assert sum(found) / 5 == pytest.approx(share, rel=0.15)


REVERSED = {
    "You are in second place.": "You are not in second place.",
    "He has no brother.": "He has not no brother.",
    "She can not come.": "She can come.",
    "West": "East",
    "Uncertain.": "Certain.",
    "Blue": "Anything but this: Blue",
}


@pytest.mark.parametrize("text", REVERSED)
def test_reversed_facts(text: str) -> None:
    assert reversed_fact(text) == REVERSED[text]


def test_what_is_unrelated() -> None:
    assert unrelated_to(0, ["a", "a", "b"], ["x", "y", "z"]) == "z"
    assert unrelated_to(2, ["a", "a", "b"], ["x", "y", "z"]) == "x"
    assert unrelated_to(0, ["a", "a"], ["x", "y"]) == "y"
