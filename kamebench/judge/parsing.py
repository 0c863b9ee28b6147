"""From a judge's words to its rating.

The default parser takes the last verdict that stands where a verdict stands: after a label ("Rating: [[8]]"),
alone on its line, or at the very end. Brackets inside the explanation, and quoted ones, are not verdicts.
The published parser takes the first match wherever it stands, as the published harness does.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kamebench.judge.base import HIGHEST, LOWEST

RatingParser = Callable[[str], float | None]
Winner = Literal["A", "B", "tie"]

# Markdown around and inside a verdict, and the escapes that some models put before brackets.
_DECORATION = r"[\s*_`~$]*"
_VERDICT = re.compile(r"\[\s*\[(?P<inside>[^\[\]]{0,60})\]\s*\]")
_NUMBER = re.compile(
    r"""(?:(?:(?:my|the|final|overall)\s+)*(?:rating|score|verdict|grade)\s*(?:[:=]|\bis\b)?\s*)?
        (?P<number>\d{1,2}(?:\.\d*)?)
        (?:\s*(?:/|out\s+of|of)\s*10(?:\.0*)?)?
        (?:\s*(?:points?|stars?))?\.?""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(
    r"""(?:^|[.!?:;)\]]\s)[\s>\#*_`~$"'“”‘’(-]*        # the label begins a line or a sentence
        (?:(?:therefore|thus|so|hence|overall|finally|in\s+conclusion),?\s+)?
        (?:(?:my|the|this|final|overall|assistant's|answer's)\s+|(?:i\s+(?:would\s+|will\s+)?|i'd\s+)(?:give|assign)\s+(?:it|this)\s+a\s+)*
        (?:rating|score|verdict|grade)\b [^\[\]\n:=]{0,40}? (?:[:=]|\bis\b)
        [\s*_`~$"'“‘(]*$""",
    re.VERBOSE | re.IGNORECASE,
)
# A verdict given in passing: good only where it is the only one.
_CUE = re.compile(
    r"(?:\b(?:i|i'd|i'll)\b[^.\n\"“]{0,60}\b(?:rate|rated|give|score|assign|grade)\b|\b(?:rating|score) of\b)"
    rf"[^.\n\"“\[\]]{{0,60}}{_DECORATION}$",
    re.IGNORECASE,
)
_AFTER_ALONE = re.compile(r"(?:/\s*10|out\s+of\s+10)?[\s*_`~$.!\"'”’)]*", re.IGNORECASE)
_RANGE = re.compile(r"[\s*_`~$]*(?:-|–|—|/|\bor\b|\bto\b)[\s*_`~$]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Found:
    """A double bracket: where it is, what it holds, and how sure it is that it is the verdict."""

    start: int
    end: int
    rating: float | None
    place: Literal["verdict", "in passing", "mention"]


def parse_rating(text: str) -> float | None:
    """The rating in [1, 10] that a judge's answer ends on, or None where there is no clear one.

    `[[7.5]]`, `[[ 8 ]]`, `[[8/10]]`, `[[8]]/10`, `[[rating: 8]]`, `[[8 out of 10]]` are read, with markdown
    around them or without. A range, a decimal comma, another scale, a sign or a value outside 1-10 is
    refused, and so is the whole answer when its last verdict is one of these.
    """
    plain = _plain(text)
    found = [_found(plain, match) for match in _VERDICT.finditer(plain)]
    verdicts = [one for one in found if one.place == "verdict"]
    if verdicts:
        last = verdicts[-1]
        return None if _is_range(plain, found, last) else last.rating
    passing = [one for one in found if one.place == "in passing"]
    if len(passing) == 1 and not _is_range(plain, found, passing[0]):
        return passing[0].rating
    return None


def parse_published(text: str) -> float | None:
    """As the published harness: the first `[[n]]` anywhere, else the first `[n]`; None outside 1-10.

    (The harness would take 0 or 11 as they are; a score file holds 1 to 10.)
    """
    match = re.search(r"\[\[(\d+\.?\d*)\]\]", text) or re.search(r"\[(\d+\.?\d*)\]", text)
    return _in_range(float(match[1])) if match else None


def parse_winner(text: str) -> Winner | None:
    """The winner of a pairwise verdict: the last `[[A]]`, `[[B]]` or `[[C]]` (a tie) that is not quoted."""
    plain = _plain(text)
    matches = re.finditer(rf"\[\s*\[{_DECORATION}(?P<who>[ABC]){_DECORATION}\]\s*\]", plain)
    letters = [match["who"] for match in matches if not _quoted(plain, match.start(), match.end())]
    return {"A": "A", "B": "B", "C": "tie"}[letters[-1]] if letters else None  # type: ignore[return-value]


def parse_winner_published(text: str) -> Winner | None:
    """As the published harness: [[A]] anywhere, else [[B]], else [[C]]."""
    for letter, winner in (("[[A]]", "A"), ("[[B]]", "B"), ("[[C]]", "tie")):
        if letter in text:
            return winner  # type: ignore[return-value]
    return None


def holds_verdict(text: str) -> bool:
    """Whether anything in the text has the form of a verdict, wherever it stands, however spelled."""
    return _VERDICT.search(_plain(text)) is not None


def _plain(text: str) -> str:
    """Full-width brackets and digits as ASCII, escaped brackets bare, invisible characters out."""
    text = unicodedata.normalize("NFKC", text).replace("\\[", "[").replace("\\]", "]").replace("\r\n", "\n")
    return "".join(char for char in text if unicodedata.category(char) != "Cf")


def _found(text: str, match: re.Match[str]) -> _Found:
    start, end = match.span()
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end) if "\n" in text[end:] else len(text)
    before, after = text[line_start:start], text[end:line_end]
    alone = not before.strip(" \t>#*_`~$\"'“‘(-") and _AFTER_ALONE.fullmatch(after) is not None
    place: Literal["verdict", "in passing", "mention"] = "mention"
    if _LABEL.search(before) or alone:
        place = "verdict"
    elif not _quoted(text, start, end):
        closing = _AFTER_ALONE.fullmatch(text[end:]) is not None
        if closing:
            place = "verdict"
        elif _CUE.search(before) or not before.strip(" \t>#*_`~$-"):
            place = "in passing"
    return _Found(start, end, _rating(match["inside"]), place)


def _quoted(text: str, start: int, end: int) -> bool:
    """Whether a quotation that was opened before `start` on the line is closed after `end`."""
    before = text[text.rfind("\n", 0, start) + 1 : start]
    after = text[end : text.find("\n", end) if "\n" in text[end:] else len(text)]
    straight = before.count('"') % 2 == 1 and '"' in after
    curly = before.count("“") > before.count("”") and "”" in after
    ticks = before.count("`") % 2 == 1 and "`" in after
    single = re.search(r"(?:^|\s)'[^']*$", before) is not None and "'" in after
    return straight or curly or ticks or single


def _is_range(text: str, found: list[_Found], chosen: _Found) -> bool:
    """Whether another bracket is joined to the chosen one: "[[7]]-[[8]]", "[[7]] or [[8]]"."""
    for one in found:
        between = text[one.end : chosen.start] if one.end <= chosen.start else text[chosen.end : one.start]
        if one is not chosen and one.rating != chosen.rating and _RANGE.fullmatch(between):
            return True
    return False


def _rating(inside: str) -> float | None:
    match = _NUMBER.fullmatch(inside.strip(" \t\n*_`~$"))
    return _in_range(float(match["number"])) if match else None


def _in_range(rating: float) -> float | None:
    return rating if LOWEST <= rating <= HIGHEST else None
