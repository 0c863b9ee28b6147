"""Detectors: what is speech and what is not, block by block and whole."""

from __future__ import annotations

import itertools
import time
from importlib.resources import files

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st

from kamebench.audio import FRAME_SAMPLES, SAMPLE_RATE, Pcm, seconds
from kamebench.errors import UnknownName
from kamebench.vad import DETECTORS, STREAMING_DETECTORS, open_detector, open_streaming_detector
from kamebench.vad.runs import hysteresis, runs
from kamebench.vad.streaming import Downsampler

STREAMING = STREAMING_DETECTORS.names()


@pytest.fixture(scope="module")
def voice() -> Pcm:
    with (files("kamebench") / "systems" / "scripted.flac").open("rb") as file:
        pcm, _ = sf.read(file, dtype="float32")
    return pcm


def frames(pcm: Pcm) -> list[Pcm]:
    return [pcm[at : at + FRAME_SAMPLES] for at in range(0, len(pcm) - FRAME_SAMPLES + 1, FRAME_SAMPLES)]


@pytest.mark.parametrize("name", STREAMING)
@pytest.mark.parametrize("level", [0.0, 1e-5, 1e-4, 3e-3, 2e-2])
def test_silence_and_steady_noise_are_no_speech(name: str, level: float) -> None:
    detector = open_streaming_detector(name)
    noise = np.random.default_rng(0).standard_normal(seconds(8)).astype(np.float32) * np.float32(level)
    said = [detector.is_speech(frame) for frame in frames(noise)]
    assert sum(said) <= 2, f"{sum(said)} of {len(said)} frames"


@pytest.mark.parametrize("name", STREAMING)
@pytest.mark.parametrize("gain_db", [0, -12, -20])
def test_speech_is_speech_and_ends(name: str, gain_db: float, voice: Pcm) -> None:
    detector = open_streaming_detector(name)
    pcm = np.concatenate([np.zeros(seconds(1)), voice * 10 ** (gain_db / 20), np.zeros(seconds(1))])
    said = np.array([detector.is_speech(frame) for frame in frames(pcm.astype(np.float32))])
    first, last = seconds(1) // FRAME_SAMPLES, (seconds(1) + len(voice)) // FRAME_SAMPLES
    assert not said[:first].any()
    assert said[first:last].mean() > 0.6
    assert not said[last + 4 :].any()


@pytest.mark.parametrize("name", STREAMING)
def test_streams_do_not_share_state(name: str, voice: Pcm) -> None:
    one, other = open_streaming_detector(name), open_streaming_detector(name)
    alone = [one.is_speech(frame) for frame in frames(voice)]
    third = open_streaming_detector(name)
    mixed = list[bool]()
    for frame in frames(voice):
        other.is_speech(np.zeros(FRAME_SAMPLES, np.float32))
        mixed.append(third.is_speech(frame))
    assert alone == mixed


def test_the_default_for_control_is_cheap(voice: Pcm) -> None:
    detector, blocks = open_streaming_detector(), frames(voice)
    took = list[float]()
    for frame in blocks:
        began = time.perf_counter()
        detector.is_speech(frame)
        took.append(time.perf_counter() - began)
    assert np.median(took) < 1e-3  # 0.06 ms on an idle core


@pytest.mark.parametrize("name", DETECTORS.names())
def test_whole_tracks(name: str, voice: Pcm) -> None:
    detector = open_detector(name)
    pcm = np.concatenate([np.zeros(seconds(1)), voice, np.zeros(seconds(1))]).astype(np.float32)
    found = detector.segments(pcm)
    assert detector.settings["detector"] == name
    assert found and abs(found[0].start - seconds(1)) < seconds(0.15)
    assert abs(found[-1].end - seconds(1) - len(voice)) < seconds(0.5)
    assert all(one.end <= other.start for one, other in itertools.pairwise(found))
    assert detector.segments(np.zeros(seconds(1), np.float32)) == []
    assert detector.segments(pcm) == found  # nothing is kept from one track to the next


def test_an_unknown_detector_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'silero'"):
        open_detector("sillero")
    with pytest.raises(UnknownName, match="Did you mean 'webrtc'"):
        open_streaming_detector("webrct")


@pytest.mark.parametrize("rate", [8_000, 16_000])
def test_downsampling_keeps_what_fits_and_drops_the_rest(rate: int) -> None:
    t = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    low = Downsampler(rate).push(np.sin(2 * np.pi * 500 * t).astype(np.float32))
    high = Downsampler(rate).push(np.sin(2 * np.pi * (0.75 * rate) * t).astype(np.float32))
    assert len(low) == rate
    delayed = np.sin(2 * np.pi * 500 * (np.arange(rate) / rate - 12 / SAMPLE_RATE))
    assert np.abs(low[100:] - delayed[100:]).max() < 0.02
    assert np.abs(high[100:]).max() < 0.05


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 4_000), min_size=1, max_size=12), st.sampled_from([8_000, 16_000]))
def test_downsampling_does_not_depend_on_the_blocks(cuts: list[int], rate: int) -> None:
    pcm = np.random.default_rng(0).standard_normal(sum(cuts)).astype(np.float32)
    whole, parts = Downsampler(rate).push(pcm), Downsampler(rate)
    edges = np.cumsum([0, *cuts])
    pieces = [parts.push(pcm[start:end]) for start, end in itertools.pairwise(edges)]
    assert np.allclose(np.concatenate(pieces), whole, atol=1e-5)


def test_hysteresis_and_runs() -> None:
    values = np.array([0.2, 0.6, 0.4, 0.36, 0.2, 0.4, 0.7], np.float32)
    flags = hysteresis(values, 0.5, 0.35)
    assert flags.tolist() == [False, True, True, True, False, False, True]
    assert runs(flags) == [(1, 4), (6, 7)]
    assert runs(np.zeros(0, bool)) == []
