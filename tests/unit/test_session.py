"""The session runner against the system whose answer is known, on a virtual clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kamebench.audio import FRAME_SAMPLES, SAMPLE_RATE, Pcm, pcm_sha256, read_two_tracks, seconds
from kamebench.clock import VirtualClock
from kamebench.llm.base import TurnContext
from kamebench.records import SpokenTurn
from kamebench.session import Playing, Recorded, Timing, TurnInput, record
from kamebench.systems.scripted import ScriptedOptions, ScriptedSystem
from kamebench.vad.base import StreamingDetector


class Loud(StreamingDetector):
    name = "loud"

    def is_speech(self, pcm: Pcm) -> bool:
        return bool(np.abs(pcm).max() > 0.01)


def turn(number: int, speech_s: float = 1.5, tail_s: float = 0.3) -> TurnInput:
    pcm = np.zeros(seconds(0.1 + speech_s + tail_s), np.float32)
    pcm[seconds(0.1) : seconds(0.1 + speech_s)] = 0.1
    spoken = SpokenTurn(
        text_written="What is it?",
        text_spoken="What is it?",
        audio_sha256=pcm_sha256(pcm),
        n_samples=len(pcm),
        speech_start_sample=seconds(0.1),
        speech_end_sample=seconds(0.1 + speech_s),
        engine="test",
        engine_version="1",
        voice="test",
    )
    return TurnInput(number, spoken, pcm, TurnContext("test", "q1", "stem", number))


async def play(folder: Path, n_turns: int = 1, timing: Timing | None = None, **options: Any) -> Recorded:
    clock = VirtualClock()
    system = ScriptedSystem(ScriptedOptions(**options))
    await system.start()
    how = Playing("virtual", clock=clock, timing=timing or Timing())
    turns = [turn(i + 1) for i in range(n_turns)]
    return await clock.run(record(system, turns, folder, Loud(), how))


def onset_of(folder: Path, after: int) -> int | None:
    _, system = read_two_tracks(folder / "audio.flac")
    loud = np.flatnonzero(np.abs(system[after:]) > 0.003)
    return after + int(loud[0]) if len(loud) else None


@pytest.mark.parametrize("latency_ms", [0.0, 37.0, 400.0, 2000.0, 9_990.0, -300.0, -1_000.0])
async def test_the_answer_is_heard_at_exactly_the_chosen_sample(tmp_path: Path, latency_ms: float) -> None:
    result = await play(tmp_path, latency_ms=latency_ms)
    mark = result.marks[0]
    heard = onset_of(tmp_path, mark.user_start_sample)
    assert heard is not None
    assert abs(heard - mark.user_end_sample - latency_ms * SAMPLE_RATE / 1000) < SAMPLE_RATE // 100
    assert mark.end_reason == "quiet"
    assert result.fault is None


async def test_silence_ends_the_turn_with_its_window(tmp_path: Path) -> None:
    result = await play(tmp_path, latency_ms=None)
    mark = result.marks[0]
    assert mark.end_reason == "no_response"
    assert 0 <= mark.end_sample - mark.window_end_sample < FRAME_SAMPLES
    assert onset_of(tmp_path, 0) is None


async def test_an_endless_answer_is_cut_at_the_limit(tmp_path: Path) -> None:
    result = await play(tmp_path, answer_s=90.0)
    mark = result.marks[0]
    assert mark.end_reason == "limit"
    assert 0 <= mark.end_sample - mark.user_end_sample - seconds(60) < FRAME_SAMPLES


async def test_a_greeting_is_not_talked_over(tmp_path: Path) -> None:
    result = await play(tmp_path, greeting_s=0.5, answer_s=4.0)
    mark = result.marks[0]
    assert mark.start_sample >= seconds(0.5 + 4.0 + 2.0 - 0.1)  # the sentence fades out
    assert mark.waited_s >= 5.0


async def test_two_turns_share_one_session(tmp_path: Path) -> None:
    result = await play(tmp_path, n_turns=2)
    first, second = result.marks
    assert second.start_sample >= first.end_sample
    assert onset_of(tmp_path, second.user_start_sample) is not None


async def test_a_flush_takes_back_what_was_not_heard(tmp_path: Path) -> None:
    result = await play(tmp_path, latency_ms=400.0, flush_after_ms=500.0)
    _, system = read_two_tracks(tmp_path / "audio.flac")
    end = result.marks[0].user_end_sample + seconds(0.9)
    assert np.abs(system[:end]).max() > 0.05
    assert np.abs(system[end:]).max() == 0


@pytest.mark.parametrize(("fault", "kind"), [("error", "scripted"), ("close", "closed"), ("stall", "stall")])
async def test_a_fault_spoils_its_turn_and_keeps_the_one_before(
    tmp_path: Path, fault: str, kind: str
) -> None:
    timing = Timing(stall_s=0.05)
    result = await play(tmp_path, n_turns=3, timing=timing, fault=fault, fault_turn=2, fault_after_ms=200.0)
    assert [mark.turn for mark in result.marks] == [1]
    assert result.fault is not None
    assert (result.fault.kind, result.fault.party, result.fault.turn) == (kind, "system", 2)
    user, system = read_two_tracks(tmp_path / "audio.flac")
    assert len(user) == len(system) == result.n_samples


async def test_an_interrupted_session_leaves_no_whole_file(tmp_path: Path) -> None:
    class Broken(Loud):
        def is_speech(self, pcm: Pcm) -> bool:
            raise RuntimeError("interrupted")

    system = ScriptedSystem(ScriptedOptions())
    await system.start()
    clock = VirtualClock()
    with pytest.raises(RuntimeError, match="interrupted"):
        await clock.run(record(system, [turn(1)], tmp_path, Broken(), Playing("virtual", clock=clock)))
    assert not (tmp_path / "audio.flac").exists()
    assert not (tmp_path / "events.jsonl").exists()


async def test_the_user_track_is_the_audio_that_was_given(tmp_path: Path) -> None:
    result = await play(tmp_path)
    user, _ = read_two_tracks(tmp_path / "audio.flac")
    mark = result.marks[0]
    assert np.abs(user[: mark.user_start_sample]).max() == 0
    assert np.allclose(user[mark.user_start_sample : mark.user_end_sample], 0.1, atol=1e-4)
    assert np.abs(user[mark.user_end_sample :]).max() == 0


async def test_frames_go_out_on_the_schedule(tmp_path: Path) -> None:
    result = await play(tmp_path)
    assert result.marks[0].pacing.max_ms < 1.0
