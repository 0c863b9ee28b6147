"""Moshi on a tiny random checkpoint, played by the session runner; and sessions side by side."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kamebench.audio import FRAME_SAMPLES, Pcm
from kamebench.clock import Clock, Pace, VirtualClock
from kamebench.errors import BadConfig, SystemFault
from kamebench.llm.base import TurnContext
from kamebench.records import SpokenTurn
from kamebench.runtime.batch import Batch, Output, Request
from kamebench.session import Playing, Recorded, Timing, TurnInput, record
from kamebench.systems import Setup, load_system_file, open_system
from kamebench.systems.moshi import create
from kamebench.vad.base import StreamingDetector
from tests.tiny_models import SPEAKER, write_checkpoint

# torch 2.13 deprecates a decorator that it uses itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
    pytest.mark.usefixtures("threads_ended"),
]
TIMING = Timing(
    lead_in_s=0.4, quiet_before_s=0.0, wait_limit_s=0.2, quiet_after_s=0.2, window_s=0.8, limit_s=0.8
)


class Deaf(StreamingDetector):
    name = "deaf"

    def is_speech(self, pcm: Pcm) -> bool:
        return False


def turn(noise: int, number: int) -> TurnInput:
    pcm = (np.random.default_rng(noise).standard_normal(FRAME_SAMPLES * 8) * 0.1).astype(np.float32)
    spoken = SpokenTurn(
        text_written="noise",
        text_spoken="noise",
        audio_sha256="0" * 64,
        n_samples=len(pcm),
        speech_start_sample=0,
        speech_end_sample=len(pcm),
        engine="noise",
        engine_version="1",
        voice="none",
    )
    return TurnInput(number, spoken, pcm, TurnContext("test", "q", "stem", number))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_TORCH_COMPILE", "1")  # read when moshi is imported
        pytest.importorskip("moshi.models.lm")
    import torch

    folder = tmp_path_factory.mktemp("moshi")
    write_checkpoint(folder, SPEAKER)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny products: more threads only wait for each other
    yield folder
    torch.set_num_threads(threads)


def play(
    folder: Path, checkpoint: Path, sessions: int, seeds: Sequence[int], pace: Pace = "lockstep"
) -> list[Recorded | BaseException]:
    """Conversations of two turns at once, one for each seed; `folder`/N holds the Nth."""

    async def scenario(clock: Clock) -> list[Recorded | BaseException]:
        options = {"weights": str(checkpoint), "dtype": "fp32", "device": "cpu"}
        system = create(Setup(options, sessions=sessions))
        assert system.capabilities.max_sessions == sessions
        await system.start()
        try:
            return await asyncio.gather(
                *(
                    record(
                        system,
                        [turn(2 * seed, 1), turn(2 * seed + 1, 2)],
                        folder / str(n),
                        Deaf(),
                        Playing(pace, seed, TIMING, clock),
                    )
                    for n, seed in enumerate(seeds)
                ),
                return_exceptions=True,
            )
        finally:
            await system.aclose()

    async def run() -> list[Recorded | BaseException]:
        clock = VirtualClock()
        found = await clock.run(scenario(clock))
        await asyncio.get_running_loop().shutdown_default_executor()
        return found

    return asyncio.run(run())


def said(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if "text" in event]


def test_conversations_side_by_side_are_those_they_are_alone(checkpoint: Path, tmp_path: Path) -> None:
    together = play(tmp_path / "together", checkpoint, 3, [4, 5, 6])
    for recorded in together:
        assert isinstance(recorded, Recorded)
        assert recorded.fault is None
        assert len(recorded.marks) == 2
        assert recorded.n_samples > 30 * FRAME_SAMPLES
    texts = []
    for n, seed in enumerate([4, 5, 6]):
        play(tmp_path / f"alone{seed}", checkpoint, 1, [seed])
        alone = said(tmp_path / f"alone{seed}" / "0")
        assert said(tmp_path / "together" / str(n)) == alone
        assert len(alone) > 10
        texts.append([event["text"] for event in alone])
    assert texts[0] != texts[1] != texts[2]


def test_one_conversation_too_many_is_a_fault_of_its_own(checkpoint: Path, tmp_path: Path) -> None:
    first, second = play(tmp_path, checkpoint, 1, [1, 2])
    assert isinstance(first, Recorded)
    assert isinstance(second, Recorded)
    assert first.fault is None
    assert second.fault is not None
    assert (second.fault.kind, second.fault.retryable, second.marks) == ("busy", True, [])


def test_a_step_that_fails_spoils_its_turn_and_the_next_conversation_is_intact(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clean,) = play(tmp_path / "clean", checkpoint, 1, [8])
    assert isinstance(clean, Recorded)
    original, steps = Batch.step, 0

    def failing(self: Batch, requests: Sequence[Request]) -> list[Output]:
        nonlocal steps
        steps += bool(requests)  # none: part of the warm-up
        if steps == 30:  # in the second turn
            raise RuntimeError("out of memory")
        return original(self, requests)

    async def scenario(clock: Clock) -> list[Recorded]:
        system = create(Setup({"weights": str(checkpoint), "dtype": "fp32", "device": "cpu"}))
        await system.start()
        how = Playing("lockstep", 8, TIMING, clock)
        try:
            return [
                await record(system, [turn(16, 1), turn(17, 2)], tmp_path / str(n), Deaf(), how)
                for n in range(2)
            ]
        finally:
            await system.aclose()

    async def run() -> list[Recorded]:
        clock = VirtualClock()
        found = await clock.run(scenario(clock))
        await asyncio.get_running_loop().shutdown_default_executor()
        return found

    monkeypatch.setattr(Batch, "step", failing)
    broken, after = asyncio.run(run())
    assert broken.fault is not None
    assert (broken.fault.party, broken.fault.kind, broken.fault.turn) == ("system", "crash", 2)
    assert "out of memory" in broken.fault.message
    assert [mark.turn for mark in broken.marks] == [1]
    assert after.fault is None
    assert said(tmp_path / "1") == said(tmp_path / "clean" / "0")


def test_options_and_the_shipped_file(checkpoint: Path) -> None:
    file = load_system_file("moshi")
    assert file.backend is None
    system = open_system(file, Setup(file.options, sessions=2))
    assert system.capabilities.paces() == ("realtime", "virtual", "lockstep")
    assert system.describe()["weights"] == "kyutai/moshiko-pytorch-bf16"
    with pytest.raises(BadConfig, match="dtype"):
        create(Setup({"dtype": "int8"}))
    with pytest.raises(BadConfig, match="temperature"):
        create(Setup({"temperature": 1}))


async def test_a_session_needs_a_started_system(checkpoint: Path) -> None:
    system = create(Setup({"weights": str(checkpoint)}))
    with pytest.raises(SystemFault, match="start the system first"):
        system.session(None)  # type: ignore[arg-type]
    await system.aclose()


def test_a_codec_config_beside_the_weights_is_found(checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "moved")
    config = json.loads((folder / "config.json").read_text())
    config["mimi_config_name"] = "mimi.json"
    (folder / "config.json").write_text(json.dumps(config))

    async def run() -> dict[str, Any]:
        system = create(Setup({"weights": str(folder), "dtype": "fp32", "device": "cpu", "greedy": True}))
        await system.start()
        found = system.describe()
        await system.aclose()
        await asyncio.get_running_loop().shutdown_default_executor()
        return found

    found = asyncio.run(run())
    assert found["device_used"] == "cpu"
    assert found["sampling"]["temp"] == 0.0
    assert found["session_bytes"] > 0
