"""Whole runs of the scripted system: complete, interrupted, resumed, faulted, too dear, unscored."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kamebench import runner, store
from kamebench.asr.base import Recognised, Recogniser
from kamebench.audio import Pcm
from kamebench.cli.run import command
from kamebench.errors import BadConfig, BadRun, JudgeFault, UserError
from kamebench.llm.cost import CostLimit
from kamebench.plan import RunPlan
from kamebench.systems import SystemFile

TASK = """
name = "tiny"
version = "1"
about = "two questions"
questions = "questions.toml"
categories = ["a", "b"]
"""
QUESTIONS = """
[[question]]
id = "q1"
category = "a"
[[question.turn]]
text = "What is six times seven?"
reference = "Forty two."
facts = [{ name = "number", accepts = ["forty two"] }]
[[question.turn]]
text = "Say it again."
reference = "Forty two."
facts = [{ name = "number", accepts = ["forty two"] }]

[[question]]
id = "q2"
category = "b"
[[question.turn]]
text = "What is the capital of France?"
reference = "Paris."
facts = [{ name = "city", accepts = ["Paris"] }]
"""


class Saying(Recogniser):
    name = "saying"

    def transcribe(self, pcm: Pcm) -> Recognised:
        return Recognised("The answer is forty two.")


class Killed(BaseException):
    """As an interrupt from outside."""


class Quiet:
    def stage(self, title: str, total: int) -> None:
        pass

    def step(self, note: str = "") -> None:
        pass


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAMEBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(runner, "open_recogniser", lambda name: Saying())
    folder = tmp_path / "tasks" / "tiny"
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text(TASK)
    (folder / "questions.toml").write_text(QUESTIONS)
    return tmp_path


def plan(**changes: Any) -> RunPlan:
    options = changes.pop("options", {})
    file = SystemFile(name="scripted", adapter="scripted", description="-", options=options)
    base = RunPlan(system=file, backend=None, task="tiny", questions=("q1", "q2"), voice="espeak")
    return base.model_copy(update=changes)


async def run(root: Path, **changes: Any) -> store.Run:
    return await runner.start(plan(**changes), root / "results", root, Quiet())


def only_run(root: Path) -> Path:
    (manifest,) = (root / "results").glob("*/*/*/manifest.json")
    return manifest.parent


async def test_a_whole_run_is_complete_sealed_and_scored(root: Path) -> None:
    done = await run(root)
    done.check()
    table = done.table()
    assert list(table["outcome"]) == ["answered"] * 3
    assert table["latency_ms"].between(390, 410).all()
    assert list(table["score"]) == [10.0, 10.0, 1.0]
    assert done.manifest.status == "complete"
    assert done.manifest.pace == "virtual"
    assert set(done.manifest.audio) == {"q1/1", "q1/2", "q2/1"}


async def test_the_same_question_has_the_same_seed_whatever_else_is_asked(root: Path) -> None:
    both = await run(root)
    alone = await run(root, questions=("q2",))
    assert both.sessions["q2"].seed == alone.sessions["q2"].seed
    assert both.sessions["q1"].seed != both.sessions["q2"].seed


async def test_a_killed_run_goes_on_where_it_stopped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = runner.record

    async def dying(*args: Any) -> Any:
        if args[2].name == "q2":
            raise Killed
        return await record(*args)

    monkeypatch.setattr(runner, "record", dying)
    with pytest.raises(Killed):
        await run(root)
    folder = only_run(root)
    with pytest.raises(BadRun, match="not complete"):
        store.open_run(folder).check()
    kept = store.file_sha256(folder / "sessions" / "q1" / "audio.flac")
    monkeypatch.setattr(runner, "record", record)
    done = await runner.resume(folder, root, Quiet())
    done.check()
    assert store.file_sha256(folder / "sessions" / "q1" / "audio.flac") == kept
    assert len(done.manifest.resumed) == 1
    assert len(done.turns) == 3


async def test_a_recording_changed_between_kill_and_resume_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*args: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(runner, "_derive", failing)
        await run(root)
    folder = only_run(root)
    events = folder / "sessions" / "q1" / "events.jsonl"
    events.write_text(events.read_text() + "\n")
    with pytest.raises(BadRun, match=r"q1/events\.jsonl: is not what was recorded"):
        await runner.resume(folder, root, Quiet())
    shutil.rmtree(events.parent)
    (await runner.resume(folder, root, Quiet())).check()


async def test_usage_adds_up_over_stretches_and_a_killed_one_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = {"openai:m": {"requests": 2, "cost_usd": 0.5, "billed": True, "price": {"input": 3.0}}}
    monkeypatch.setattr("kamebench.systems.scripted.ScriptedSystem.usage", lambda self: usage)
    record = runner.record

    async def stopped(*args: Any) -> Any:
        if args[2].name == "q2":
            raise Killed
        return await record(*args)

    monkeypatch.setattr(runner, "record", stopped)
    with pytest.raises(Killed):
        await run(root)
    folder = only_run(root)
    manifest = store.open_run(folder).manifest
    assert (manifest.cost_usd, manifest.uncounted) == (0.5, 0)
    killed = manifest.model_copy(update={"usage": manifest.usage | {"stretches_uncounted": 1}})
    store.write_record(folder / store.MANIFEST, killed)  # as SIGKILL leaves it
    monkeypatch.setattr(runner, "record", record)
    done = (await runner.resume(folder, root, Quiet())).manifest
    assert (done.cost_usd, done.uncounted) == (1.0, 1)
    assert done.usage["system"]["openai:m"] == {
        "requests": 4,
        "cost_usd": 1.0,
        "billed": True,
        "price": {"input": 3.0},
    }


async def test_two_processes_do_not_work_on_one_run(root: Path) -> None:
    done = await run(root, options={"fault": "error", "fault_turn": 2})
    with store.only_writer(done.path), pytest.raises(BadRun, match="another kamebench"):
        await runner.resume(done.path, root, Quiet(), retry_faults=True)


async def test_a_run_without_faults_has_none_to_play_again(root: Path) -> None:
    done = await run(root)
    before = (done.path / store.MANIFEST).read_bytes()
    with pytest.raises(BadRun, match="nothing to play"):
        await runner.resume(done.path, root, Quiet(), retry_faults=True)
    assert (done.path / store.MANIFEST).read_bytes() == before


async def test_a_system_that_does_not_start_is_found_out_before_anything_is_spoken(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(self: object) -> None:
        raise BadConfig("no key")

    monkeypatch.setattr("kamebench.systems.scripted.ScriptedSystem.start", failing)
    with pytest.raises(BadConfig, match="no key"):
        await run(root)
    assert not (root / "results").exists() and not list((root / "cache").rglob("*.flac"))


def test_resume_takes_no_option_that_would_change_the_run(tmp_path: Path) -> None:
    made = CliRunner().invoke(command, ["--resume", str(tmp_path), "--seed", "3", "--backend", "x"])
    assert isinstance(made.exception, BadConfig)
    assert "leave --backend, --seed out" in str(made.exception)


@pytest.mark.parametrize("field", ["label", "role", "git_commit"])
async def test_a_manifest_edited_by_hand_is_refused(root: Path, field: str) -> None:
    done = await run(root)
    edited = done.manifest.model_copy(update={field: "floor" if field == "role" else "better"})
    store.write_record(done.path / store.MANIFEST, edited)
    with pytest.raises(BadRun, match=r"manifest\.json was changed after the run"):
        store.open_run(done.path).check()


async def test_an_edited_run_is_not_sealed_by_playing_its_faults_again(root: Path) -> None:
    done = await run(root, options={"fault": "error", "fault_turn": 2})
    (done.path / store.TRANSCRIPTS).write_text("{}")
    with pytest.raises(BadRun, match="was changed after the run"):
        await runner.resume(done.path, root, Quiet(), retry_faults=True)
    assert store.open_run(done.path).manifest.status == "complete"


async def test_a_complete_run_is_not_resumed(root: Path) -> None:
    done = await run(root)
    with pytest.raises(BadRun, match="complete"):
        await runner.resume(done.path, root, Quiet())


async def test_a_faulted_question_is_tried_again_as_a_new_attempt(root: Path) -> None:
    done = await run(root, options={"fault": "error", "fault_turn": 2})
    assert [t.fault is not None for t in done.turns] == [False, True, False]
    assert [t.measure.onset.outcome for t in done.turns] == ["answered", "fault", "answered"]
    again = await runner.resume(done.path, root, Quiet(), retry_faults=True)
    again.check()
    assert again.sessions["q1"].attempt == 2
    assert again.sessions["q2"].attempt == 1
    assert (done.path / "attempts" / "q1-1" / "audio.flac").exists()


async def test_a_changed_task_is_not_mixed_in(root: Path) -> None:
    done = await run(root, options={"fault": "error"})
    questions = root / "tasks" / "tiny" / "questions.toml"
    questions.write_text(questions.read_text().replace("six times seven", "six times nine"))
    with pytest.raises(BadRun, match="has changed"):
        await runner.resume(done.path, root, Quiet(), retry_faults=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pace": "lockstep"}, "realtime, virtual"),
        ({"sessions": 5000}, "at most 1024"),
        ({"options": {"latency": 3}}, "latency_ms"),
        ({"voice": "espeakk"}, "espeak"),
    ],
)
async def test_a_plan_that_cannot_be_carried_out_is_refused(
    root: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        await run(root, **changes)
    assert not (root / "results").exists()


async def test_a_judge_that_fails_loses_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*args: Any, **kwargs: Any) -> None:
        raise JudgeFault("no answer")

    score_run = runner.score_run
    monkeypatch.setattr(runner, "score_run", failing)
    with pytest.raises(JudgeFault, match="kamebench score"):
        await run(root)
    kept = store.open_run(only_run(root))
    kept.check()
    assert kept.scores == {}
    monkeypatch.setattr(runner, "score_run", score_run)


async def test_a_limit_of_cost_stops_between_questions(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def too_dear(backend: object, stopped: list[CostLimit]) -> bool:
        asked.append(1)
        if len(asked) == 2:
            stopped.append(CostLimit("the limit is reached."))
        return bool(stopped)

    monkeypatch.setattr(runner, "_too_dear", too_dear)
    with pytest.raises(CostLimit, match="--resume"):
        await run(root)
    monkeypatch.undo()
    monkeypatch.setenv("KAMEBENCH_CACHE", str(root / "cache"))
    monkeypatch.setattr(runner, "open_recogniser", lambda name: Saying())
    done = await runner.resume(only_run(root), root, Quiet(), max_cost=5.0)
    assert len(done.turns) == 3


async def test_sessions_run_side_by_side(root: Path) -> None:
    done = await run(root, sessions=2)
    assert len(done.turns) == 3


def test_a_system_without_a_needed_backend_says_so() -> None:
    from kamebench.systems import Setup, cascade

    with pytest.raises(BadConfig, match="--backend"):
        cascade.create(Setup())
