"""Text made comparable: what differs only in how it is written comes out the same.

Numbers, ordinals, money, contractions, fillers and spelling are Whisper's own English standardisation
(package whisper-normalizer; Radford et al. 2022, appendix C). Around it: formulas, signs, units and
fractions, which that takes apart in one spelling and not in the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

_DIGIT_WORDS = "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_UNITS = {
    "km": "kilometers",
    "cm": "centimeters",
    "mm": "millimeters",
    "nm": "nanometers",
    "kg": "kilograms",
    "mg": "milligrams",
    "ml": "milliliters",
    "hz": "hertz",
    "khz": "kilohertz",
    "mph": "miles per hour",
}
_FRACTIONS = {
    "1/2": "one half",
    "1/3": "one third",
    "2/3": "two thirds",
    "1/4": "one quarter",
    "3/4": "three quarters",
    "1/5": "one fifth",
}
# A letter O beside numbers is read as zero; in a formula it is oxygen.
_OXYGEN = "oxygenletter"

_Replacement = str | Callable[[re.Match[str]], str]
_BEFORE: tuple[tuple[re.Pattern[str], _Replacement], ...] = (
    (re.compile(r"o['’]clock", re.IGNORECASE), "oclock"),
    (re.compile(r"[₀-₉]"), lambda m: str(ord(m[0]) - ord("₀"))),
    (re.compile(r"(?<=\d)\s+%"), "%"),
    (re.compile(r"²"), " squared "),
    (re.compile(r"³"), " cubed "),
    (re.compile(r"\b(\d{1,2}):(\d\d)\b"), r"\1\2"),
    # spelt letters: "U.S.", "C O" -> "US", "CO"
    (re.compile(r"\b[A-Z](?:\.\s?[A-Z])+\b\.?|\b[A-Z](?: [A-Z])+\b"), lambda m: re.sub(r"[. ]", "", m[0])),
    # formulas: "H2O" -> "H 2 O", then "H two O"
    (re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Z](?![A-Za-z]))"), " "),
    (re.compile(rf"\b([A-Z][a-z]?) (\d+|{_DIGIT_WORDS}) O\b"), rf"\1 \2 {_OXYGEN}"),
    (re.compile(r"(?<![\w/])\d/\d(?![\w/])"), lambda m: _FRACTIONS.get(m[0], m[0])),
    (re.compile(r"\b(?:a|an) (?=(?:hundred|thousand|million|billion)\b)", re.IGNORECASE), "one "),
    (re.compile(r"(?<=\d)\s*°\s*C\b"), " degrees celsius"),
    (re.compile(r"(?<=\d)\s*°\s*F\b"), " degrees fahrenheit"),
    (re.compile(r"°"), " degrees "),
    (re.compile(r"(?<![\w.)])[-−](?=\d)"), "minus "),
    (re.compile(r"\s[-−]\s(?=[\dA-Za-z])(?<=\d\s[-−]\s)"), " minus "),
    (re.compile(r"="), " equals "),
    (re.compile(r"(?<=[\w)])\s*\+\s*(?=[\w(])"), " plus "),
    (re.compile(r"×|(?<=\d)\s*\*\s*(?=\d)"), " times "),
    (re.compile(r"&"), " and "),
    (re.compile(rf"(?<=\d)\s*({'|'.join(_UNITS)})\b", re.IGNORECASE), lambda m: f" {_UNITS[m[1].lower()]}"),
)
_AFTER: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bok\b"), "okay"),
    (re.compile(_OXYGEN), "o"),
    (re.compile(r"\s+"), " "),
)


def normalise(text: str) -> str:
    """English text in lower case, without punctuation, with numbers as digits and American spelling.

    "CO 2" and "CO2", "thirty six" and "36", "one dollar" and "$1", "per cent" and "%" come out the same.
    """
    for pattern, replacement in _BEFORE:
        text = pattern.sub(replacement, text)
    text = str(_whisper()(text))
    for pattern, after in _AFTER:
        text = pattern.sub(after, text)
    return text.strip()


def word_error_rate(reference: str, hypothesis: str) -> float:
    """(substitutions + deletions + insertions) / words of the reference, both normalised; may exceed 1.

    Against an empty reference: 0.0 where the hypothesis is empty too, else 1.0.
    """
    import jiwer

    truth, found = normalise(reference), normalise(hypothesis)
    if not truth:
        return 1.0 if found else 0.0
    return float(jiwer.wer(truth, found))


@cache
def _whisper() -> Any:
    from whisper_normalizer.english import EnglishTextNormalizer

    return EnglishTextNormalizer()
