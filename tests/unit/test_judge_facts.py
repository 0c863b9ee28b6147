"""The facts judge and the scoring of stored runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kamebench import store
from kamebench.errors import BadRun, UserError
from kamebench.judge import default_judge, open_judge, score_run
from kamebench.judge.base import Item
from kamebench.judge.facts import said
from kamebench.store import open_run
from kamebench.tasks import Fact, load_task
from tests.unit.judge_parts import judged_run, make_task

SPOKEN = {
    "fully spelled": ("one hour and forty five minutes", "It takes 1 hour and 45 minutes.", True),
    "digits accepted, words said": ("105 minutes", "a hundred and five minutes", True),
    "money": ("$30", "You pay thirty dollars.", True),
    "formula": ("H2O", "it is H two O", True),
    "hyphen": ("forty-five", "the answer is 45", True),
    "case and points": ("U.S.", "In the us of old", True),
    "numbers of two phrases": ("two four", "They are two, four and six.", True),
    "number that only runs together": ("24", "First two. Four more came.", False),
    "a number with a comma inside": ("1200", "It is one thousand, two hundred.", True),
    "part of a longer number": ("45", "It takes 145 minutes.", False),
    "part of a word": ("art", "The party began.", False),
    "end of a sentence": ("carla", "The shortest is Carla.", True),
    "not there": ("Ben", "Anna and Carla", False),
}


@pytest.mark.parametrize("name", SPOKEN)
def test_a_fact_is_found_by_what_is_said(name: str) -> None:
    form, answer, expected = SPOKEN[name]
    assert (said(Fact(name="f", accepts=("quite another", form)), answer) == form) is expected


async def test_the_score_is_the_share_of_facts_on_one_to_ten() -> None:
    facts = tuple(Fact(name=n, accepts=(n,)) for n in ("red", "green", "blue"))
    for answer, score, missed in (
        ("", 1.0, ["red", "green", "blue"]),
        ("blue", 4.0, ["red", "green"]),
        ("green and red", 7.0, ["blue"]),
        ("red green blue red", 10.0, []),
    ):
        verdict = await open_judge("facts").judge(Item("q", "stem", 1, ("?",), (answer,), (None,), facts))
        assert verdict.score == score
        assert verdict.detail["missed"] == missed


async def test_every_reference_of_the_shipped_task_says_all_its_facts() -> None:
    judge = open_judge("facts")
    for question in load_task("spoken-basics").questions:
        for n, turn in enumerate(question.turns, start=1):
            answer = turn.reference or ""
            item = Item(question.id, question.category, n, (turn.text,), (answer,), (None,), turn.facts)
            assert (await judge.judge(item)).score == 10.0, (question.id, n)


async def test_a_run_is_scored_and_sealed(tmp_path: Path) -> None:
    run = judged_run(tmp_path)
    file = await score_run(run, open_judge("facts"), task=make_task())
    found = {(v.question_id, v.turn): (v.status, v.score) for v in file.turns}
    assert found == {
        ("a", 1): ("scored", 10.0),
        ("a", 2): ("scored", 10.0),
        ("b", 1): ("scored", 10.0),
        ("b", 2): ("silent", 1.0),
        ("c", 1): ("scored", 10.0),
        ("c", 2): ("missing", None),
    }
    assert not file.comparable_with_llm_judge
    again = open_run(run.path)
    again.check()
    assert again.scores["facts.spoken"] == file
    assert again.table("facts.spoken")["score"].isna().sum() == 1


async def test_scoring_an_edited_run_does_not_make_it_whole(tmp_path: Path) -> None:
    run = judged_run(tmp_path)
    transcripts = run.path / store.TRANSCRIPTS
    transcripts.write_text(transcripts.read_text() + "\n")
    await score_run(open_run(run.path), open_judge("facts"), task=make_task())
    with pytest.raises(BadRun, match=r"transcripts\.json was changed after the run"):
        open_run(run.path).check()


async def test_scoring_a_run_with_an_edited_manifest_does_not_seal_it(tmp_path: Path) -> None:
    run = judged_run(tmp_path)
    store.write_record(run.path / store.MANIFEST, run.manifest.model_copy(update={"label": "better"}))
    await score_run(open_run(run.path), open_judge("facts"), task=make_task())
    with pytest.raises(BadRun, match=r"manifest\.json was changed after the run"):
        open_run(run.path).check()


async def test_scoring_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    run = judged_run(tmp_path)
    paths = []
    for _ in range(2):
        await score_run(run, open_judge("facts"), task=make_task())
        paths.append((run.path / "scores" / "facts.spoken.json").read_bytes())
    assert paths[0] == paths[1]


async def test_a_task_without_facts_is_refused_with_the_choices(tmp_path: Path) -> None:
    task = make_task(facts=False)
    assert default_judge(task) == "none"
    with pytest.raises(UserError, match=r"gpt-4\.1.*none"):
        await score_run(judged_run(tmp_path), open_judge("facts"), task=task)


async def test_a_changed_task_is_refused(tmp_path: Path) -> None:
    task = replace(make_task(), sha256="0" * 64)
    with pytest.raises(BadRun, match="changed since the run"):
        await score_run(judged_run(tmp_path), open_judge("facts"), task=task)


async def test_a_system_without_text_has_only_missing_turns_and_one_without_oracle_is_refused(
    tmp_path: Path,
) -> None:
    run = judged_run(tmp_path)
    file = await score_run(run, open_judge("facts"), task=make_task(), what="text-stream")
    assert {v.status for v in file.turns} == {"missing"}
    assert all(v.reason for v in file.turns)
    for what in ("oracle-last", "oracle-onset"):
        with pytest.raises(BadRun, match=f"no '{what}' to judge"):
            await score_run(run, open_judge("facts"), task=make_task(), what=what)
