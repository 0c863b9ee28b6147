"""Memory of a model and of each conversation on it, from the config alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kamebench.errors import UserError

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
# Left free for activations, CUDA graphs and the allocator's fragments.
SPARE_BYTES = 2 * 1024**3
SPARE_FRACTION = 0.02


def kv_cache_bytes(lm: Mapping[str, Any], dtype: str) -> int:
    """Bytes of one conversation's key-value cache at full context: what the model allocates at once.

    Keys and values, of `dim` each, for every layer and each of `context` steps.
    """
    return 2 * int(lm["num_layers"]) * int(lm["context"]) * int(lm["dim"]) * BYTES[dtype]


def codec_cache_bytes(mimi: Mapping[str, Any]) -> int:
    """Bytes of one conversation's key-value caches in Mimi's encoder and decoder, which run in float32."""
    part = mimi["transformer"]
    return 2 * 2 * int(part["num_layers"]) * int(part["context"]) * int(part["d_model"]) * BYTES["fp32"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes: of the weights, of each session, and free on the device before anything is loaded."""

    weights: int
    session: int
    free: int

    @property
    def spare(self) -> int:
        return min(SPARE_BYTES, int(self.free * SPARE_FRACTION))

    @property
    def sessions(self) -> int:
        """How many fit."""
        return max(0, (self.free - self.spare - self.weights) // self.session)

    def check(self, sessions: int, device: str) -> None:
        """Raises UserError: they do not fit; says what is needed, what is there and how many fit."""
        if sessions <= self.sessions:
            return
        need = self.weights + self.spare + sessions * self.session
        fit = f"{self.sessions} fit: --sessions {self.sessions}" if self.sessions else "Not even one fits"
        raise UserError(
            f"--sessions {sessions}: needs {_gb(need)} on {device} ({_gb(self.weights)} of weights and "
            f"{_gb(self.session)} a session) and {_gb(self.free)} are free. {fit}."
        )


def _gb(n_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} B"


def free_bytes(device: str) -> int:
    """Free memory of a CUDA device, or what the operating system calls available; the tighter of that and
    the control group's limit."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    import re
    from pathlib import Path

    found = [2**63]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        match = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
        if match:
            found.append(int(match[1]) * 1024)
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and (text := limit.read_text().strip()).isdigit():
        found.append(max(0, int(text) - int(used.read_text())))
    return min(found)


def weight_bytes(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> int:
    """Bytes of tensors of these shapes once cast."""
    import math

    return sum(math.prod(shape) for shape in shapes.values()) * BYTES[dtype]
