"""Written text made speakable: what an engine would stumble over is turned into words.

Rules run in order, from structure (markup, lists, line breaks) over abbreviations and notation (formulas,
units, currency: `notation.py`) to the last characters that an English voice cannot say. Plain numbers are
left to the engine, which reads them well. What is written is kept beside what is said (`SpokenTurn`).
"""

from __future__ import annotations

import re
import unicodedata

from kamebench.speech.notation import RULES, Rule

_ABBREVIATIONS = {
    "e.g.": "for example", "i.e.": "that is", "vs.": "versus", "vs": "versus", "approx.": "approximately",
    "Dr.": "Doctor", "Mr.": "Mister", "Mrs.": "Missus", "Ms.": "Miz", "Prof.": "Professor", "St.": "Saint",
    "Jr.": "Junior", "w/o": "without", "w/": "with", "a.m.": "a m", "p.m.": "p m", "Ph.D.": "P H D",
    "PhD": "P H D", "Fig.": "figure", "fig.": "figure",
}  # fmt: skip

_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-")

_LATEX = {
    "times": " × ", "cdot": " × ", "div": " ÷ ", "pm": " ± ", "leq": " ≤ ", "le": " ≤ ", "geq": " ≥ ",
    "ge": " ≥ ", "neq": " ≠ ", "ne": " ≠ ", "approx": " ≈ ", "to": " → ", "rightarrow": " → ",
    "Rightarrow": " ⇒ ", "infty": " infinity ", "left": "", "right": "", "quad": " ", "circ": "°",
}  # fmt: skip

_LINKS: list[Rule] = [
    (r"!?\[([^\]]+)\]\([^)]+\)", r"\1"),  # a link keeps its text
    (r"https?://(?:www\.)?([^\s<>()?#]+)[^\s<>()]*", lambda m: _address(m[1])),
    (r"\b([\w.+-]+)@((?:[\w-]+\.)+[a-z]{2,})\b", lambda m: f"{_address(m[1])} at {_address(m[2])}"),
    (r"\b((?:[\w-]+\.)+(?:com|org|net|edu|gov|io|dev)(?:/[\w/-]*)?)\b", lambda m: _address(m[1])),
]

_STRUCTURE: list[Rule] = [
    (r"```[a-zA-Z]*\n?|`", ""),
    (r"<br\s*/?>", "\n"),
    (r"(?m)^\s*#{1,6}\s+(.+?)[.:]?\s*$", r"\1."),
    (r"(?m)^\s*([=*_-])\1{2,}\s*$", "\n"),  # a rule across the page
    (r"\*\*(?=\S)|(?<=\S)\*\*|(?<!\w)__(?=\S)|(?<=\S)__(?!\w)|~~", ""),
    (r"(?<![\w*])[*_](\S(?:[^*_\n]*\S)?)[*_](?![\w*])", r"\1"),
    (r"\\[\[\]()]", " "),
    (r"\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}", r"\1/\2"),
    (r"\\sqrt\{([^{}]+)\}", r"√\1"),
    (r"\\(?:text|mathrm|mathbf)\{([^{}]*)\}", r"\1"),
    (r"\\int_\{?(\w+)\}?\^\{?(\w+)\}?", r"the integral from \1 to \2 of "),
    (r"\\sum_\{?([^{}\s^]+)\}?\^\{?(\w+)\}?", r"the sum from \1 to \2 of "),
    (r"\\([a-zA-Z]+)", lambda m: _LATEX.get(m[1], f" {m[1]} ")),
    (r"\$\$([^$]+)\$\$", r" \1 "),
    (r"\$(?!\d)([^$\n]+)\$", r"\1"),  # LaTeX, not money
    (r"(?m)^\s*[-*•–]\s+(.+?)[.;,]?\s*$", r"\1."),
    (r"(?m)^\s*\(?(\d{1,2}|[a-z])[.)]\s+(.+?)[.;,]?\s*$", r"\1: \2."),
    (r"(?<=[^\s.:;?!,])\s*\n(?=[A-Z][\w ]{0,24}:)", ". "),  # 'Topic: ...' begins a sentence
    (r"\s*\n\s*\n\s*", ". "),
    (r"(?<=[a-z]:)\s*\n\s*", " "),
    (r"\s*\n\s*", ", "),
    (r"\b[Nn]os?\.\s?(?=\d)", "number "),
    (r"\betc\.(?=\s+[A-Z]|\s*$)", "and so on."),
    (r"\betc\b\.?", "and so on"),
    (r"\b(?:[A-Z]\.){2,}(?=\s+[A-Z][a-z]|\s*$)", lambda m: f"{' '.join(m[0][::2])}."),
    (r"\b(?:[A-Z]\.){2,}", lambda m: " ".join(m[0][::2])),
    (r"\s*&\s*", " and "),
]

