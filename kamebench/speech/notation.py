"""Notation in words: numbers with units, currency, fractions, powers, formulas, dates.

`RULES` are (pattern, replacement) pairs for `re.sub`, applied in order to one line of text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

Rule = tuple[str, str | Callable[[re.Match[str]], str]]

# Plural form; the singular drops the first word's s.
UNITS = {
    "km/h": "kilometres per hour", "m/s^2": "metres per second squared", "m/s": "metres per second",
    "mph": "miles per hour", "km": "kilometres", "cm": "centimetres", "mm": "millimetres", "kg": "kilograms",
    "mg": "milligrams", "ml": "millilitres", "mL": "millilitres", "kWh": "kilowatt-hours", "kW": "kilowatts",
    "MW": "megawatts", "Hz": "hertz", "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz",
    "ms": "milliseconds", "GB": "gigabytes", "MB": "megabytes", "kPa": "kilopascals", "kJ": "kilojoules",
    "ft": "feet", "lbs": "pounds", "lb": "pounds", "hrs": "hours", "hr": "hours", "min": "minutes",
    "sec": "seconds", "°C": "degrees Celsius", "°F": "degrees Fahrenheit", "°": "degrees",
}  # fmt: skip
# Only with a space before them: '1990s' and '5m' may mean something else.
SHORT_UNITS = {
    "m": "metres", "g": "grams", "s": "seconds", "L": "litres", "W": "watts", "V": "volts", "J": "joules",
    "N": "newtons",
}  # fmt: skip

CURRENCY = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny")}
SCALES = {"k": "thousand", "m": "million", "M": "million", "bn": "billion", "b": "billion", "B": "billion"}
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
ROMAN = {"I": 1, "V": 5, "X": 10}

NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_NAME = r"[a-zA-Z]\b(?!')"
_BEFORE = r"(?<=[\w)])"  # an operand ends here
_AFTER = r"(?=[\w(√])"  # an operand begins here
# An operand of a formula without spaces: a number, one letter, a number times a letter, or a bracket.
_OPERAND = rf"(?:\b(?:\d+(?:\.\d+)?[a-zA-Z]?|{_NAME}|squared|cubed)|\))"
_NEXT_OPERAND = rf"(?=\s*(?!a\s[a-z]{{2}})(?:\d|{_NAME}|\(|√|square root))"


@cache
def number_words() -> Any:
    """inflect's engine. Importing it takes a second: done before a session, not in the middle of a turn."""
    import inflect

    return inflect.engine()


def in_words(number: int) -> str:
    return str(number_words().number_to_words(number, andword=""))


def ordinal(number: int) -> str:
    return str(number_words().number_to_words(number_words().ordinal(number), andword=""))


def _money(match: re.Match[str]) -> str:
    (unit, part), amount = CURRENCY[match[1]], match[2]
    scale = match[3] or SCALES.get(match[4] or "", "")
    if scale:
        return f"{amount} {scale.strip()} {unit}s"
    whole, _, cents = amount.partition(".")
    if len(cents) not in (0, 2):
        return f"{amount} {unit}s"
    words = [f"{whole} {unit}" if whole == "1" else f"{whole} {unit}s"] if whole != "0" or not cents else []
    if int(cents or 0):
        parts = "pence" if part == "penny" else "cents"
        words.append(f"{int(cents)} {part if int(cents) == 1 else parts}")
    return " and ".join(words) or f"0 {unit}s"


def _unit(match: re.Match[str]) -> str:
    return f"{match[1]} {_counted(match[1], {**UNITS, **SHORT_UNITS}[match[2]])}"


def _counted(amount: str, plural: str) -> str:
    if amount != "1":
        return plural
    first, *rest = plural.split(" ")
    singular = {"feet": "foot", "hertz": "hertz", "kilohertz": "kilohertz"}.get(
        first, first.removesuffix("s")
    )
    return " ".join([singular, *rest])


def _fraction(match: re.Match[str]) -> str:
    """'3/4' is three quarters, '22/7' 22 divided by 7, 'a/b' a over b."""
    above, below = match[1], match[2]
    if not (above.isdigit() and below.isdigit()):
        return f"{above} over {below}"
    if not 0 < int(above) < int(below) <= 10:
        return f"{above} divided by {below}"
    part = {2: "half", 4: "quarter"}.get(int(below)) or ordinal(int(below))
    parts = part if above == "1" else {"half": "halves"}.get(part, f"{part}s")
    return f"{in_words(int(above))} {parts}"


def _range(match: re.Match[str]) -> str:
    """'9-10' is a range, '10-9' a difference."""
    return f"{match[1]} {'to' if float(match[1]) < float(match[2]) else 'minus'} {match[2]}"


def _power(match: re.Match[str]) -> str:
    exponent = match[1].strip("{}() ")
    return " " + ({"2": "squared", "3": "cubed"}.get(exponent) or f"to the power of {exponent}")


def _date(match: re.Match[str]) -> str:
    year, month, day = match[1], int(match[2]), int(match[3])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return f"{year}, {month}, {day}"
    return f"{MONTHS[month - 1]} {ordinal(day)}, {year}"


def _roman(text: str) -> int:
    values = [ROMAN[letter] for letter in text]
    following = [*values[1:], 0]
    return sum(-one if one < next_ else one for one, next_ in zip(values, following, strict=True))


