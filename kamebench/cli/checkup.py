"""What `kamebench doctor` looks at. Nothing is fetched or loaded."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

from kamebench import assets, environment

Row = dict[str, str]

EXTRAS = {
    "local": ("piper", "faster_whisper", "xllamacpp"),
    "moshi": ("torch", "moshi"),
    "openai": ("openai",),
    "anthropic": ("anthropic",),
    "google": ("google.genai",),
    "google-speech": ("google.cloud.speech",),
    "whisper": ("whisper",),
    "hub": ("datasets", "huggingface_hub"),
    "remote": ("aiohttp", "sphn"),
}
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")


def examine() -> list[Row]:
    """One row a fact: what, state, how to mend it."""
    return [*_extras(), *_assets(), *_keys(), *_machine()]


def _row(what: str, state: str, mend: str = "") -> Row:
    return {"what": what, "state": state, "mend": mend}


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _extras() -> list[Row]:
    rows: list[Row] = []
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if not _has(name)]
        mend = f"pip install 'kamebench[{extra}]'" if missing else ""
        rows.append(_row(f"extra {extra}", f"absent: {', '.join(missing)}" if missing else "installed", mend))
    return rows


def _assets() -> list[Row]:
    return [
        _row(f"asset {name}", "fetched", "")
        if assets.is_fetched(name)
        else _row(f"asset {name}", "absent", f"kamebench fetch {name}, or the first run that needs it")
        for name in assets.names()
    ]


def _keys() -> list[Row]:
    rows: list[Row] = []
    for name in KEYS:
        is_set = bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))
        rows.append(
            _row(f"key {name}", "set" if is_set else "absent", "" if is_set else f"export {name}=...")
        )
    return rows


def _machine() -> list[Row]:
    facts = environment.hardware()
    gpu = ", ".join(facts["gpu"]) or "none"
    free_gib = shutil.disk_usage(".").free / 2**30
    return [
        _row("processor", f"{facts['cpu']}, {facts['cores']} core(s)"),
        _row("memory", f"{facts['memory_gib']} GiB"),
        _row("gpu", gpu, "" if facts["gpu"] else "Moshi and KAME need one to keep up with real time"),
        _row("disk", f"{free_gib:.0f} GiB free"),
        _row("python", facts["python"]),
    ]
