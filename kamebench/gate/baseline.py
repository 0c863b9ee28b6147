"""Baselines: small files, kept in version control, that hold what a gate needs of a run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from kamebench.errors import BadConfig, BadRun
from kamebench.records import SCHEMA_VERSION, Record, Sha256
from kamebench.stats.snapshot import Snapshot, take
from kamebench.store import MANIFEST, open_run, read_record, write_text


class Baseline(Record):
    """`baselines/<name>.json`. `sha256` is over everything else, so that a hand edit shows."""

    schema_version: int = SCHEMA_VERSION
    name: str
    runs: tuple[Snapshot, ...] = Field(min_length=1, description="one run, or repeats of it")
    sha256: Sha256


def content_sha256(name: str, runs: Sequence[Snapshot]) -> str:
    """Hash of a baseline's content as canonical JSON (sorted keys, no spaces)."""
    content: dict[str, Any] = {"name": name, "runs": [run.model_dump(mode="json") for run in runs]}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_baseline(folder: Path, name: str, runs: Sequence[Snapshot]) -> Path:
    """Write a baseline; an older one of that name is replaced (version control keeps it).

    Raises:
        BadConfig: a name that is no plain file name.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise BadConfig(f"baseline name '{name}': use letters, digits, '.', '_' and '-', 'main' for example.")
    baseline = Baseline(name=name, runs=tuple(runs), sha256=content_sha256(name, runs))
    path = folder / f"{name}.json"
    # One turn a line: changes show as such in a review, and the file stays small.
    body = baseline.model_dump(mode="json")
    write_text(path, _lines(body) + "\n")
    return path


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file.

    Raises:
        BadRun: unreadable, of another schema, or edited by hand.
    """
    if not path.is_file():
        raise BadRun(f"{path}: there is no such baseline. Make one with: kamebench baseline set RUN")
    baseline = read_record(path, Baseline)
    if content_sha256(baseline.name, baseline.runs) != baseline.sha256:
        raise BadRun(
            f"{path}: was edited by hand (hash mismatch). "
            "Restore it, or make it anew: kamebench baseline set RUN"
        )
    return baseline


def resolve(reference: str, folder: Path, score: str | None = None) -> tuple[Snapshot, ...]:
    """What `--baseline` means: a run's folder, a baseline file, or the name of one in `folder`."""
    path = Path(reference)
    if (path / MANIFEST).is_file():
        return (take(open_run(path), score),)
    if path.suffix == ".json" and path.is_file():
        return read_baseline(path).runs
    named = folder / f"{reference}.json"
    if named.is_file():
        return read_baseline(named).runs
    if path.is_dir():
        return (take(open_run(path), score),)
    known = ", ".join(file.stem for file in baseline_files(folder)) or "none"
    raise BadRun(
        f"There is no baseline '{reference}' in {folder} (there: {known}), and no run at that path. "
        "Nothing was gated. Make one with: kamebench baseline set RUN"
    )


def baseline_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _lines(body: dict[str, Any]) -> str:
    runs = body.pop("runs")
    head = json.dumps(body, indent=1)[:-2]
    shown: list[str] = []
    for run in runs:
        turns = ",\n".join("    " + json.dumps(turn) for turn in run.pop("turns"))
        top = json.dumps(run, indent=1).replace("\n", "\n  ")[:-4]
        shown.append(f'  {top},\n   "turns": [\n{turns}\n   ]\n  }}')
    return f'{head},\n "runs": [\n' + ",\n".join(shown) + "\n ]\n}"
