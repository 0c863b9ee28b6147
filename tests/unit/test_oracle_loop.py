"""The tandem loop against a timed back-end and recogniser: every frame of its log is known beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from kamebench.asr.scripted import ScriptedResult
from kamebench.clock import VirtualClock
from kamebench.errors import BackendFault, EngineFault
from kamebench.events import Fault, Heard, OracleIn
from kamebench.oracle import log as oracle_log
from kamebench.oracle.loop import LoopSettings, Overflow
from kamebench.oracle.rebuild import last_completed, last_injected, rebuild_stream, staleness, starved
from tests.unit.oracle_parts import INITIAL, PAD, Answer, Played, play

# Polls come with the first frame at or after each half second: frames 7, 13, 19, 25, 32, 38, ...
HEARD = [
    ScriptedResult(4, "what is"),
    ScriptedResult(10, "what is the"),  # one word more: no restart at 13
    ScriptedResult(15, "what is the capital"),  # two more than at the start: restart at 19
    ScriptedResult(22, "what is the capital of France?", final=True),  # restart at 25
]
ANSWERS = [
    Answer(((300, "It"), (2000, " never comes"))),
    Answer(((330, "A"), (350, " guess"))),
    Answer(((250, "Paris"), (390, " is"), (410, " the answer.")), end_ms=420),
]


async def run(folder: Path, **changes: object) -> Played:
    clock = VirtualClock()
    plan = {"heard": HEARD, "answers": ANSWERS, "n_frames": 45} | changes
    return await clock.run(play(clock, folder, **plan))  # type: ignore[arg-type]


async def test_every_request_and_injection_falls_on_its_frame(tmp_path: Path) -> None:
    played = await run(tmp_path)
    log = oracle_log.read(tmp_path)
    assert [(r.frame, r.reason, r.trigger) for r in log.requests] == [
        (7, "first", "what is"),
        (19, "grown", "what is the capital"),
        (25, "final", "what is the capital of France?"),
    ]
    assert [(r.committed_words, r.pending_words) for r in log.requests] == [(0, 2), (0, 4), (6, 0)]
    # A chunk due t ms after frame f's beat is applied before the first step at or after 80 f + t ms.
    assert [(i.frame, i.request_id, i.reset, i.text) for i in log.injections] == [
        (11, 1, True, ""),
        (11, 1, False, "It"),
        (24, 2, True, ""),
        (24, 2, False, "A"),
        (24, 2, False, " guess"),
        (29, 3, True, ""),
        (29, 3, False, "Paris"),
        (30, 3, False, " is"),
        (31, 3, False, " the answer."),
    ]
    assert {n: (e.outcome, e.frame, e.reason) for n, e in log.ends.items()} == {
        1: ("cancelled", 19, "superseded"),
        2: ("cancelled", 25, "superseded"),
        3: ("completed", 31, ""),
    }
    assert log.ends[3].finish_reason == "stop"
    assert (log.ends[3].input_tokens, log.ends[3].output_tokens) == (7, 3)
    assert played.backend.closed == [1, 2, 3]


async def test_what_the_model_consumed_is_rebuilt_from_the_log_alone(tmp_path: Path) -> None:
    played = await run(tmp_path)
    log = oracle_log.read(tmp_path)
    it, a, guess, paris, is_ = (played.tokenizer.encode(w)[0] for w in ("It", "A", "guess", "Paris", "is"))
    the, answer = played.tokenizer.encode("the answer.")
    expected = [PAD] * 45
    expected[11:13] = [INITIAL, it]
    expected[24:27] = [INITIAL, a, guess]
    expected[29:34] = [INITIAL, paris, is_, the, answer]
    assert played.model.consumed == expected
    assert rebuild_stream(log) == tuple(expected)
    assert [step.oracle for step in log.steps] == expected
    assert staleness(log)[10:13] == (None, 0, 1)
    assert starved(log) == (13, 14, 15, 16, 17, 18)  # request 1 ran until frame 19 and had no more
    assert last_injected(log).text == "Paris is the answer."
    assert last_completed(log).consumed_share == 1.0


async def test_events_tell_the_same_as_the_log(tmp_path: Path) -> None:
    played = await run(tmp_path)
    updates = [e for e in played.events if isinstance(e, OracleIn)]
    assert [(e.frame, e.text, e.tokens, e.reset) for e in updates] == [
        (i.frame, i.text, i.tokens, i.reset) for i in played.log.injections
    ]
    assert [(e.text, e.final) for e in played.events if isinstance(e, Heard)] == [
        (h.text, h.final) for h in HEARD
    ]


async def test_messages_hold_both_sides_and_the_pending_words(tmp_path: Path) -> None:
    heard = [ScriptedResult(2, "hello there", final=True), ScriptedResult(15, "and now")]
    played = await run(tmp_path, heard=heard, answers=[Answer(end_ms=10)], says={9: "Hi", 10: "friend"})
    assert [m.role for m in played.backend.asked[-1].messages] == ["system", "user"]
    assert played.backend.asked[-1].messages[1].content == (
        "user: hello there\nassistant: Hi friend\nuser: and now"
    )
    log = oracle_log.read(tmp_path)
    assert log.messages[log.requests[-1].messages_sha256 or ""] == played.backend.asked[-1].messages
    assert log.steps[9].piece == "▁Hi"


async def test_lockstep_does_not_charge_the_models_time_and_does_charge_the_backends(tmp_path: Path) -> None:
    """With steps of 900 ms each the injections stay where they are with steps that take none."""
    slow = await run(tmp_path, step_ms=900)
    assert [(i.frame, i.text) for i in slow.log.injections if not i.reset][-3:] == [
        (29, "Paris"),
        (30, " is"),
        (31, " the answer."),
    ]


@pytest.mark.parametrize(
    ("overflow", "applied", "dropped"),
    [
        ("drop-chunks", ["RESET 1", "a", " b", "RESET 2"], ["c", "x", " y"]),
        ("drop-as-released", ["RESET 1", "a", " b"], ["c", "RESET 2", "x", " y"]),
        ("keep", ["RESET 1", "a", " b", " c", "RESET 2", "x", " y"], []),
    ],
)
async def test_two_answers_meet_a_queue_of_three(
    tmp_path: Path, overflow: Overflow, applied: list[str], dropped: list[str]
) -> None:
    """The model stalls for ten frames meanwhile. Only the released way loses a reset."""
    answers = [Answer(((10, "a"), (11, " b"), (12, " c"))), Answer(((10, "x"), (11, " y")), end_ms=12)]
    heard = [ScriptedResult(2, "one"), ScriptedResult(10, "one two three")]
    settings = LoopSettings(capacity=3, overflow=overflow)
    played = await run(
        tmp_path, heard=heard, answers=answers, n_frames=25, settings=settings, stalled=range(6, 16)
    )
    log = oracle_log.read(tmp_path)
    assert [f"RESET {i.request_id}" if i.reset else i.text for i in log.injections] == applied
    assert [f"RESET {d.request_id}" if d.reset else d.text.strip() for d in log.dropped] == [
        d.strip() for d in dropped
    ]
    assert log.summary is not None
    assert log.summary.chunks_dropped + log.summary.resets_dropped == len(dropped)
    assert list(rebuild_stream(log) or ()) == played.model.consumed


async def test_a_failed_backend_is_a_fault_of_the_backend_and_the_log_is_whole(tmp_path: Path) -> None:
    answers = [Answer(((100, "Well"),), end_ms=150, fault="timeout")]
    played = await run(tmp_path, answers=answers)
    assert isinstance(played.error, BackendFault)
    faults = [e for e in played.events if isinstance(e, Fault)]
    assert [(f.party, f.fault, f.retryable) for f in faults] == [("backend", "timeout", True)]
    log = oracle_log.read(tmp_path)
    assert (log.ends[1].outcome, log.ends[1].frame) == ("failed", 9)
    assert log.summary is not None
    assert log.summary.failed == 1


async def test_a_failed_backend_may_be_spoken_over(tmp_path: Path) -> None:
    answers = [Answer(end_ms=50, fault="overloaded"), ANSWERS[2]]
    settings = LoopSettings(on_backend_fault="continue")
    played = await run(tmp_path, answers=answers, settings=settings)
    assert played.error is None
    assert not [e for e in played.events if isinstance(e, Fault)]
    assert [played.log.ends[n].outcome for n in (1, 3)] == ["failed", "completed"]


async def test_a_failed_recogniser_is_a_fault_of_the_recogniser(tmp_path: Path) -> None:
    played = await run(tmp_path, heard=[ScriptedResult(3, fault=True)])
    assert isinstance(played.error, EngineFault)
    assert [e.party for e in played.events if isinstance(e, Fault)] == ["recogniser"]


async def test_a_backend_that_never_answers_delays_no_frame(tmp_path: Path) -> None:
    played = await run(tmp_path, answers=[Answer()])
    assert played.error is None
    assert len(played.model.consumed) == 45
    assert played.log.injections == []
    assert played.log.ends[3].reason == "the session ended"
    assert last_injected(played.log).reason.startswith("nothing was injected")


async def test_word_safe_chunks_keep_words_whole(tmp_path: Path) -> None:
    answers = [Answer(((10, "un"), (200, "believable"), (400, " story")), end_ms=500)]
    heard = [ScriptedResult(2, "tell me", final=True)]
    released = await run(tmp_path, heard=heard, answers=answers, n_frames=20)
    assert last_injected(released.log).consumed_text == "un believable"  # and ' story' came too late
    settings = LoopSettings(chunking="word-safe")
    safe = await run(tmp_path, heard=heard, answers=answers, n_frames=20, settings=settings)
    assert last_injected(safe.log).text == "unbelievable story"
    assert [i.text for i in safe.log.injections if not i.reset] == ["unbelievable", " story"]
