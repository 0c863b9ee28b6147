"""Tasks: what is loaded, what is refused and how, which questions a limit takes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kamebench import assets, tasks
from kamebench.errors import BadTask, UnknownName, UserError
from kamebench.judge.facts import said
from kamebench.tasks import list_tasks, load_task, select, task_folders

TASK = """name = "mine"
version = "3"
about = "two questions"
questions = "questions.toml"
categories = ["one", "two"]
"""
QUESTIONS = """
[[question]]
id = "a"
category = "one"
[[question.turn]]
text = "What is two and two?"
reference = "Four."
facts = [{ name = "sum", accepts = ["four", "4"] }]
[[question.turn]]
text = "And twice that?"

[[question]]
id = "b"
category = "two"
[[question.turn]]
text = "Why?"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks" / "mine"
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text(TASK)
    (folder / "questions.toml").write_text(QUESTIONS)
    return tmp_path


def edit(root: Path, file: str, old: str, new: str) -> None:
    path = root / "tasks" / "mine" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_task_is_found_under_a_root_and_by_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task("mine", root)
    assert (task.name, task.version, task.categories) == ("mine", "3", ("one", "two"))
    first = task.questions[0].turns[0]
    assert (first.text, first.reference, first.facts[0].accepts) == (
        "What is two and two?",
        "Four.",
        ("four", "4"),
    )
    assert task.questions[0].turns[1].reference is None
    assert not task.has_facts
    assert load_task(str(root / "tasks" / "mine")) == task
    monkeypatch.chdir(root)
    assert load_task("mine") == task
    assert {"mine", "spoken-basics", "mt-bench-spoken"} <= set(task_folders())
    assert [row["version"] for row in list_tasks(root) if row["name"] == "mine"] == ["3"]


def test_the_nearest_folder_wins(root: Path) -> None:
    (root / "tasks" / "mine").rename(root / "tasks" / "spoken-basics")
    path = root / "tasks" / "spoken-basics" / "task.toml"
    path.write_text(TASK.replace("mine", "spoken-basics"))
    assert load_task("spoken-basics", root).version == "3"
    assert load_task("spoken-basics").version == "1"


def test_an_unknown_task_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'spoken-basics'"):
        load_task("spoken-basic")


BROKEN: dict[str, tuple[str, str, str, str]] = {
    "missing field": ("task.toml", 'version = "3"', "", "task.toml: 'version' is missing. Add it."),
    "extra field": ("task.toml", "about", "aboot", "task.toml: 'aboot' is not a field"),
    "nested missing": ("questions.toml", 'text = "And twice that?"', "", "turn 2: 'text' is missing"),
    "nested extra": (
        "questions.toml", 'text = "Why?"', 'text = "Why?"\nanswer = "So."',
        "question 2, turn 1: 'answer' is not a field of the format",
    ),
    "empty text": ("questions.toml", '"Why?"', '""', "question 2, turn 1: 'text' is ''"),
    "wrong type": ("task.toml", 'version = "3"', "version = 3", "'version' is 3: input should be"),
    "fact that accepts nothing": ("questions.toml", '["four", "4"]', "[]", "'accepts' is"),
    "fact with an empty form": ("questions.toml", '"four"', '""', "accepts: '0' is ''"),
    "bad id": ("questions.toml", 'id = "a"', 'id = "a/b"', "'id' is 'a/b'"),
    "not TOML": ("questions.toml", "[[question]]", "[[question", "is not TOML"),
    "no such file": ("task.toml", "questions.toml", "nothing.toml", "nothing.toml: no such file"),
    "other name": ("task.toml", '"mine"', '"yours"', "name is 'yours', the folder is 'mine'"),
    "two sources": ("task.toml", "about", 'source = "mt-bench"\nabout', "not both"),
    "no source": ("task.toml", 'questions = "questions.toml"', "", "give either"),
    "unknown source": ("task.toml", 'questions = "questions.toml"', 'source = "web"', "Known: mt-bench"),
    "unknown category": ("questions.toml", 'category = "two"', 'category = "tow"', "the task has: one, two"),
    "empty category": ("task.toml", '"two"]', '"two", "three"]', "category 'three' has no question"),
    "same id twice": ("questions.toml", 'id = "b"', 'id = "a"', "'a' stands twice"),
    "same fact twice": (
        "questions.toml", '["four", "4"] }]', '["four"] }, { name = "sum", accepts = ["4"] }]',
        "question 'a', turn 1: two facts have one name",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_task_that_is_not_whole_is_refused_by_field_and_mend(root: Path, what: str) -> None:
    file, old, new, complaint = BROKEN[what]
    edit(root, file, old, new)
    with pytest.raises(BadTask) as caught:
        load_task("mine", root)
    assert complaint in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("questions.toml", "Why?", "How?", True),
        ("questions.toml", "Four.", "It is four.", True),
        ("questions.toml", '"4"]', '"4", "2+2"]', True),
        ("task.toml", 'version = "3"', 'version = "4"', True),
        ("task.toml", "two questions", "other words about it", False),
        ("questions.toml", "\n[[question]]", "\n# a remark\n[[question]]", False),
    ],
)
def test_the_hash_changes_with_whatever_can_change_a_score(
    root: Path, file: str, old: str, new: str, changes: bool
) -> None:
    before = load_task("mine", root).sha256
    edit(root, file, old, new)
    assert (load_task("mine", root).sha256 != before) is changes


