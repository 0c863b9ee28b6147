"""A KAME run taken apart: the loop's own log, every point judged, the back-end asked as in the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from kamebench import store
from kamebench.asr.scripted import ScriptedResult
from kamebench.clock import VirtualClock
from kamebench.errors import BackendFault, BadRun, UserError
from kamebench.judge import open_judge, score_run
from kamebench.judge.ablations import ABLATIONS, LADDER, ablate, ask_backend, read, requests_of, rows_of
from kamebench.judge.asking import Asker
from kamebench.llm.base import ChatRequest, Completion
from kamebench.oracle import log as oracle_log
from kamebench.oracle.loop import LoopSettings
from kamebench.store import Run, open_run
from tests.synthetic import Planted, make_run
from tests.unit.judge_parts import Answering, make_task
from tests.unit.oracle_parts import Answer, play

# The planted turns: user 1.0-3.0 s and 7.0-9.0 s, onset 0.4 s later (steps 41 and 116).
HEARD = [
    ScriptedResult(20, "question b"),
    ScriptedResult(40, "Question b turn 1?", final=True),
    ScriptedResult(95, "question b"),
    ScriptedResult(115, "Question b turn 2?", final=True),
]
ANSWERS = [
    Answer(((300, "It"), (340, " is water"), (3000, " never")), end_ms=3100),
    Answer(((240, "It is"), (300, " H two O.")), end_ms=420),
    Answer(((2000, "Too late"),), end_ms=2100),
    Answer(((240, "At 100"), (300, " degrees.")), end_ms=420),
]
SETTINGS = LoopSettings(temperature=0.7, instructions="Whisper the answer.")


async def kame_run(folder: Path) -> Run:
    plan = {"b": [Planted(text="It is H2O."), Planted(text="Hot.")]}
    run = make_run(folder, plan, system="kame", backend="timed", categories={"b": "stem"})
    clock = VirtualClock()
    await clock.run(
        play(
            clock,
            run.session_folder("b"),
            HEARD,
            ANSWERS,
            n_frames=163,
            settings=SETTINGS,
            says={50: "Hello", 60: "there", 130: "bye"},
        )
    )
    transcripts = run.transcripts
    assert transcripts is not None
    own = [
        row.model_copy(update={"own_text": "H two O" if row.turn == 1 else ""}) for row in transcripts.turns
    ]
    store.write_record(run.path / store.TRANSCRIPTS, transcripts.model_copy(update={"turns": tuple(own)}))
    store.seal(run.path)
    return open_run(run.path)


def asker(answer: str = "It is H2O, at 100 degrees.") -> tuple[Asker, Answering]:
    backend = Answering(lambda request: answer, family="local")
    return Asker(lambda: backend, clock=VirtualClock()), backend


async def test_the_back_end_is_asked_as_the_loop_asked_it(tmp_path: Path) -> None:
    """The question's text is what was finally heard, so both requests must be the same."""
    run = await kame_run(tmp_path)
    log = oracle_log.read(run.session_folder("b"))
    made = requests_of(run, make_task())
    for turn, number in ((1, 2), (2, 4)):
        request = made["b", turn]
        assert isinstance(request, ChatRequest)
        asked = log.requests[number - 1]
        assert asked.turn is None and asked.request_id == number
        assert request.messages == log.messages[asked.messages_sha256 or ""]
        assert request.temperature == asked.temperature == 0.7
    request = made["b", 2]
    assert isinstance(request, ChatRequest)
    assert request.messages[0].content == "Whisper the answer."
    assert request.messages[1].content.splitlines() == [
        "user: Question b turn 1?",
        "assistant: Hello there",
        "user: Question b turn 2?",
    ]
    assert request.context is not None
    assert (request.context.question_id, request.context.turn) == ("b", 2)


async def test_every_point_is_judged_and_the_differences_add_up(tmp_path: Path) -> None:
    run = await kame_run(tmp_path)
    backend, _ = asker()
    ladder = await ablate(run, open_judge("facts"), task=make_task(), backend=backend)
    scores = {
        what: [v.score for v in open_run(run.path).scores[f"facts.{what}"].turns] for what in ladder.scores
    }
    assert scores == {
        "backend-text": [10, 10],
        "oracle-last": [10, 10],
        "oracle-completed": [10, 10],
        "oracle-onset-full": [1, 1],  # at the onset of turn 1 the early request; of turn 2 nothing yet
        "oracle-onset-injected": [1, 1],
        "oracle-onset": [1, 1],
        "text-stream": [10, 1],
        "spoken": [10, 1],
    }
    answers = {
        what: [v.answer for v in open_run(run.path).scores[f"facts.{what}"].turns] for what in ladder.scores
    }
    assert answers["oracle-last"] == ["It is H two O.", "At 100 degrees."]
    assert answers["oracle-onset-full"][0] == "It is water"  # cut off by the restart at the final result
    assert answers["oracle-onset-injected"][0] == "It is water"
    assert open_run(run.path).scores["facts.oracle-onset"].turns[1].status == "silent"
    steps = {(step.start, step.to): step.difference for step in ladder.steps}
    assert steps["backend-text", "oracle-last"] == 0
    assert steps["oracle-last", "text-stream"] == -4.5
    assert steps["backend-text", "spoken"] == -4.5
    assert rows_of(ladder, "spoken") == {"overall": 5.5, "stem": 5.5}
    assert all(step.low is None and step.reason for step in ladder.steps)  # one question: no interval
    file = read(run)
    assert file is not None and file.ladders == {"facts": ladder}
    open_run(run.path).check()


async def test_stored_answers_are_judged_again_without_the_back_end(tmp_path: Path) -> None:
    run = await kame_run(tmp_path)
    backend, asked = asker()
    await ablate(run, open_judge("facts"), task=make_task(), backend=backend)
    before = (run.path / ABLATIONS).read_bytes()

    def gone() -> Answering:
        raise AssertionError("asked again")

    await ablate(run, open_judge("facts"), task=make_task(), backend=Asker(gone))
    assert len(asked.requests) == 2
    assert (run.path / ABLATIONS).read_bytes() == before


async def test_a_failed_request_leaves_its_turn_missing_and_is_asked_about_again(tmp_path: Path) -> None:
    run = await kame_run(tmp_path)
    failing = Answering(lambda request: "")

    async def fail(request: ChatRequest) -> Completion:
        raise BackendFault("planted", kind="bad_request")

    failing.complete = fail  # type: ignore[method-assign]
    await ask_backend(run, make_task(), Asker(lambda: failing, clock=VirtualClock()))
    file = await score_run(run, open_judge("facts"), task=make_task(), what="backend-text")
    assert {v.status for v in file.turns} == {"missing"}
    assert "bad_request" in file.turns[0].reason
    backend, asked = asker()
    await ask_backend(run, make_task(), backend)
    assert len(asked.requests) == 2


async def test_it_is_said_what_to_do_first(tmp_path: Path) -> None:
    run = await kame_run(tmp_path / "kame")
    with pytest.raises(BadRun, match="--ablations"):
        await score_run(run, open_judge("facts"), task=make_task(), what="backend-text")
    plain = make_run(tmp_path / "plain", {"b": [Planted()]}, categories={"b": "stem"})
    with pytest.raises(UserError, match="no injection log"):
        await ablate(plain, open_judge("facts"), task=make_task(), backend=asker()[0])


def test_the_ladder_covers_what_can_be_scored() -> None:
    assert LADDER[0] == "backend-text" and LADDER[-1] == "spoken"
