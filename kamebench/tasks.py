"""Tasks: what is asked, what a good answer says, and how both are found and checked.

A task is a folder of data, `tasks/<name>/task.toml`:

    name = "spoken-basics"           # must equal the folder's name
    version = "1"                    # new whenever a question, reference or fact changes
    about = "one line"
    questions = "questions.toml"     # or: source = "mt-bench" for questions that are fetched
    categories = ["reasoning", "stem", "humanities"]

and in questions.toml, for every question:

    [[question]]
    id = "r1"
    category = "reasoning"
    [[question.turn]]
    text = "..."
    reference = "..."                # a short answer that can be spoken
    facts = [{ name = "...", accepts = ["one spoken form", "another"] }]
"""

from __future__ import annotations

import hashlib
import json
import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kamebench import assets
from kamebench.errors import BadTask, UnknownName, UserError
from kamebench.roots import data_folders

REFERENCE_SETS = ("gold", "corrected", "original")


Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Fact(_Data):
    """Something a right answer says; `accepts` lists the spoken forms, any of which counts."""

    name: str = Field(min_length=1)
    accepts: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)


class QuestionTurn(_Data):
    """What the user says, the reference answers by set name, and the facts that can be checked."""

    text: str = Field(min_length=1)
    references: dict[str, str | None] = Field(default_factory=dict)
    facts: tuple[Fact, ...] = ()

    def reference_of(self, name: str | None = None) -> str | None:
        """The reference of a set; by default `gold` where it is not empty, else `corrected`."""
        if name is not None:
            return self.references.get(name)
        return next((text for key in REFERENCE_SETS[:2] if (text := self.references.get(key))), None)

    @property
    def reference(self) -> str | None:
        return self.reference_of()


