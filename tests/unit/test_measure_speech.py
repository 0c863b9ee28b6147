"""Edges of speech in audio whose edges are known, and what must not move them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st

from kamebench.audio import SAMPLE_RATE, WINDOW_SAMPLES, Pcm, samples_to_ms, seconds
from kamebench.errors import BadAudio
from kamebench.measure import find_speech, measure_recording, measure_turn
from kamebench.measure.cleaning import declicked
from kamebench.measure.speech import BLOCK
from kamebench.vad import open_detector

AT = seconds(2)
SLOW = settings(max_examples=25, deadline=None)


@cache
def voice() -> Pcm:
    """A sentence cut at its edges as they are defined: -40 dB of its loudest 10 ms."""
    with (files("kamebench") / "systems" / "scripted.flac").open("rb") as file:
        pcm, _ = sf.read(file, dtype="float32")
    n = len(pcm) // WINDOW_SAMPLES
    power = np.square(pcm[: n * WINDOW_SAMPLES]).reshape(n, WINDOW_SAMPLES).mean(axis=1)
    loud = np.flatnonzero(power > power.max() * 1e-4)
    cut = pcm[loud[0] * WINDOW_SAMPLES : (loud[-1] + 1) * WINDOW_SAMPLES]
    return (cut * 0.07 / np.sqrt(np.mean(np.square(cut)))).astype(np.float32)


def track(at: int = AT, tail: int = seconds(2), gain: float = 1.0) -> Pcm:
    pcm = np.zeros(at + len(voice()) + tail, np.float32)
    pcm[at : at + len(voice())] = voice() * np.float32(gain)
    return pcm


@cache
def detector():
    return open_detector("silero")


def onset(pcm: Pcm) -> int:
    found = find_speech(pcm, detector())
    assert found, "no speech found"
    return found[0].start


def test_silence_holds_no_speech() -> None:
    assert find_speech(np.zeros(seconds(3), np.float32), detector()) == []


@pytest.mark.parametrize("kind", ["white", "hum", "offset", "dither", "clicks"])
def test_noise_is_no_speech(kind: str) -> None:
    rng, n = np.random.default_rng(1), seconds(6)
    t = np.arange(n) / SAMPLE_RATE
    pcm = {
        "white": rng.standard_normal(n) * 0.02,
        "hum": 0.05 * np.sin(2 * np.pi * 50 * t) + 0.02 * np.sin(2 * np.pi * 150 * t),
        "offset": np.full(n, 0.1),
        "dither": rng.integers(-1, 2, n) / 32_768,
        "clicks": np.where(np.arange(n) % 20_000 < 24, 0.5, 0.0),
    }[kind]
    assert find_speech(pcm.astype(np.float32), detector()) == []


def test_both_edges_of_clean_speech_are_found() -> None:
    found = find_speech(track(), detector())
    assert abs(samples_to_ms(found[0].start - AT)) <= 10
    assert abs(samples_to_ms(found[-1].end - AT - len(voice()))) <= 20


@SLOW
@given(st.integers(0, seconds(1)))
def test_shifted_speech_has_a_shifted_onset(shift: int) -> None:
    assert abs(onset(track(AT + shift)) - onset(track()) - shift) <= BLOCK


@SLOW
@given(st.floats(-40, 10))
def test_loudness_does_not_move_the_onset(gain_db: float) -> None:
    assert abs(onset(track(gain=10 ** (gain_db / 20))) - onset(track())) <= BLOCK


@SLOW
@given(st.integers(0, seconds(3)), st.integers(0, seconds(3)))
def test_silence_at_the_ends_changes_nothing(before: int, after: int) -> None:
    longer = np.pad(track(), (before, after))
    assert abs(onset(longer) - before - onset(track())) <= BLOCK


@SLOW
@given(st.floats(-0.2, 0.2))
def test_an_offset_does_not_move_the_onset(offset: float) -> None:
    pcm = np.clip(track() + np.float32(offset), -1, 1).astype(np.float32)
    assert abs(onset(pcm) - onset(track())) <= 2 * BLOCK


@SLOW
@given(st.integers(0, 2**32 - 1), st.floats(12, 40))
def test_noise_moves_the_onset_by_less_than_a_frame(seed: int, snr_db: float) -> None:
    noise = np.random.default_rng(seed).standard_normal(len(track())) * 0.07 * 10 ** (-snr_db / 20)
    assert abs(samples_to_ms(onset((track() + noise).astype(np.float32)) - AT)) <= 80


@SLOW
@given(st.lists(st.integers(0, AT - 400), max_size=5), st.sampled_from([-0.5, 0.5]))
def test_clicks_before_speech_are_not_its_onset(places: list[int], height: float) -> None:
    pcm = track()
    for place in places:
        pcm[place : place + 24] = height
    assert abs(onset(pcm) - onset(track())) <= 2 * BLOCK


def test_declicking_leaves_speech_alone() -> None:
    assert np.array_equal(declicked(track()), track())


def test_a_pause_under_300_ms_does_not_end_a_segment_and_a_longer_one_does() -> None:
    phrase, lead = voice()[: seconds(1.448)], np.zeros(AT)  # the sentence has a pause of 304 ms after it
    for pause, n_segments in ((0.25, 1), (0.6, 2)):
        pcm = np.concatenate([lead, phrase, np.zeros(seconds(pause)), phrase, lead]).astype(np.float32)
        assert len(find_speech(pcm, detector())) == n_segments


def test_a_blip_under_120_ms_is_dropped() -> None:
    pcm = track()
    pcm[seconds(0.5) : seconds(0.58)] = voice()[seconds(0.5) : seconds(0.58)]
    assert abs(onset(pcm) - AT) <= seconds(0.01)


@pytest.mark.parametrize("latency", [0.02, 0.4, 3.0, -0.5, -1.0])
def test_a_turn_has_the_latency_it_was_built_with(latency: float) -> None:
    start = seconds(4) + seconds(latency)
    found = measure_turn(
        track(start), user_start=seconds(1), user_end=seconds(4), window_end=seconds(19), end=seconds(12)
    )
    assert found.outcome == ("answered" if latency > 0 else "premature")
    assert found.latency_ms == pytest.approx(1000 * latency, abs=10)


def test_a_recording_finds_the_user_by_itself() -> None:
    user = track(seconds(1), tail=seconds(9))
    system = np.zeros_like(user)
    answer = seconds(1) + len(voice()) + seconds(0.5)
    system[answer : answer + len(voice())] = voice()
    found = measure_recording(user, system)
    assert abs(found.user_start_sample - seconds(1)) <= seconds(0.01)
    assert found.latency_ms == pytest.approx(500, abs=25)


@pytest.mark.parametrize("snr_db", [12, 20, 40, 60])
def test_a_user_in_noise_is_found_too(snr_db: float) -> None:
    user = track(seconds(1), tail=seconds(9))
    noise = np.random.default_rng(0).standard_normal(len(user)) * 0.07 * 10 ** (-snr_db / 20)
    found = measure_recording((user + noise).astype(np.float32), np.zeros_like(user))
    assert abs(samples_to_ms(found.user_start_sample - seconds(1))) <= 80
    assert abs(samples_to_ms(found.user_end_sample - seconds(1) - len(voice()))) <= 80
    assert found.outcome == "silent"


def test_a_recording_without_a_user_is_refused() -> None:
    silence = np.zeros(seconds(2), np.float32)
    with pytest.raises(BadAudio, match="left channel"):
        measure_recording(silence, track()[: seconds(2)])
    with pytest.raises(BadAudio, match="1920"):
        measure_recording(silence[:100], silence[:100])
