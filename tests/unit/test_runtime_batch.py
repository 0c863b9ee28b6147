"""Rows of one batch against the same conversations alone, on a tiny random checkpoint in fp32 on the CPU."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kamebench.audio import FRAME_SAMPLES, Pcm
from kamebench.runtime.batch import Batch, Output, Request
from kamebench.runtime.checkpoint import load_lm, read
from kamebench.runtime.codec import Codec, load_mimi
from kamebench.runtime.engine import Engine, Stepped
from kamebench.runtime.generator import GREEDY, Sampling
from tests.tiny_models import SPEAKER, TEXT_CARD, write_checkpoint

# torch 2.13 deprecates a decorator that it uses itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
PAD = 3
FRAMES = 36  # the context is 30: the key-value cache goes round
SAMPLING = Sampling(temp=1.2, temp_text=1.5, top_k=20, top_k_text=30)


@dataclass
class Parts:
    model: Any
    mimi: Any


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_TORCH_COMPILE", "1")  # read when moshi is imported
        pytest.importorskip("moshi.models.lm")
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny products: more threads only wait for each other
    folder = tmp_path_factory.mktemp("tiny")
    write_checkpoint(folder, SPEAKER)
    checkpoint = read(str(folder))
    model = load_lm(checkpoint.lm, folder / "model.safetensors", "fp32", "cpu", "from-text")
    torch.manual_seed(5)
    with torch.no_grad():  # large, so that a wrong oracle token changes what is said
        weight = model.text_emb.oracle.weight
        weight.copy_(torch.randn_like(weight) * 3)
    yield Parts(model, load_mimi(folder / "mimi.safetensors", folder / "mimi.json", 8, "cpu"))
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Talk:
    """One conversation: its audio, its oracle tokens and its seed."""

    audio: Pcm
    oracle: tuple[int, ...]
    seed: int

    @classmethod
    def of(cls, number: int, frames: int = FRAMES) -> Talk:
        rng = np.random.default_rng(number)
        audio = (rng.standard_normal((frames, FRAME_SAMPLES)) * 0.3).astype(np.float32)
        tokens = rng.integers(0, TEXT_CARD, frames)
        tokens[rng.random(frames) < 0.5] = PAD
        return cls(audio, tuple(int(token) for token in tokens), 1000 + number)

    def request(self, row: int, at: int) -> Request:
        return Request(row, self.audio[at], self.oracle[at], None if at else self.seed)


def alone(parts: Parts, talk: Talk, sampling: Sampling) -> list[Output]:
    batch = Batch(parts.model, parts.mimi, 1, sampling)
    try:
        return [batch.step([talk.request(0, at)])[0] for at in range(len(talk.audio))]
    finally:
        batch.close()


def tokens(outputs: list[Output]) -> list[tuple[int | None, tuple[int, ...] | None]]:
    return [(output.text_token, output.audio_tokens) for output in outputs]


def same(found: list[Output], wanted: list[Output]) -> None:
    assert tokens(found) == tokens(wanted)
    for one, other in zip(found, wanted, strict=True):
        if one.pcm is not None and other.pcm is not None:
            np.testing.assert_allclose(one.pcm, other.pcm, atol=1e-5)


@pytest.mark.parametrize("schedule", range(3))
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLING], ids=["greedy", "sampled"])
def test_rows_equal_separate_runs(parts: Parts, sampling: Sampling, schedule: int) -> None:
    """Conversations start when a row is free, miss beats at random, end and are followed by others."""
    rng = random.Random(schedule)
    talks = [Talk.of(10 * schedule + n, rng.randint(20, FRAMES)) for n in range(5)]
    waiting, rows = list(range(len(talks))), [None] * 3
    batch = Batch(parts.model, parts.mimi, 3, sampling)
    found: list[list[Output]] = [[] for _ in talks]
    try:
        while any(len(out) < len(talk.audio) for out, talk in zip(found, talks, strict=True)):
            for row, talking in enumerate(rows):
                if talking is None and waiting and rng.random() < 0.3:
                    rows[row] = waiting.pop(0)  # type: ignore[call-overload]
            beat = [(row, n) for row, n in enumerate(rows) if n is not None and rng.random() < 0.7]
            rng.shuffle(beat)
            if not beat:
                continue
            outputs = batch.step([talks[n].request(row, len(found[n])) for row, n in beat])
            for (row, n), output in zip(beat, outputs, strict=True):
                found[n].append(output)
                if len(found[n]) == len(talks[n].audio):
                    rows[row] = None
    finally:
        batch.close()
    for talk, outputs in zip(talks, found, strict=True):
        same(outputs, alone(parts, talk, sampling))


def test_what_is_compared_depends_on_oracle_seed_and_audio(parts: Parts) -> None:
    talk, other = Talk.of(1), Talk.of(2)
    base = tokens(alone(parts, talk, SAMPLING))
    assert base == tokens(alone(parts, talk, SAMPLING))
    for changed in (
        Talk(talk.audio, other.oracle, talk.seed),
        Talk(talk.audio, talk.oracle, other.seed),
        Talk(other.audio, talk.oracle, talk.seed),
    ):
        assert tokens(alone(parts, changed, SAMPLING)) != base
    greedy = tokens(alone(parts, talk, GREEDY))
    assert greedy == tokens(alone(parts, Talk(talk.audio, talk.oracle, other.seed), GREEDY))
    assert greedy != tokens(alone(parts, Talk(talk.audio, other.oracle, talk.seed), GREEDY))


def test_conversations_through_the_engine_equal_separate_runs(parts: Parts) -> None:
    talks = [Talk.of(n, 12 + 3 * n) for n in range(3)]

    @dataclass(frozen=True)
    class Update:
        reset: bool
        tokens: tuple[int, ...]

    async def converse(engine: Engine, talk: Talk, number: int) -> list[Stepped]:
        slot, out = engine.open(talk.seed), []
        for at, pcm in enumerate(talk.audio):
            if (at + number) % 5 == 0:
                await asyncio.sleep(0.01)  # longer than the others are made to wait
            out.append(await slot.step(pcm, [Update(True, talk.oracle[:6])] if at == 4 + number else []))
        await slot.aclose()
        return out

    async def run(rows: int, chosen: list[int]) -> list[list[Stepped]]:
        engine = Engine(Batch(parts.model, parts.mimi, rows, SAMPLING), PAD, TEXT_CARD, gather_s=0.002)
        try:
            return await asyncio.gather(*(converse(engine, talks[n], n) for n in chosen))
        finally:
            engine.close()

    together = asyncio.run(run(3, [0, 1, 2]))
    for number, found in enumerate(together):
        (wanted,) = asyncio.run(run(1, [number]))
        assert [(s.text_token, s.oracle_token) for s in found] == [
            (s.text_token, s.oracle_token) for s in wanted
        ]
        assert [s.oracle_token for s in found][4 + number] == TEXT_CARD
        for one, other in zip(found, wanted, strict=True):
            assert (one.pcm is None) == (other.pcm is None)
            if one.pcm is not None and other.pcm is not None:
                np.testing.assert_allclose(one.pcm, other.pcm, atol=1e-5)


def test_sampling_follows_the_softmax_of_the_likeliest(parts: Parts) -> None:
    """10 000 draws against the probabilities, by the chi-squared test at 0.1 %."""
    import torch
    from scipy.stats import chisquare

    from kamebench.runtime.generator import perturbed

    torch.manual_seed(1)
    logits, k, temperature, n = torch.randn(1, 1, 1, 40), 12, 0.8, 10_000
    noise = torch.empty(n, k).exponential_().log_().neg_()
    drawn = perturbed(logits.expand(n, 1, 1, 40), noise, temperature).argmax(-1).flatten()
    likeliest = torch.softmax(logits.flatten() / temperature, 0).topk(k)
    counts = torch.bincount(drawn, minlength=40)[likeliest.indices]
    assert int(counts.sum()) == n
    expected = likeliest.values / likeliest.values.sum() * n
    assert chisquare(counts.numpy(), expected.double().numpy(), sum_check=False).pvalue > 0.001


def test_streaming_codec_equals_offline(parts: Parts) -> None:
    """Frame by frame, encode and decode give what the whole signal gives at once."""
    import torch

    talk = Talk.of(3)
    codec = Codec(parts.mimi, 1)
    with torch.no_grad():
        codes = [codec.encode([frame])[:, :, 0] for frame in talk.audio]
        streamed = np.concatenate([codec.decode(code, [True])[0] for code in codes])
        codec.close()
        whole = parts.mimi.encode(torch.from_numpy(talk.audio.reshape(1, 1, -1)))
        audio = parts.mimi.decode(whole)[0, 0].clamp(-1, 1).numpy()
    assert torch.equal(torch.stack(codes, -1), whole)
    assert float(np.abs(audio).max()) > 1e-3
    np.testing.assert_allclose(streamed, audio, atol=1e-5)


def test_the_first_frame_resets_the_codec(parts: Parts) -> None:
    """The second frame of a conversation is encoded as a first one, the third as a second."""
    import torch

    frames = Talk.of(4).audio[:3]
    seen: list[Any] = []
    batch = Batch(parts.model, parts.mimi, 1, GREEDY)
    step = batch._generator.step
    batch._generator.step = lambda codes, *rest: (seen.append(codes.clone()), step(codes, *rest))[1]  # type: ignore[method-assign]
    for at, frame in enumerate(frames):
        batch.step([Request(0, frame, PAD, None if at else 0)])
    batch.close()
    codec = Codec(parts.mimi, 1)
    with torch.no_grad():
        plain = [codec.encode([frame]) for frame in (frames[1], frames[2])]
    codec.close()
    assert torch.equal(seen[1], plain[0])
    assert torch.equal(seen[2], plain[1])
