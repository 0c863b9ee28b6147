"""The adapter against the real `moshi.server`, run on a tiny random checkpoint on the CPU."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from kamebench.audio import FRAME_SAMPLES, Pcm, read_two_tracks
from kamebench.llm.base import TurnContext
from kamebench.records import SpokenTurn
from kamebench.session import Playing, Timing, TurnInput, record
from kamebench.systems import Setup
from kamebench.systems.moshi_server import create
from kamebench.vad.base import StreamingDetector
from tests.tiny_models import SPEAKER, write_checkpoint
from tests.wire.remote_parts import call

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]
LAUNCHER = Path(__file__).with_name("run_moshi_server.py")
SHORT = Timing(
    lead_in_s=0.4, quiet_before_s=0.2, wait_limit_s=0.4, quiet_after_s=0.2, window_s=0.8, limit_s=0.8
)


class Deaf(StreamingDetector):
    """Random weights babble without end: the turns end by their limits."""

    name = "deaf"

    def is_speech(self, pcm: Pcm) -> bool:
        return False


def turn(number: int) -> TurnInput:
    rng = np.random.default_rng(number)
    pcm = (rng.standard_normal(FRAME_SAMPLES * 10) * 0.1).astype(np.float32)
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
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_TORCH_COMPILE", "1")
        pytest.importorskip("moshi.models.lm")
    folder = tmp_path_factory.mktemp("moshi")
    write_checkpoint(folder, SPEAKER, model_type="moshi")
    return folder


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    yield number


@asynccontextmanager
async def running(checkpoint: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = {
        "--host": "127.0.0.1",
        "--port": str(port),
        "--static": "none",
        "--device": "cpu",
        "--config-path": str(checkpoint / "config.json"),
        "--moshi-weight": str(checkpoint / "model.safetensors"),
        "--mimi-weight": str(checkpoint / "mimi.safetensors"),
        "--tokenizer": str(checkpoint / "tokenizer.model"),
    }
    log = (checkpoint / "server.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(LAUNCHER),
        *(word for pair in arguments.items() for word in pair),
        stdout=log,
        stderr=log,
        env=os.environ | {"NO_TORCH_COMPILE": "1", "HF_HUB_OFFLINE": "1"},
    )
    try:
        async with asyncio.timeout(90):
            while True:
                assert process.returncode is None, (checkpoint / "server.log").read_text()[-3000:]
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.1)
                else:
                    writer.close()
                    await writer.wait_closed()
                    break
        yield process
    finally:
        log.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_two_turns_a_busy_server_and_one_killed_in_the_middle(
    checkpoint: Path, port: int, tmp_path: Path
) -> None:
    system = create(Setup({"url": f"ws://127.0.0.1:{port}", "attempts": 2}))
    how, turns = Playing(timing=SHORT), [turn(1), turn(2)]
    async with running(checkpoint, port) as process:
        two = await record(system, turns, tmp_path / "two", Deaf(), how)
        assert two.fault is None
        assert [mark.turn for mark in two.marks] == [1, 2]
        events = [json.loads(line) for line in (tmp_path / "two" / "events.jsonl").read_text().splitlines()]
        heard = sum(event["n_samples"] for event in events if event["kind"] == "audio_out")
        # One frame out for each frame in, but for the model's delay and what was under way at the end.
        n_frames = two.n_samples // FRAME_SAMPLES
        assert n_frames - 6 <= heard / FRAME_SAMPLES <= n_frames
        user, answer = read_two_tracks(tmp_path / "two" / "audio.flac")
        assert np.abs(user).max() > 0
        assert np.abs(answer).max() > 0

        # A second caller gets no handshake while the first one talks.
        talking = asyncio.create_task(call(system, tmp_path, 30, beat_ms=40))
        await asyncio.sleep(0.4)
        impatient = create(Setup({"url": f"ws://127.0.0.1:{port}", "busy_wait_s": 0.3}))
        refused = await call(impatient, tmp_path, 1)
        assert refused.error is not None
        assert refused.error.kind == "busy"
        assert (await talking).error is None

        recording = asyncio.create_task(record(system, turns, tmp_path / "killed", Deaf(), how))
        await asyncio.sleep(1.2)
        process.kill()
        killed = await recording
        assert killed.fault is not None
        assert (killed.fault.party, killed.fault.kind) == ("system", "disconnected")
        assert killed.fault.turn == 1
        assert killed.marks == []
        assert killed.n_samples > 0
    gone = await record(system, turns, tmp_path / "gone", Deaf(), how)
    assert gone.fault is not None
    assert gone.fault.kind == "unreachable"
    async with running(checkpoint, port):
        again = await record(system, turns, tmp_path / "again", Deaf(), how)
        assert again.fault is None
        assert len(again.marks) == 2
