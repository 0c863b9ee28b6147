"""Verdicts already given, one file a key: what a judge answered to exactly the same request.

Only answers from which a verdict could be read are kept. Files are written beside their name and renamed, so
several processes may share a folder.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kamebench import assets
from kamebench.records import Record
from kamebench.store import write_text


class CachedAnswer(Record):
    """A judge's raw answer and its key in readable form."""

    key: dict[str, Any]
    text: str
    finish_reason: str
    input_tokens: int | None = None
    output_tokens: int | None = None


class JudgeCache:
    """Judges' answers by the hash of everything that decided them.

    Args:
        folder: default `judge` in kamebench's cache folder; made when first written to.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or assets.cache_folder() / "judge"

    def get(self, key: dict[str, Any]) -> CachedAnswer | None:
        """The answer of a key, or None; a file that is damaged or of another key counts as none."""
        try:
            found = CachedAnswer.model_validate_json(self._path(key).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError):
            return None
        return found if found.key == key else None

    def put(self, answer: CachedAnswer) -> None:
        write_text(self._path(answer.key), answer.model_dump_json(indent=1) + "\n")

    def _path(self, key: dict[str, Any]) -> Path:
        digest = sha256(json.dumps(key, sort_keys=True, ensure_ascii=False))
        return self.folder / digest[:2] / f"{digest}.json"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
