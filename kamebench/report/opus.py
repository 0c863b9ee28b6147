"""Stereo recordings as Opus in Ogg, the same bytes every time.

libsndfile gives every Ogg stream a random serial number; it is set to a fixed one here and the pages'
checksums are made anew (RFC 3533, section 6).
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import soundfile as sf

from kamebench.audio import SAMPLE_RATE, Pcm
from kamebench.errors import EngineFault

SERIAL = 1
BLOCK_SAMPLES = SAMPLE_RATE * 10
_HEADER = 27  # bytes before the segment table
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def write_opus(path: Path, stereo: Pcm) -> None:
    """Write float32 [n, 2] at 24 000 Hz; at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # several workers may write the same one
    try:
        # 0.9 of libsndfile's scale: about 47 kbit/s for two tracks; a stronger one takes twice as long.
        with sf.SoundFile(
            part,
            "w",
            samplerate=SAMPLE_RATE,
            channels=2,
            format="OGG",
            subtype="OPUS",
            compression_level=0.9,
        ) as file:
            # libsndfile's Opus encoder overflows the stack on very long single writes.
            for at in range(0, len(stereo), BLOCK_SAMPLES):
                file.write(stereo[at : at + BLOCK_SAMPLES])
        part.write_bytes(with_serial(part.read_bytes(), SERIAL))
        part.replace(path)
    except sf.LibsndfileError as error:
        part.unlink(missing_ok=True)
        raise EngineFault(f"{path}: cannot write Opus ({error}). Install soundfile >= 0.13.") from None


def with_serial(ogg: bytes, serial: int) -> bytes:
    """The same Ogg stream under another serial number."""
    out, at = bytearray(ogg), 0
    while at < len(out):
        n_segments = out[at + 26]
        end = at + _HEADER + n_segments + sum(out[at + _HEADER : at + _HEADER + n_segments])
        struct.pack_into("<I", out, at + 14, serial)
        struct.pack_into("<I", out, at + 22, 0)
        struct.pack_into("<I", out, at + 22, crc(bytes(out[at:end])))
        at = end
    return bytes(out)


def crc(page: bytes) -> int:
    """Ogg's checksum: CRC-32, polynomial 04c11db7, most significant bit first, nothing inverted.

    zlib's is the same polynomial bit-reversed and inverted before and after.
    """
    mirrored = ~zlib.crc32(page.translate(_REVERSED), 0xFFFFFFFF) & 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)