def _ruler(match: re.Match[str]) -> str:
    return f"{match[1]} the {ordinal(_roman(match[2]))}"


def _any_of(words: dict[str, Any]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


RULES: list[Rule] = [
    # Dates, numbers and their marks
    (r"\b(\d{4})-(\d\d)-(\d\d)\b", _date),
    (r"\b(\d+)(?:st|nd|rd|th)\b", lambda m: ordinal(int(m[1]))),
    (r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}\b)", ","),
    (
        r"\b((?:World )?War|Part|Chapter|Act|Section|Volume|Type|Level|Phase|Stage) ([IVX]+)\b",
        lambda m: f"{m[1]} {in_words(_roman(m[2])).capitalize()}",
    ),
    (r"\b([A-Z][a-z]+) ([IVX]{2,5})\b", _ruler),
    (rf"({NUMBER})[eE]([+-]?\d+)\b", r"\1 times 10^\2"),
    (r"#(?=\d)", "number "),
    (r"[~≈](?=\s?\d)", "about "),
    (r"\b24/7\b", "24 7"),
    # Currency, percent, units
    (
        rf"([$€£])\s?({NUMBER})(?:(\s(?:thousand|million|billion|trillion)\b)|({_any_of(SCALES)})\b)?",
        _money,
    ),
    (rf"({NUMBER})\s?([€£])", lambda m: f"{m[1]} {CURRENCY[m[2]][0]}{'' if m[1] == '1' else 's'}"),
    (rf"({NUMBER})\s?[-–]\s?({NUMBER})(?=\s?(?:%|{_any_of(UNITS)})(?![\w^]))", r"\1 to \2"),
    (r"\s?%", " percent"),
    (rf"({NUMBER})\s?({_any_of(UNITS)})(?![\w/^])", _unit),
    (rf"({NUMBER})\s({_any_of(SHORT_UNITS)})(?![\w/^'])(?!\s?[=+*])", _unit),
    # Formulas
    (r"\b(?:sqrt)\s?\(([^()]*)\)", r"square root of \1"),
    (r"√\s?", "square root of "),
    (r"\b([a-zA-Z])\s?\(([a-zA-Z0-9])\)", r"\1 of \2"),  # f(x)
    (r"\b([b-hj-z])!", r"\1 factorial"),
    (r"\b(\d+)!(?=\s*[=+*/-])", r"\1 factorial"),
    (r"\^(\{[^{}]*\}|\([^()]*\)|-?\d+(?:\.\d+)?|[a-zA-Z])", _power),
    (r"\b([a-zA-Z])_\{?(\w)\}?", r"\1 sub \2"),
    (rf"{_BEFORE}\s?[*×·]\s?{_AFTER}", " times "),
    (r"(?<=\d)\s?[xX]\s?(?=\d)", " times "),
    (r"\bC\+\+", "C plus plus"),
    (r"\b([CF])#", r"\1 sharp"),
    (rf"{_BEFORE}\s\+\s{_AFTER}", " plus "),
    (rf"({_OPERAND})\+{_NEXT_OPERAND}", r"\1 plus "),
    (rf"({_OPERAND})\s[-−–]\s{_NEXT_OPERAND}", r"\1 minus "),
    (r"(?<![\w-])(\d+(?:[-–]\d+){2,})(?![\w-])", lambda m: re.sub(r"[-–]", ", ", m[1])),  # telephone numbers
    (r"(?<![\w.=+*/^-])(\d+(?:\.\d+)?)[-–](\d+(?:\.\d+)?)\b(?![-/^=*+])", _range),
    (r"\b(\d+)-to-(\d+)\b", r"\1 to \2"),
    (rf"({_OPERAND})[-−]{_NEXT_OPERAND}(?=\d|\()", r"\1 minus "),
    (r"(?<=\d)[-−](?=[a-z]\b)", " minus "),
    (rf"(?<![\w/])({NUMBER}|[a-z])\s?/\s?({NUMBER}|[a-z])(?![\w/])", _fraction),
    (r"(?<=\w)\s?÷\s?(?=\w)", " divided by "),
    (rf"{_BEFORE}\s*=\s*(?=[\w(−-])", " equals "),
    (rf"{_BEFORE}\s*(?:<=|≤)\s*(?=[\w(-])", " is at most "),
    (rf"{_BEFORE}\s*(?:>=|≥)\s*(?=[\w(-])", " is at least "),
    (rf"{_BEFORE}\s*(?:!=|≠)\s*(?=[\w(-])", " is not equal to "),
    (rf"{_BEFORE}\s*≈\s*(?=[\w(-])", " is about "),
    (rf"{_BEFORE}\s+<\s+(?=[\w(-])", " is less than "),
    (rf"{_BEFORE}\s+>\s+(?=[\w(-])", " is greater than "),
    (r"\s*±\s*", " plus or minus "),
    (r"\s*(?:->|→|⟶)\s*", " to "),
    (r"\s*(?:=>|⇒)\s*", ", so "),
    (r"(?<![\w.)])[-−](?=\d|[a-z]\b)", "minus "),
    (r"\band/or\b", "and or"),
    (r"(?<=[^\W\d_])/(?=[^\W\d_])", " or "),
]  # fmt: skip
