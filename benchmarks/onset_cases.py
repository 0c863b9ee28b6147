"""Labelled recordings made on the spot: speech placed at known samples, then spoilt in known ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kamebench.audio import SAMPLE_RATE, WINDOW_SAMPLES, Pcm, resample, seconds, speech_bounds, to_int16
from kamebench.measure.onset import Span, find_onset
from kamebench.measure.speech import bridged
from kamebench.records import Onset, Segment
from kamebench.speech import open_engine

Signal = NDArray[np.float64]

# Two halves that share no voice: thresholds were chosen on the first, figures are reported on the second.
VOICES = {
    "tune": (("piper:joe", 1.0), ("espeak:en-us", 1.0), ("espeak:en-gb-x-rp+f4", 1.1), ("espeak:de", 1.0)),
    "report": (
        ("piper:joe", 0.85),
        ("piper:joe", 1.2),
        ("espeak:en-gb-scotland+m2", 1.0),
        ("espeak:en-us+klatt2", 1.1),
        ("espeak:en-us+f1", 0.95),
        ("espeak:fr", 1.05),
    ),
}
WORDS = ("Yes.", "Mm-hmm.", "Right.", "Okay.", "I see.", "Sure.", "Uh-huh.", "Oh, yeah.")
ANSWERS = (
    "Forty seven is the next number.",
    "She is the mother of your cousin.",
    "Photosynthesis turns light into sugar.",
    "Half of it would be about three hundred.",
    "The answer is twelve.",
    "Hmm, let me think about that for a moment. It is seven.",
    "First, the sun rises in the east. Then the shadow falls to the west.",
    "Water boils at one hundred degrees.",
    "Vaccines train the immune system.",
    "Well, I would say that the economy grew in that year.",
    "Thirty six.",
    "How interesting, I have not thought of that.",
)
QUESTIONS = (
    "What is the next number in the series two, four, eight?",
    "Who wrote the play, and when was it first performed?",
    "If you have three apples and you take away two, how many do you have?",
    "Could you say why the sky is blue, please?",
)
SHAPES = ("after", "near", "premature", "pause", "backchannel", "two backchannels", "backchannel only")
SHAPES += ("silent", "carry over", "carry over, then after")


@dataclass(frozen=True)
class Case:
    """A recording and what is true of it: `truth` follows from where speech was placed."""

    name: str
    condition: str
    user: Pcm
    system: Pcm
    truth: Onset


def noise(rng: np.random.Generator, n: int, slope: float) -> Signal:
    """[n] samples of noise with RMS 1 whose power falls as 1 / f**slope above 20 Hz."""
    spectrum = np.fft.rfft(rng.standard_normal(n))
    made = np.fft.irfft(spectrum * np.maximum(np.fft.rfftfreq(n, 1 / SAMPLE_RATE), 20.0) ** (-slope / 2), n)
    return made / np.sqrt(np.mean(np.square(made)))


def _noisy(slope: float, snr_db: float) -> Callable[[np.random.Generator, Signal, float], Signal]:
    return lambda rng, x, rms: x + noise(rng, len(x), slope) * rms * 10 ** (-snr_db / 20)


def _hum(rng: np.random.Generator, x: Signal, rms: float) -> Signal:
    phase = 2 * np.pi * rng.choice([50, 60]) * np.arange(len(x)) / SAMPLE_RATE
    return x + 0.0135 * (np.sin(phase) + 0.3 * np.sin(2 * phase + 1) + 0.2 * np.sin(3 * phase + 2))


def _clicks(rng: np.random.Generator, x: Signal, rms: float) -> Signal:
    out = x.copy()
    for at in rng.integers(0, len(x) - 24, rng.integers(4, 9)):
        out[at : at + 24] = rng.choice([-0.5, 0.5])
    return out


# Name -> (level of the system's speech in dBFS RMS, what is done to its track).
CONDITIONS: dict[str, tuple[float, Callable[[np.random.Generator, Signal, float], Signal]]] = {
    "clean": (-23, lambda rng, x, rms: x),
    "loud": (-20, lambda rng, x, rms: x),
    "low": (-33, lambda rng, x, rms: x),
    "quiet": (-42, lambda rng, x, rms: x),
    "white -30 dB": (-23, _noisy(0, 30)),
    "white -20 dB": (-23, _noisy(0, 20)),
    "white -12 dB": (-23, _noisy(0, 12)),
    "pink -20 dB": (-23, _noisy(1, 20)),
    "pink -12 dB": (-23, _noisy(1, 12)),
    "brown -20 dB": (-23, _noisy(2, 20)),
    "quiet, white -12 dB": (-42, _noisy(0, 12)),
    "quiet, pink -20 dB": (-42, _noisy(1, 20)),
    "hum": (-23, _hum),
    "offset": (-23, lambda rng, x, rms: x + rng.choice([-0.1, 0.05])),
    "clicks": (-23, _clicks),
    "clipped": (-23, lambda rng, x, rms: np.clip(x * 8, -1, 1)),
}


def speak(half: str) -> dict[str, list[Pcm]]:
    """Every text by every voice of a half, cut at the edges of speech: kind -> clips."""
    clips: dict[str, list[Pcm]] = {"word": [], "answer": [], "question": []}
    for name, speed in VOICES[half]:
        engine = open_engine(name)
        for kind, texts in (("word", WORDS), ("answer", ANSWERS), ("question", QUESTIONS)):
            for text in texts:
                pcm = np.concatenate(list(engine.stream(text)))
                pcm = resample(pcm, round(SAMPLE_RATE * speed))
                start, end = speech_bounds(pcm)
                clips[kind].append(pcm[start:end])
        engine.close()
    return clips


class _Track:
    """The system's track while speech is placed on it."""

    def __init__(self, n: int, rms: float) -> None:
        self.signal, self._rms = np.zeros(n), rms
        self._placed: list[tuple[int, int]] = []

    def place(self, clip: Pcm, at: int) -> int:
        """Put a clip at a sample; returns where it ends."""
        cut = _at_level(clip, self._rms)[: len(self.signal) - at]
        self.signal[at : at + len(cut)] += cut
        windows = cut[: len(cut) // WINDOW_SAMPLES * WINDOW_SAMPLES].reshape(-1, WINDOW_SAMPLES)
        power = np.square(windows).mean(axis=1)
        loud = np.flatnonzero(power > power.max() * 1e-4) * WINDOW_SAMPLES + at
        self._placed += bridged([(int(w), int(w) + WINDOW_SAMPLES) for w in loud], seconds(0.3))
        return at + len(cut)

    def segments(self) -> list[Segment]:
        joined = bridged(sorted(self._placed), seconds(0.3))
        return [Segment(start=start, end=end) for start, end in joined if end - start >= seconds(0.12)]


def _at_level(clip: Pcm, rms: float) -> Signal:
    return clip.astype(np.float64) * rms / np.sqrt(np.mean(np.square(clip, dtype=np.float64)))


def make(clips: dict[str, list[Pcm]], count: int, seed: int) -> Iterator[Case]:
    """Cases of every condition in turn, with shapes, voices, texts and times by chance."""
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        condition = list(CONDITIONS)[index % len(CONDITIONS)]
        level_db, spoil = CONDITIONS[condition]
        rms, shape = 10 ** (level_db / 20), SHAPES[int(rng.integers(len(SHAPES)))]
        question = _at_level(clips["question"][rng.integers(len(clips["question"]))], 10 ** (-23 / 20))
        start = seconds(rng.uniform(0.6, 1.2))
        end = start + len(question)
        track = _Track(end + seconds(rng.uniform(6, 9)), rms)
        _compose(rng, shape, track, clips, (start, end))
        n, segments = len(track.signal), track.segments()
        user = np.zeros(n)
        user[start:end] = question
        truth = find_onset(segments, Span(start, end, end + seconds(15), n))
        system = spoil(rng, track.signal, rms)
        yield Case(f"{index:04d} {condition}, {shape}", condition, _stored(user), _stored(system), truth)


def _compose(
    rng: np.random.Generator,
    shape: str,
    track: _Track,
    clips: dict[str, list[Pcm]],
    user: tuple[int, int],
) -> None:
    """Place what the system says in a conversation of this shape."""
    start, end = user
    word = lambda: clips["word"][rng.integers(len(clips["word"]))][: seconds(0.9)]  # noqa: E731
    answer = lambda: clips["answer"][rng.integers(len(clips["answer"]))]  # noqa: E731
    at = 0
    if "backchannel" in shape:
        at = start + seconds(rng.uniform(0.1, 0.4))
        for _ in range(2 if shape == "two backchannels" else 1):
            clip = word()
            if at + len(clip) < end - seconds(0.05):
                at = track.place(clip, at) + seconds(0.4)
    if "carry over" in shape:
        at = track.place(answer(), start - seconds(rng.uniform(0.2, 0.5))) + seconds(0.5)
    if shape in ("silent", "backchannel only", "carry over"):
        return
    latency_s = rng.uniform(0.02, 2.5)
    if shape == "near":
        latency_s = rng.choice([-1, 1]) * rng.uniform(0.02, 0.15)
    if shape == "premature":
        latency_s = -rng.uniform(0.05, 1.2)
    after = track.place(answer(), max(at, end + seconds(latency_s), start + seconds(0.1)))
    if shape == "pause" and after + seconds(2) < len(track.signal):
        track.place(answer(), after + seconds(0.6))


def _stored(pcm: Signal) -> Pcm:
    """As read back from a 16-bit file."""
    return (to_int16(pcm.astype(np.float32))[0] / 32_768).astype(np.float32)