def test_a_limit_keeps_the_balance_of_categories() -> None:
    task = load_task("spoken-basics")
    for limit in (1, 2, 3, 7, 15, 99):
        chosen = select(task, limit=limit)
        counts = Counter(question.category for question in chosen)
        assert len(chosen) == min(limit, 15)
        assert len({question.id for question in chosen}) == len(chosen)
        assert max(counts.values()) - min(counts[name] for name in task.categories) <= 1
    assert [question.id for question in select(task, limit=4)] == ["r1", "s1", "h1", "r2"]
    assert {question.category for question in select(task, categories=["stem"])} == {"stem"}


def test_a_seed_shuffles_and_does_so_again() -> None:
    task = load_task("spoken-basics")
    orders = {seed: [question.id for question in select(task, seed=seed)] for seed in (0, 1, 2)}
    assert len({tuple(order) for order in orders.values()}) == 3
    assert all(sorted(order) == sorted(orders[0]) for order in orders.values())
    assert [question.id for question in select(task, seed=1)] == orders[1]
    one = [question.id for question in select(task, categories=["humanities"], seed=1)]
    assert one == [name for name in orders[1] if name.startswith("h")]


def test_what_cannot_be_selected_is_refused() -> None:
    task = load_task("spoken-basics")
    with pytest.raises(UnknownName, match="Did you mean 'stem'"):
        select(task, categories=["stm"])
    with pytest.raises(UserError, match="at least 1"):
        select(task, limit=0)


def test_spoken_basics_is_what_it_says() -> None:
    task = load_task("spoken-basics")
    assert task.has_facts
    assert Counter(q.category for q in task.questions) == {"reasoning": 5, "stem": 5, "humanities": 5}
    for question in task.questions:
        assert len(question.turns) == 2
        for turn in question.turns:
            assert 5 <= len(turn.text.split()) <= 30
            assert turn.reference and len(turn.reference.split()) <= 35
            assert 1 <= len(turn.facts) <= 4


def test_spoken_basics_gives_nothing_for_repeating_the_question() -> None:
    for question in load_task("spoken-basics").questions:
        for number, turn in enumerate(question.turns, 1):
            found = [fact.name for fact in turn.facts if said(fact, turn.text)]
            assert not found, (question.id, number, found)