class Question(_Data):
    """One conversation: its turns are asked in one session."""

    id: Id
    category: str = Field(min_length=1)
    turns: tuple[QuestionTurn, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Task:
    """A task as loaded. `sha256` covers everything that can change a score."""

    name: str
    version: str
    about: str
    categories: tuple[str, ...]
    questions: tuple[Question, ...]
    sha256: str

    @property
    def has_facts(self) -> bool:
        return all(turn.facts for question in self.questions for turn in question.turns)


class _TaskFile(_Data):
    name: str
    version: str
    about: str
    categories: tuple[str, ...] = Field(min_length=1)
    questions: str | None = None
    source: str | None = None


class _TurnEntry(_Data):
    text: str = Field(min_length=1)
    reference: str | None = None
    facts: tuple[Fact, ...] = ()


class _QuestionEntry(_Data):
    id: Id
    category: str
    turn: tuple[_TurnEntry, ...] = Field(min_length=1)


class _QuestionsFile(_Data):
    question: tuple[_QuestionEntry, ...] = Field(min_length=1)


def task_folders(root: Path | None = None) -> dict[str, Path]:
    """Name -> folder of every task that can be found, nearest first."""
    found: dict[str, Path] = {}
    for folder in data_folders("tasks", root):
        for path in sorted(folder.glob("*/task.toml")):
            found.setdefault(path.parent.name, path.parent)
    return dict(sorted(found.items()))


def list_tasks(root: Path | None = None) -> list[dict[str, Any]]:
    """Name, version and description of every task; nothing is fetched."""
    files = [_read(folder / "task.toml", _TaskFile) for folder in task_folders(root).values()]
    return [{"name": file.name, "version": file.version, "about": file.about} for file in files]


def load_task(name: str, root: Path | None = None) -> Task:
    """A task by name, or by the path of its folder; fetched questions are fetched.

    Raises:
        UnknownName: no such task. BadTask: a file with a missing, extra or contradicting field.
        AssetFault: the questions could not be fetched.
    """
    folders = task_folders(root)
    folder = folders.get(name)
    if folder is None and (Path(name) / "task.toml").is_file():
        folder = Path(name)
    if folder is None:
        raise UnknownName("task", name, folders)
    file = _read(folder / "task.toml", _TaskFile)
    if file.name != folder.resolve().name:
        raise BadTask(f"{folder}: name is '{file.name}', the folder is '{folder.name}'. Make them equal.")
    if (file.questions is None) == (file.source is None):
        raise BadTask(
            f"{folder}/task.toml: give either 'questions' (a file) or 'source' (an asset), not both."
        )
    questions = _fetched(file) if file.source else _written(folder / str(file.questions))
    _check(folder, file, questions)
    content = json.dumps([question.model_dump() for question in questions], sort_keys=True)
    digest = hashlib.sha256(f"{file.name}\n{file.version}\n{content}".encode()).hexdigest()
    return Task(file.name, file.version, file.about, file.categories, questions, digest)


def select(
    task: Task, *, limit: int | None = None, categories: Sequence[str] = (), seed: int = 0
) -> tuple[Question, ...]:
    """The questions to ask: those of the categories, taken in turn so that a limit keeps the balance.

    With seed 0 the task's own order is kept within a category; another seed shuffles it.

    Raises:
        UnknownName: no such category. UserError: the limit is under 1.
    """
    for category in categories:
        if category not in task.categories:
            raise UnknownName(f"category of task '{task.name}'", category, task.categories)
    if limit is not None and limit < 1:
        raise UserError(f"limit {limit}: ask for at least 1 question.")
    groups: list[list[Question]] = []
    for category in categories or task.categories:
        group = [question for question in task.questions if question.category == category]
        if seed:
            random.Random(f"{seed}/{category}").shuffle(group)  # noqa: S311 an order, not a secret
        groups.append(group)
    deepest = max(len(group) for group in groups)
    taken = [group[depth] for depth in range(deepest) for group in groups if depth < len(group)]
    return tuple(taken[:limit])


def _read(path: Path, cls: type[Any]) -> Any:
    try:
        return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise BadTask(f"{path}: no such file. A task folder needs it.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadTask(f"{path}: is not TOML ({error}). Mend the file.") from None
    except ValidationError as error:
        raise BadTask("\n".join(f"{path}: {_complaint(one)}" for one in error.errors()[:5])) from None


def _complaint(error: Any) -> str:
    """What is wrong with a field, where it stands (counted from 1), and the mend."""
    *above, name = error["loc"]
    where = "".join(f" {part + 1}, " if isinstance(part, int) else str(part) for part in above)
    what = f"{where.strip(', ')}: '{name}'" if above else f"'{name}'"
    if error["type"] == "missing":
        return f"{what} is missing. Add it."
    if error["type"] == "extra_forbidden":
        return f"{what} is not a field of the format. Remove it, or correct its name."
    message = error["msg"].removeprefix("Value error, ")
    return f"{what} is {error['input']!r}: {message[0].lower()}{message[1:]}. Correct it."


def _written(path: Path) -> tuple[Question, ...]:
    file: _QuestionsFile = _read(path, _QuestionsFile)
    return tuple(
        Question(
            id=entry.id,
            category=entry.category,
            turns=tuple(
                QuestionTurn(text=turn.text, references={"gold": turn.reference}, facts=turn.facts)
                for turn in entry.turn
            ),
        )
        for entry in file.question
    )


def _fetched(file: _TaskFile) -> tuple[Question, ...]:
    """MT-Bench's questions of the task's categories, with all three sets of references."""
    if file.source != "mt-bench":
        raise BadTask(f"task '{file.name}': source '{file.source}' is unknown. Known: mt-bench.")
    folder = assets.fetch("mt-bench")
    sets = {
        name: {row["question_id"]: row["choices"][0]["turns"] for row in _lines(folder / path)}
        for name, path in (("corrected", "gpt-4-0125-preview.jsonl"), ("original", "gpt-4.jsonl"))
    }
    questions: list[Question] = []
    for row in _lines(folder / "question.jsonl"):
        if row["category"] not in file.categories:
            continue
        number, gold = row["question_id"], row.get("reference", [])
        turns = [
            QuestionTurn(
                text=text,
                references={
                    "gold": gold[at] if at < len(gold) and gold[at] else None,
                    **{name: found[number][at] if number in found else None for name, found in sets.items()},
                },
            )
            for at, text in enumerate(row["turns"])
        ]
        questions.append(Question(id=str(number), category=row["category"], turns=tuple(turns)))
    return tuple(questions)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _check(folder: Path, file: _TaskFile, questions: Sequence[Question]) -> None:
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise BadTask(f"{folder}: question id '{question.id}' stands twice. Ids must differ.")
        seen.add(question.id)
        if question.category not in file.categories:
            raise BadTask(
                f"{folder}: question '{question.id}' has category '{question.category}', "
                f"the task has: {', '.join(file.categories)}. Correct one of them."
            )
        for number, turn in enumerate(question.turns, 1):
            facts = [fact.name for fact in turn.facts]
            if len(set(facts)) < len(facts):
                raise BadTask(
                    f"{folder}: question '{question.id}', turn {number}: two facts have one name "
                    f"({', '.join(facts)}). Names must differ."
                )
    for category in file.categories:
        if not any(question.category == category for question in questions):
            raise BadTask(f"{folder}: category '{category}' has no question. Remove it or add one.")
