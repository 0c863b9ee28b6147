"""A stored run is measured from its files, and the same numbers come out again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from click.testing import CliRunner

from kamebench import store
from kamebench.audio import Pcm, TwoTrackWriter, samples_to_ns, seconds
from kamebench.cli.measure import command
from kamebench.errors import BadAudio, BadRun, UserError
from kamebench.events import StageMark, to_json
from kamebench.measure import check_measures, measure_run
from kamebench.records import Pacing, SessionRecord
from tests.synthetic import Planted, make_run


@dataclass
class Steps:
    titles: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def stage(self, title: str, total: int) -> None:
        self.titles.append(f"{title} {total}")

    def step(self, note: str = "") -> None:
        self.notes.append(note)


@pytest.fixture(scope="module")
def voice() -> Pcm:
    """Ends after 1.4 s, in a pause; begins within 10 ms."""
    with (files("kamebench") / "systems" / "scripted.flac").open("rb") as file:
        pcm, _ = sf.read(file, dtype="float32")
    return pcm[: seconds(1.4)]


def spoken_run(folder: Path, voice: Pcm, plan: dict[str, list[Planted]]) -> store.Run:
    """A run whose system track really speaks at the planted latencies."""
    run = make_run(folder, plan)
    for question, session in run.sessions.items():
        place = run.session_folder(question)
        system = np.zeros(session.n_samples + seconds(20), np.float32)
        for mark in session.turns:
            latency = plan[question][mark.turn - 1].latency_ms
            if latency is not None:
                at = mark.user_end_sample + seconds(latency / 1000)
                system[at : at + len(voice)] = voice
        with TwoTrackWriter(place / store.AUDIO) as writer:
            writer.write(np.zeros_like(system), system)
    store.seal(run.path)
    return store.open_run(run.path)


def change(run: store.Run, question: str, **pacing: float) -> None:
    session = run.sessions[question]
    mark = session.turns[0]
    late = Pacing.model_validate(mark.pacing.model_dump() | pacing)
    turns = (mark.model_copy(update={"pacing": late}), *session.turns[1:])
    record = SessionRecord.model_validate(session.model_copy(update={"turns": turns}).model_dump())
    store.write_record(run.session_folder(question) / store.SESSION, record)


def test_planted_latencies_are_measured_and_come_out_again(tmp_path: Path, voice: Pcm) -> None:
    plan = {
        "a": [Planted(latency_ms=400), Planted(latency_ms=1500)],
        "b": [Planted(latency_ms=-500), Planted(latency_ms=None)],
    }
    run, steps = spoken_run(tmp_path, voice, plan), Steps()
    measured = measure_run(run, steps)
    assert steps.titles == ["Measuring 2"] and steps.notes == ["a", "b"]
    rows = {(row.question_id, row.turn): row for row in measured.turns}
    for question, turns in plan.items():
        for number, planted in enumerate(turns, start=1):
            row = rows[question, number]
            if planted.latency_ms is None:
                assert row.onset.outcome == "silent" and row.response_s is None
                assert set(row.sensitivity_ms.values()) == {None}
                continue
            assert row.onset.latency_ms == pytest.approx(planted.latency_ms, abs=12)
            assert row.response_s == pytest.approx(1.4, abs=0.1)
            assert 0 < (row.speech_s or 0) <= (row.response_s or 0)
            assert list(row.sensitivity_ms) == ["edge -6 dB", "edge +6 dB", "webrtc"]
            assert row.sensitivity_ms["edge +6 dB"] == pytest.approx(planted.latency_ms, abs=60)
    assert rows["b", 1].onset.outcome == "premature"
    assert rows["b", 1].talk_over_share == pytest.approx(0.25, abs=0.01)
    assert rows["a", 1].talk_over_share == 0
    assert measured.settings["detector"]["detector"] == "silero"
    store.open_run(run.path).check()  # sealed again
    assert check_measures(store.open_run(run.path)) == 4


def test_a_changed_number_a_changed_recording_or_other_settings_are_found(tmp_path: Path, voice: Pcm) -> None:
    run = spoken_run(tmp_path, voice, {"a": [Planted(latency_ms=400)]})
    measure_run(run)
    path = run.path / store.MEASURES
    whole = path.read_text(encoding="utf-8")
    raw = json.loads(whole)
    raw["turns"][0]["onset"]["latency_ms"] = 40.0
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(BadRun, match="question a, turn 1 comes out differently: onset"):
        check_measures(store.open_run(run.path))
    raw = json.loads(whole)
    raw["settings"]["late_frames_ms"] = 50.0
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(BadRun, match="other settings"):
        check_measures(store.open_run(run.path))
    path.write_text(whole, encoding="utf-8")
    assert check_measures(store.open_run(run.path)) == 1
    with TwoTrackWriter(run.session_folder("a") / store.AUDIO) as writer:
        writer.write(np.zeros(seconds(8), np.float32), np.zeros(seconds(8), np.float32))
    with pytest.raises(BadRun, match="comes out differently"):
        check_measures(store.open_run(run.path))
    path.unlink()
    with pytest.raises(BadRun, match=r"measures\.json"):
        check_measures(store.open_run(run.path))


def test_late_frames_are_flagged_and_very_late_ones_make_a_latency_unusable(
    tmp_path: Path, voice: Pcm
) -> None:
    run = spoken_run(tmp_path, voice, {q: [Planted()] for q in ("a", "b", "c")})
    change(run, "b", max_ms=41.0)
    change(run, "c", max_ms=81.0)
    a, b, c = measure_run(store.open_run(run.path)).turns
    assert (a.flags, a.pacing_usable) == ((), True)
    assert (b.flags, b.pacing_usable) == (("late_frames",), True)
    assert (c.flags, c.pacing_usable) == (("late_frames",), False)


def test_an_answer_cut_by_the_limit_is_flagged(tmp_path: Path, voice: Pcm) -> None:
    run = spoken_run(tmp_path, voice, {"a": [Planted(latency_ms=2700)], "b": [Planted(latency_ms=400)]})
    for question in ("a", "b"):  # a: still speaking 4 s after the user's end; b: not any more
        session = run.sessions[question]
        turns = (session.turns[0].model_copy(update={"end_reason": "limit"}),)
        record = SessionRecord.model_validate(session.model_copy(update={"turns": turns}).model_dump())
        store.write_record(run.session_folder(question) / store.SESSION, record)
    cut, whole = measure_run(store.open_run(run.path)).turns
    assert cut.flags == ("truncated",) and whole.flags == ()
    assert cut.onset.latency_ms == pytest.approx(2700, abs=12)
    assert cut.onset.segments[-1].end <= run.sessions["a"].turns[0].end_sample


def test_speech_before_the_user_is_unprompted(tmp_path: Path, voice: Pcm) -> None:
    run = make_run(tmp_path, {"a": [Planted()]})
    mark = run.sessions["a"].turns[0]
    system = np.zeros(mark.end_sample + seconds(3), np.float32)
    system[mark.user_start_sample - seconds(0.8) :][: len(voice)] = voice
    with TwoTrackWriter(run.session_folder("a") / store.AUDIO) as writer:
        writer.write(np.zeros_like(system), system)
    (row,) = measure_run(run).turns
    assert row.onset.outcome == "carry_over"
    assert row.flags == ("unprompted",)


def test_a_faulted_turn_has_no_measure(tmp_path: Path, voice: Pcm) -> None:
    run = spoken_run(tmp_path, voice, {"a": [Planted(), Planted(fault=True)], "b": [Planted(fault=True)]})
    assert [(row.question_id, row.turn) for row in measure_run(run).turns] == [("a", 1)]
    assert store.open_run(run.path).turns[1].measure.onset.outcome == "fault"


def test_stages_come_from_the_timeline(tmp_path: Path, voice: Pcm) -> None:
    run = spoken_run(tmp_path, voice, {"a": [Planted(latency_ms=900)]})
    end = run.sessions["a"].turns[0].user_end_sample
    marks = [
        StageMark(samples_to_ns(end + seconds(at)), 0, stage)
        for at, stage in ((0.5, "speech_end"), (0.6, "asr_done"), (0.85, "tts_first_chunk"))
    ]
    store.write_text(
        run.session_folder("a") / store.EVENTS, "".join(json.dumps(to_json(mark)) + "\n" for mark in marks)
    )
    (row,) = measure_run(run).turns
    assert row.stages_ms["vad"] == pytest.approx(500, abs=0.1)
    assert list(row.stages_ms) == ["vad", "asr", "tts", "playout"]
    assert sum(row.stages_ms.values()) == pytest.approx(row.onset.latency_ms, abs=1e-6)


def stereo(path: Path, user: Pcm, system: Pcm) -> str:
    with TwoTrackWriter(path) as writer:
        writer.write(user, system)
    return str(path)


def test_the_command_measures_files(tmp_path: Path, voice: Pcm) -> None:
    user, system = np.zeros((2, seconds(6)), np.float32)
    user[seconds(1) :][: len(voice)] = voice
    system[seconds(3) :][: len(voice)] = voice
    file = stereo(tmp_path / "one.flac", user, system)
    result = CliRunner().invoke(command, [file, file, "--json"], catch_exceptions=False)
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert len(rows) == 2 and rows[0] == rows[1]
    assert rows[0]["file"] == file and rows[0]["outcome"] == "answered"
    assert rows[0]["onset_sample"] == pytest.approx(seconds(3), abs=seconds(0.012))
    assert rows[0]["latency_ms"] == pytest.approx(
        (rows[0]["onset_sample"] - rows[0]["user_end_sample"]) / 24, abs=1e-6
    )
    assert {"user_start_sample", "latency_frames", "backchannels"} <= set(rows[0])
    plain = CliRunner().invoke(command, [file], catch_exceptions=False)
    assert "answered, +" in plain.output


def test_the_command_refuses_what_is_no_recording_of_two(tmp_path: Path, voice: Pcm) -> None:
    mono, junk, nan = tmp_path / "mono.wav", tmp_path / "junk.flac", tmp_path / "nan.wav"
    sf.write(mono, voice, 24_000)
    junk.write_bytes(b"junk")
    sf.write(nan, np.full((4_000, 2), np.nan), 24_000, subtype="FLOAT")
    for path, words in ((mono, "expected 2"), (junk, "cannot be read"), (nan, "finite")):
        with pytest.raises(BadAudio, match=words):
            CliRunner().invoke(command, [str(path)], catch_exceptions=False)
    with pytest.raises(BadAudio, match=r"silence\.flac: the left channel"):
        silence = np.zeros(seconds(1), np.float32)
        CliRunner().invoke(
            command, [stereo(tmp_path / "silence.flac", silence, silence)], catch_exceptions=False
        )
    with pytest.raises(BadRun, match=r"manifest\.json"):
        CliRunner().invoke(command, [str(tmp_path)], catch_exceptions=False)


def test_the_command_goes_on_after_a_bad_file(tmp_path: Path, voice: Pcm) -> None:
    user = np.zeros(seconds(4), np.float32)
    user[seconds(1) :][: len(voice)] = voice
    good, bad = stereo(tmp_path / "good.flac", user, np.zeros_like(user)), tmp_path / "bad.flac"
    result = CliRunner().invoke(command, [str(bad), good, "--json"])
    assert isinstance(result.exception, UserError) and "1 of 2" in str(result.exception)
    assert '"outcome": "silent"' in result.output


def test_the_command_measures_and_checks_a_run(tmp_path: Path, voice: Pcm) -> None:
    run = spoken_run(tmp_path, voice, {"a": [Planted(latency_ms=400), Planted(latency_ms=None)]})
    result = CliRunner().invoke(command, [str(run.path)], catch_exceptions=False)
    assert "2 turn(s): 1 answered, 1 silent" in result.output
    result = CliRunner().invoke(command, [str(run.path), "--check"], catch_exceptions=False)
    assert "all as stored" in result.output
