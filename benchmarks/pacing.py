"""How late frames go out: 1, 8 and 32 scripted sessions side by side, in real time.

    python benchmarks/pacing.py [--seconds 20]

Goal: p99 <= 2 ms with 32 sessions on 2 cores.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import numpy as np

from kamebench.audio import FRAME_NS, pcm_sha256, seconds
from kamebench.clock import NS_PER_S
from kamebench.llm.base import TurnContext
from kamebench.records import SpokenTurn
from kamebench.session import Playing, Timing, TurnInput, record
from kamebench.systems.scripted import ScriptedOptions, ScriptedSystem
from kamebench.vad import open_streaming_detector


def turn(length_s: float) -> TurnInput:
    """A user turn of noise; what it says does not matter here."""
    rng = np.random.default_rng(0)
    pcm = (0.05 * rng.standard_normal(seconds(length_s))).astype(np.float32)
    spoken = SpokenTurn(
        text_written="-",
        text_spoken="-",
        audio_sha256=pcm_sha256(pcm),
        n_samples=len(pcm),
        speech_start_sample=0,
        speech_end_sample=len(pcm),
        engine="noise",
        engine_version="1",
        voice="-",
    )
    return TurnInput(1, spoken, pcm, TurnContext("pacing", "q", "none", 1))


async def measure(sessions: int, length_s: float) -> np.ndarray:
    """Lateness in ms of every frame, over all sessions."""
    system = ScriptedSystem(ScriptedOptions(answer_s=3.0))
    await system.start()
    with tempfile.TemporaryDirectory() as folder:

        async def one(place: int) -> list[float]:
            await asyncio.sleep(FRAME_NS / NS_PER_S * place / sessions)
            how = Playing("realtime", timing=Timing(lead_in_s=0.5, quiet_before_s=0.0))
            detector = open_streaming_detector("webrtc")
            return (await record(system, [turn(length_s)], Path(folder) / str(place), detector, how)).late_ms

        return np.concatenate(await asyncio.gather(*(one(i) for i in range(sessions))))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the user's turn")
    length_s = parser.parse_args().seconds
    print("| sessions | frames | p50 ms | p99 ms | max ms |\n|---:|---:|---:|---:|---:|")
    for sessions in (1, 8, 32):
        late = asyncio.run(measure(sessions, length_s))
        p50, p99 = np.quantile(late, [0.5, 0.99])
        print(f"| {sessions} | {len(late)} | {p50:.2f} | {p99:.2f} | {late.max():.2f} |", flush=True)


if __name__ == "__main__":
    main()