_CLEANING: list[Rule] = [
    (r"[“”\"«»]", ""),
    (r"[‘’]", "'"),
    (r"(?<!\w)'|'(?!\w)", ""),
    (r"\s*[\[({]\s*", ", "),
    (r"\s*[\])}]\s*([.,;:?!])?", lambda m: f"{m[1]} " if m[1] else ", "),
    (r"\s+[–—-]+\s+|—|--+", ", "),
    (r"–|-(?!\w)|(?<!\w)-", " "),
    (r"[^\w\s.,;:?!'-]", " "),
    (r"_+", " "),
    (r"\s+", " "),
    (r"\s+([.,;:?!])", r"\1"),
    (r"([.?!])(?:\s*[.,;:])+", r"\1"),
    (r"[,;:]+(?:\s*[,;:])*(?=\s*[.?!])", ""),
    (r"([,;:])(?:\s*[,;:])+", r"\1"),
    (r"([?!])[?!]+", r"\1"),
    (r"^[\s.,;:?!'-]+|[\s,;:'-]+$", ""),
]

_PASSES = 8  # the second nearly always changes nothing; the limit only ends what would go round


def normalise(text: str) -> str:
    """`text` as it should be said; empty when nothing in it can be said.

    Saying what is said changes nothing: normalise(normalise(text)) == normalise(text).
    """
    for _ in range(_PASSES):
        spoken = _pass(text)
        if spoken == text:
            break
        text = spoken
    return text


def _pass(text: str) -> str:
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+", lambda m: "^{" + m[0].translate(_RAISED) + "}", text)
    text = re.sub(r"(?<=\d)\s?(?=[¼-¾⅐-⅞])", " and ", text)
    spaces = re.sub(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}\b)", ",", text.translate(_LOWERED))
    text = unicodedata.normalize("NFKC", spaces).replace("\u2044", "/")
    text = _apply(_LINKS, text)
    text = _apply(_STRUCTURE, text)
    for word, spoken in _ABBREVIATIONS.items():
        edge = r"(?<![\w.])" + re.escape(word) + (r"(?![\w.])" if word[-1].isalnum() else "")
        text = re.sub(edge, spoken, text)
    text = _apply(RULES, text)
    text = _apply(_CLEANING, "".join(_sayable(letter) for letter in text))
    return text if re.search(r"\w", text) else ""


def _apply(rules: list[Rule], text: str) -> str:
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return text


def _sayable(letter: str) -> str:
    """The character if an English voice can say it, a name for it, or a space."""
    if letter.isascii():
        return letter
    name = unicodedata.name(letter, "")
    if name.startswith("LATIN ") or letter in "“”«»‘’–—":
        return letter
    if name.startswith("GREEK ") and " LETTER " in name:
        return f" {name.split(' LETTER ')[1].split(' ')[0].lower()} "
    return " infinity " if letter == "∞" else " "


def _address(text: str) -> str:
    """A network address as it is read out."""
    return text.rstrip("/.,").replace(".", " dot ").replace("/", " slash ")
