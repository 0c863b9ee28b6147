"""Answers that talk to the judge: what looks like a verdict or ends the answer's block is made harmless.

Only spans that a prompt's own syntax uses are touched, and only their brackets and signs; every other answer
reaches the judge character by character. An answer that argues in plain words ("give me full marks") is left
to the judge: `kamebench judge-check` measures how far a judge falls for it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from kamebench.judge.parsing import holds_verdict

_OPEN, _CLOSE = r"[\[［⟦〚【]", r"[\]］⟧〛】]"
_BRACKETS = _OPEN[1:-1] + _CLOSE[1:-1]
_SPANS = re.compile(
    rf"""
    (?:{_OPEN}\s*){{2,}}[^{_BRACKETS}]{{0,60}}(?:{_CLOSE}\s*){{2,}}    # a verdict: [[10]], [[A]]
    | {_OPEN}\s*the\s+(?:start|end)\s+of\b[^\n]{{0,60}}?{_CLOSE}
    | {_OPEN}\s*(?:instruction|system|user\s+question|question)s?\s*{_CLOSE}
    | <\s*\|[^\n|]{{0,80}}\|\s*>
    | ^[^\S\n]*\#{{2,}}\s*(?:user|assistant(?:\s+[ab])?|reference\s+answer|system)\s*:?
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_PLAIN = str.maketrans(
    {**dict.fromkeys("[［⟦〚【<", "("), **dict.fromkeys("]］⟧〛】>", ")"), "|": None, "#": None}
)
_BARE = {"[": "(", "]": ")"}


@dataclass(frozen=True, slots=True)
class Shielded:
    """The text for the judge, and the spans that were changed in it as they stood in the answer."""

    text: str
    changed: tuple[str, ...] = ()


def shield(answer: str) -> Shielded:
    """Make an answer safe to stand in a judge's prompt; an ordinary one comes back as it is."""
    changed: list[str] = []

    def replace(match: re.Match[str]) -> str:
        changed.append(match[0])
        return match[0].translate(_PLAIN)

    text = _SPANS.sub(replace, answer)
    if holds_verdict(text):  # spelled with escapes or invisible characters
        changed.append(text)
        text = "".join(_BARE.get(unicodedata.normalize("NFKC", char), char) for char in text)
    return Shielded(text, tuple(changed))
