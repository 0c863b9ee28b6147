"""What is rebuilt from an injection log, on hand-made logs and on the recorded golden cases."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kamebench.audio import FRAME_SAMPLES
from kamebench.errors import BadRun
from kamebench.events import AudioOut
from kamebench.oracle.log import (
    Chunk,
    Header,
    Injection,
    LogWriter,
    OracleLog,
    Request,
    RequestEnd,
    Step,
    read,
)
from kamebench.oracle.rebuild import (
    TurnWindow,
    last_completed,
    last_injected,
    oracle_at_onset,
    rebuild_stream,
    step_heard,
    step_heard_at,
    summarise,
)
from tests.unit.oracle_parts import INITIAL, PAD


def request(number: int, frame: int) -> Request:
    return Request(
        request_id=number,
        frame=frame,
        t_ns=0,
        reason="final",
        trigger="",
        committed="",
        pending="",
        committed_words=0,
        pending_words=0,
        messages_sha256=None,
        temperature=0.0,
    )


def reset(number: int, frame: int) -> Injection:
    return Injection(request_id=number, frame=frame, t_ns=0, reset=True)


def append(number: int, frame: int, text: str, tokens: tuple[int, ...]) -> Injection:
    pieces = tuple("▁" + word for word in text.split())
    return Injection(
        request_id=number, frame=frame, t_ns=0, reset=False, text=text, tokens=tokens, pieces=pieces
    )


def end(number: int, frame: int, outcome: str = "completed") -> RequestEnd:
    return RequestEnd(request_id=number, frame=frame, t_ns=0, outcome=outcome)  # type: ignore[arg-type]


def make(rows: list[object], n_frames: int = 100) -> OracleLog:
    log = OracleLog(Header(pad_id=PAD, initial_id=INITIAL))
    for row in rows:
        log.add(row)  # type: ignore[arg-type]
    for frame in range(n_frames):
        log.add(Step(frame=frame, oracle=PAD))
    return log


@pytest.mark.parametrize("case", ["four_stream_fp32", "delay2_fp32", "legacy_three_stream_fp32"])
def test_golden_cases_consume_what_the_log_says(shared: Path, case: str) -> None:
    from safetensors.numpy import load_file

    folder = shared / "golden" / case
    spec = json.loads((folder / "case.json").read_text())
    rows: list[object] = []
    for event in spec["events"]:
        if event["action"] == "reset":
            rows.append(reset(1, event["frame"]))
        else:
            tokens = tuple(event["tokens"])
            rows.append(append(1, event["frame"], " w" * len(tokens), tokens))
    expected = load_file(folder / "expected.safetensors")["oracle_tokens"].tolist()
    config = json.loads((folder / "lm_config.json").read_text())
    log = make(rows, spec["frames"])
    log.header = Header(pad_id=config["existing_text_padding_id"], initial_id=config["text_card"])
    assert list(rebuild_stream(log) or ()) == expected


TWO = [
    request(1, 10),
    Chunk(request_id=1, frame=12, t_ns=0, text="half"),
    reset(1, 12),
    append(1, 12, "half", (11,)),
    end(1, 20, "cancelled"),
    request(2, 20),
    Chunk(request_id=2, frame=22, t_ns=0, text="The whole"),
    Chunk(request_id=2, frame=40, t_ns=0, text=" truth"),
    reset(2, 22),
    append(2, 22, "The whole", (12, 13)),
    append(2, 40, " truth", (14,)),
    end(2, 41),
]


def test_last_oracle_of_a_turn() -> None:
    log = make(TWO)
    last = last_injected(log, TurnWindow(5, 60))
    assert (last.text, last.begun_frame, last.request_ids, last.completed) == (
        "The whole truth",
        22,
        (2,),
        True,
    )
    assert (last.tokens, last.consumed, last.consumed_share) == (3, 2, 2 / 3)
    assert last.consumed_text == "The whole"
    # The turn ends before the second stream began: the first one counts, though it never completed.
    early = TurnWindow(5, 22)
    assert last_injected(log, early).text == "half"
    assert last_completed(log, early).text is None
    assert "finished" in last_completed(log, early).reason
    # A stream begun before the user's first sample belongs to the turn before.
    assert last_injected(log, TurnWindow(23, 60)).text is None
    assert last_injected(log, TurnWindow(23, 60)).reason == "no request was made in this turn"
    # Completed only after the turn's end is not completed.
    assert last_injected(log, TurnWindow(5, 30)).text == "The whole truth"
    assert last_completed(log, TurnWindow(5, 30)).text is None
    assert last_injected(log).text == "The whole truth"


def test_a_stream_that_only_reset_is_no_oracle() -> None:
    log = make([*TWO, request(3, 50), reset(3, 52)])
    assert last_injected(log, TurnWindow(5, 60)).text == "The whole truth"


def test_oracle_at_onset() -> None:
    log = make(TWO)
    at = oracle_at_onset(log, 23, TurnWindow(5, 60))
    assert (at.consumed_text, at.consumed, at.injected_text, at.injected) == ("The", 1, "The whole", 2)
    assert at.full_text == "The whole truth"
    assert oracle_at_onset(log, 22, TurnWindow(5, 60)).consumed_text == ""
    assert oracle_at_onset(log, 50, TurnWindow(5, 60)).consumed_text == "The whole"
    assert "before the onset" in oracle_at_onset(log, 11).reason
    assert "before this turn" in oracle_at_onset(log, 30, TurnWindow(25, 60)).reason


def test_the_step_heard_at_a_sample() -> None:
    assert step_heard_at(1920 * 8) == 7
    assert step_heard_at(1920 * 9 - 1) == 7


def test_late_output_is_heard_late() -> None:
    block = np.zeros(FRAME_SAMPLES, np.float32)

    def out(frame: int, late_ms: int) -> AudioOut:
        return AudioOut((frame * 80 + late_ms) * 1_000_000, frame, block, synchronous=True)

    on_time = [out(k, 0) for k in range(10)]
    assert [step_heard(on_time, 1920 * k) for k in (0, 1, 8, 9, 10, 11)] == [None, 0, 7, 8, 9, None]
    assert [step_heard_at(1920 * k) for k in (1, 8)] == [0, 7]
    # Frame 4 came two frames late; all after it queue behind it.
    late = [out(k, 240 if k == 4 else 0) for k in range(10)]
    assert [step_heard(late, 1920 * k) for k in (4, 5, 6, 7, 8, 11)] == [3, None, None, 4, 5, 8]


def test_a_turns_window_in_steps() -> None:
    from kamebench.records import Pacing, SpokenTurn, TurnMark

    spoken = SpokenTurn(
        text_written="a",
        text_spoken="a",
        audio_sha256="0" * 64,
        n_samples=10,
        speech_start_sample=0,
        speech_end_sample=1,
        engine="e",
        engine_version="1",
        voice="v",
    )
    mark = TurnMark(
        turn=1,
        spoken=spoken,
        start_sample=0,
        user_start_sample=1921,
        user_end_sample=3000,
        window_end_sample=9000,
        end_sample=3840,
        end_reason="quiet",
        waited_s=0,
        pacing=Pacing(p50_ms=0, p99_ms=0, max_ms=0),
    )
    assert TurnWindow.of(mark) == TurnWindow(2, 2)


def test_summary_counts_what_was_never_seen() -> None:
    summary = summarise(make(TWO))
    assert (summary.tokens_injected, summary.tokens_consumed, summary.tokens_late) == (4, 3, 1)
    assert (summary.completed, summary.cancelled) == (1, 1)
    # Stream 1 was read out at step 13, its request ran until 20; stream 2 at 24, until 41 (25 and on).
    assert summary.starved_frames == len(range(14, 20)) + len(range(25, 41))
    assert summary.longest_staleness_frames == 99 - 40


def test_a_log_survives_the_disk(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, Header(pad_id=PAD, initial_id=INITIAL, settings={"policy": "released"}))
    for row in TWO:
        writer.write(row)  # type: ignore[arg-type]
    assert not (tmp_path / "oracle.jsonl").exists()
    writer.close()
    back = read(tmp_path)
    assert back.injections == writer.log.injections
    assert back.header.settings == {"policy": "released"}
    assert back.answer(2) == "The whole truth"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"kind":"header","schema_version":9}\n', "schema version 9"),
        ('{"kind":"step","frame":1,"oracle":3}\n{"kind":"st', "line 2"),
        ('{"kind":"step","frame":1,"oracle":3,"extra":1}\n', "line 1"),
        ('{"kind":"rumour"}\n', "line 1"),
    ],
)
def test_a_damaged_log_is_refused_by_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "oracle.jsonl").write_text(text)
    with pytest.raises(BadRun, match=says):
        read(tmp_path)


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRun, match="no injection log"):
        read(tmp_path / "oracle.jsonl")
