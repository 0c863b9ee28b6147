"""Written text made speakable: what an engine would stumble over is turned into words.

Rules run in order, from structure (lists, markup, line breaks) over notation (formulas, units, currency) to
the last characters that no engine can say. Plain numbers are left to the engine, which reads them well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

_Replacement = str | Callable[[re.Match[str]], str]

_UNITS = {
    "km/h": "kilometres per hour", "m/s^2": "metres per second squared", "m/s": "metres per second",
    "mph": "miles per hour", "km": "kilometres", "cm": "centimetres", "mm": "millimetres", "kg": "kilograms",
    "mg": "milligrams", "ml": "millilitres", "kWh": "kilowatt hours", "kW": "kilowatts", "Hz": "hertz",
    "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz", "ms": "milliseconds", "GB": "gigabytes",
    "MB": "megabytes", "kPa": "kilopascals", "Nm": "newton metres", "ft": "feet",
    "lbs": "pounds", "lb": "pounds",
}  # fmt: skip

_ABBREVIATIONS = {
    "e.g.": "for example", "i.e.": "that is", "etc.": "and so on", "vs.": "versus", "vs": "versus",
    "approx.": "approximately", "Dr.": "Doctor", "Mr.": "Mister", "Mrs.": "Missus", "Prof.": "Professor",
    "St.": "Saint", "No.": "number", "w/o": "without", "w/": "with", "&": "and", "a.m.": "a m", "p.m.": "p m",
}  # fmt: skip

_SYMBOLS = {
    "<=": " is at most ", ">=": " is at least ", "!=": " is not equal to ", "≤": " is at most ",
    "≥": " is at least ", "≠": " is not equal to ", "≈": " is about ", "→": " to ", "->": " to ",
    "=>": " gives ",
    "×": " times ", "·": " times ", "÷": " divided by ", "±": " plus or minus ", "√": " square root of ",
    "π": " pi ", "∞": " infinity ", "°C": " degrees Celsius", "°F": " degrees Fahrenheit", "°": " degrees",
    "²": " squared", "³": " cubed", "½": " one half", "¼": " one quarter", "¾": " three quarters", "…": ". ",
}  # fmt: skip

_CURRENCY = {"$": "dollar", "€": "euro", "£": "pound"}  # fmt: skip
_POWERS = {"2": "squared", "3": "cubed"}
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_TERM = r"(?:\b(?:\d+(?:\.\d+)?[a-zA-Z]?|[a-zA-Z]|squared|cubed)\b|\))"
_TERM_AFTER = r"(?=\s*(?:\d|[a-zA-Z]\b|\())"


@cache
def _inflect() -> Any:
    import inflect

    return inflect.engine()


def _ordinal(match: re.Match[str]) -> str:
    return str(_inflect().number_to_words(_inflect().ordinal(match[1]), andword=""))


def _money(match: re.Match[str]) -> str:
    unit, amount, scale = _CURRENCY[match[1]], match[2], match[3] or ""
    if scale:
        return f"{amount} {scale.strip()} {unit}s"
    whole, _, cents = amount.partition(".")
    name = unit if whole == "1" else f"{unit}s"
    return f"{whole} {name}" + (f" and {int(cents)} cents" if cents.strip("0") and len(cents) == 2 else "")


def _range(match: re.Match[str]) -> str:
    """'9-10' is a range, '10-9' a difference."""
    return f"{match[1]} {'to' if int(match[1]) < int(match[2]) else 'minus'} {match[2]}"


def _power(match: re.Match[str]) -> str:
    return " " + _POWERS.get(match[1], f"to the power of {match[1]}")


def _fraction(match: re.Match[str]) -> str:
    return f"{match[1]} over {match[2]}" if not match[1].isdigit() else f"{match[1]} divided by {match[2]}"


def _unit(match: re.Match[str]) -> str:
    return f"{match[1]} {_UNITS[match[2]]}"


def _any_of(words: dict[str, str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_STRUCTURE: list[tuple[str, _Replacement]] = [
    (r"```[a-zA-Z]*\n?|`", ""),
    (r"!?\[([^\]]+)\]\((?:[^)]+)\)", r"\1"),  # links keep their text
    (
        r"https?://(\S+?)(?=[\s)>,]|$)",
        lambda m: m[1].rstrip("/.").replace("/", " slash ").replace(".", " dot "),
    ),
    (r"(?m)^\s*#{1,6}\s*", ""),
    (r"\*\*|__|~~", ""),
    (r"(?<!\w)[*_](\S(?:[^*_]*\S)?)[*_](?!\w)", r"\1"),
    (r"\\(?:frac)\{([^}]+)\}\{([^}]+)\}", r"\1 over \2"),
    (r"\\sqrt\{([^}]+)\}", r"square root of \1"),
    (r"\\(?:times|cdot)", " times "),
    (r"\$\$?([^$\d][^$]*)\$\$?", r"\1"),  # LaTeX, not money
    (r"(?m)^\s*[-*•]\s+(.+?)[.;,]?\s*$", r"\1."),
    (r"(?m)^\s*\(?(\d{1,2})[.)]\s+(.+?)[.;,]?\s*$", r"\1: \2."),
]

_NOTATION: list[tuple[str, _Replacement]] = [
    (rf"([$€£])\s?({_NUMBER})(\s(?:thousand|million|billion|trillion)\b)?", _money),
    (rf"({_NUMBER})\s?([€£])", lambda m: f"{m[1]} {_CURRENCY[m[2]]}s"),
    (rf"({_NUMBER})\s?%", r"\1 percent"),
    (r"\b(\d+)(?:st|nd|rd|th)\b", _ordinal),
    (rf"({_NUMBER})\s?({_any_of(_UNITS)})(?![\w/^])", _unit),
    (r"(?<![\w.=+*/^-])(\d+)[-–](\d+)\b(?![-/^=*+])", _range),
    (r"\bsqrt\(([^)]*)\)", r"square root of \1"),
    (r"\b([a-zA-Z])\s?\(([a-zA-Z])\)", r"\1 of \2"),  # f(x)
    (r"\^\{?(-?\d+|[a-zA-Z])\}?", _power),
    (rf"({_TERM})\s?\*\s?{_TERM_AFTER}", r"\1 times "),
    (rf"({_TERM})\s?\+\s?{_TERM_AFTER}", r"\1 plus "),
    (rf"({_TERM})\s[-−–]\s{_TERM_AFTER}", r"\1 minus "),
    (rf"({_TERM})[-−]{_TERM_AFTER}(?=\d)", r"\1 minus "),
    (rf"(?<![\w/])({_NUMBER}|[a-z])\s?/\s?({_NUMBER}|[a-z])(?![\w/])", _fraction),
    (r"(?<=[\w)])\s*=\s*(?=[\w(-])", " equals "),
    (r"(?<=[\w)])\s+<\s+(?=[\w(])", " is less than "),
    (r"(?<=[\w)])\s+>\s+(?=[\w(])", " is greater than "),
    (r"(?<![\w.])[-−](?=\d)", "minus "),
    (r"(?<=\w)/(?=\w)", " or "),
]  # fmt: skip

_CLEANING: list[tuple[str, _Replacement]] = [
    (r"[“”\"«»]", ""),
    (r"[‘’]", "'"),
    (r"(?<!\w)'|'(?!\w)", ""),
    (r"\s*[\[({]\s*", ", "),
    (r"\s*[\])}]\s*([.,;:?!])?", lambda m: m[1] + " " if m[1] else ", "),
    (r"\s+[–—-]+\s+|—|--+", ", "),
    (r"\s*\n\s*\n+\s*", ". "),
    (r"\s*\n\s*", ", "),
    (r"[^\w\s.,;:?!'%-]", " "),
    (r"_+", " "),
    (r"\s+", " "),
    (r"\s+([.,;:?!])", r"\1"),
    (r"[,;:]+(?=[.?!])", ""),
    (r"([.?!])(?:\s*[.,;:])+", r"\1"),
    (r"([,;:])(?:\s*[,;:])+", r"\1"),
    (r"^[\s.,;:?!%-]+", ""),
]


def normalise(text: str) -> str:
    """`text` as it should be said; empty when nothing in it can be said. Saying it twice changes nothing."""
    for pattern, replacement in _STRUCTURE:
        text = re.sub(pattern, replacement, text)
    for word, spoken in _ABBREVIATIONS.items():
        edge = r"(?<!\w)" + re.escape(word) + (r"(?!\w)" if word[-1].isalnum() else "")
        text = re.sub(edge, spoken, text)
    for symbol, spoken in _SYMBOLS.items():
        text = text.replace(symbol, spoken)
    for pattern, replacement in _NOTATION:
        text = re.sub(pattern, replacement, text)
    for pattern, replacement in _CLEANING:
        text = re.sub(pattern, replacement, text)
    text = text.strip()
    return text if re.search(r"\w", text) else ""