def test_spoken_basics_gives_nothing_for_the_answer_to_another_question() -> None:
    """Facts are not so loose that any answer holds them."""
    turns = [(q.id, turn) for q in load_task("spoken-basics").questions for turn in q.turns]
    pairs = [
        (one_id, other_id, fact.name)
        for one_id, turn in turns
        for fact in turn.facts
        for other_id, other in turns
        if one_id != other_id and said(fact, str(other.reference))
    ]
    assert len(pairs) <= 0.01 * len(turns) ** 2, pairs


Lines = Callable[[str], list[dict[str, object]]]


@pytest.fixture
def made_up_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An asset in MT-Bench's file format with text of our own."""

    def write(name: str, rows: list[dict[str, object]]) -> None:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def answers(ids: list[int], word: str) -> list[dict[str, object]]:
        return [{"question_id": n, "choices": [{"turns": [f"{word} {n}.1", f"{word} {n}.2"]}]} for n in ids]

    write(
        "question.jsonl",
        [
            {"question_id": 1, "category": "reasoning", "turns": ["A?", "B?"], "reference": ["gold", ""]},
            {"question_id": 2, "category": "stem", "turns": ["C?", "D?"]},
            {"question_id": 3, "category": "humanities", "turns": ["E?", "F?"], "reference": ["short"]},
            {"question_id": 4, "category": "coding", "turns": ["G?", "H?"]},
        ],
    )
    write("gpt-4.jsonl", answers([1], "original"))
    write("gpt-4-0125-preview.jsonl", answers([1, 4], "corrected"))
    monkeypatch.setattr(assets, "fetch", lambda name: tmp_path)


@pytest.mark.usefixtures("made_up_source")
def test_fetched_questions_have_three_sets_of_references() -> None:
    task = load_task("mt-bench-spoken")
    assert [question.id for question in task.questions] == ["1", "2", "3"]
    one, two = task.questions[0].turns
    assert one.references == {"gold": "gold", "corrected": "corrected 1.1", "original": "original 1.1"}
    assert two.references == {"gold": None, "corrected": "corrected 1.2", "original": "original 1.2"}
    assert one.reference == "gold"  # the default: gold where there is one,
    assert two.reference == "corrected 1.2"  # else the corrected answer
    assert two.reference_of("original") == "original 1.2"
    assert task.questions[1].turns[0].reference is None
    assert [turn.reference for turn in task.questions[2].turns] == ["short", None]


def test_mt_bench_itself_is_the_published_set() -> None:
    if not assets.is_fetched("mt-bench"):
        pytest.skip("mt-bench is not fetched: run 'kamebench fetch mt-bench'")
    task = load_task("mt-bench-spoken")
    assert [int(q.id) for q in task.questions] == [*range(101, 111), *range(141, 151), *range(151, 161)]
    assert sum(len(question.turns) for question in task.questions) == 60
    reasoning = [turn for q in task.questions if q.category == "reasoning" for turn in q.turns]
    assert all(turn.reference for turn in reasoning)
    assert all(turn.references["original"] and turn.references["corrected"] for turn in reasoning)


def test_no_question_of_mt_bench_stands_in_the_repository() -> None:
    if not assets.is_fetched("mt-bench"):
        pytest.skip("mt-bench is not fetched: run 'kamebench fetch mt-bench'")
    root = Path(tasks.__file__).parents[1]
    texts = {
        re.sub(r"\W+", " ", sentence).strip().lower()
        for question in load_task("mt-bench-spoken").questions
        for turn in question.turns
        for sentence in re.split(r"[.?!\n]", turn.text)
        if len(sentence.split()) >= 8
    }
    kinds = {".py", ".toml", ".md", ".json", ".jsonl", ".txt"}
    places = [
        root / name for name in ("kamebench", "tasks", "systems", "tests", "benchmarks", "docs", "README.md")
    ]
    files = [path for place in places for path in ([place] if place.is_file() else place.rglob("*"))]
    for path in files:
        if path.suffix in kinds and path.is_file():
            content = re.sub(r"\W+", " ", path.read_text(encoding="utf-8", errors="ignore")).lower()
            assert not [text for text in texts if text in content], path
