"""Stereo recordings as Opus in Ogg, the same bytes every time."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from kamebench.audio import SAMPLE_RATE, Pcm
from kamebench.errors import EngineFault

BIT_RATE = 48_000  # of both tracks together
COMPLEXITY = "1"  # of libopus, 0 to 10: encodes nearly twice as fast as 10, for speech at no audible loss
BLOCK_SAMPLES = SAMPLE_RATE * 10


def write_opus(path: Path, stereo: Pcm) -> None:
    """Write float32 [n, 2] at 24 000 Hz; at once or not at all."""
    import av
    from av.error import FFmpegError

    if len(stereo) == 0:
        stereo = np.zeros((1, 2), np.float32)  # a stream without any sample cannot be read
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # several workers may write the same one
    # Without "bitexact" the stream gets a random serial number and the encoder's version.
    exact = {"fflags": "bitexact"}
    try:
        with av.open(part, "w", format="ogg", container_options=exact) as file:
            stream = file.add_stream("libopus", rate=SAMPLE_RATE, layout="stereo")
            stream.bit_rate = BIT_RATE
            stream.options = {"compression_level": COMPLEXITY, "application": "audio", "flags": "bitexact"}
            for at in range(0, len(stereo), BLOCK_SAMPLES):
                block = np.ascontiguousarray(stereo[at : at + BLOCK_SAMPLES], np.float32).reshape(1, -1)
                frame = av.AudioFrame.from_ndarray(block, format="flt", layout="stereo")
                frame.sample_rate = SAMPLE_RATE
                file.mux(stream.encode(frame))
            file.mux(stream.encode(None))
        part.replace(path)
    except (FFmpegError, OSError) as error:
        part.unlink(missing_ok=True)
        raise EngineFault(f"{path}: cannot write Opus ({error}).") from None
