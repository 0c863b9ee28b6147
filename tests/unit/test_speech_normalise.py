"""Text for speaking: what is said for what is written."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kamebench.speech import normalise
from kamebench.tasks import load_task

CASES = {
    # formulas
    "x^2 + 3x = 10": "x squared plus 3x equals 10",
    "5+3*2": "5 plus 3 times 2",
    "f(x) = 2x^2 - 3x + 1": "f of x equals 2x squared minus 3x plus 1",
    "10 - 3 = 7": "10 minus 3 equals 7",
    "10-3=7": "10 minus 3 equals 7",
    "10^-3 and 10⁻³": "10 to the power of minus 3 and 10 to the power of minus 3",
    "2x^{10}": "2x to the power of 10",
    r"\frac{1}{2} and \sqrt{16}": "one half and square root of 16",
    "Area = πr²": "Area equals pi r squared",
    "5 < 6, x ≤ y": "5 is less than 6, x is at most y",
    "3 x 4 = 12": "3 times 4 equals 12",
    "x - 5 = 3(x+2)": "x minus 5 equals 3, x plus 2",
    "6e-3": "6 times 10 to the power of minus 3",
    "n! grows": "n factorial grows",
    # numbers with something beside them
    "What is 3/4 of 12?": "What is three quarters of 12?",
    "3½ cups, 22/7": "3 and one half cups, 22 divided by 7",
    "60 km/h, 9.8 m/s^2, 1 km": "60 kilometres per hour, 9.8 metres per second squared, 1 kilometre",
    "20 °C and 5%": "20 degrees Celsius and 5 percent",
    "$3.50, €20, £1, $0.50": "3 dollars and 50 cents, 20 euros, 1 pound, 50 cents",
    "$1.5 million or $2bn": "1.5 million dollars or 2 billion dollars",
    "pages 10-20, 3–5 km": "pages 10 to 20, 3 to 5 kilometres",
    "a 3-to-5 percent rise": "a 3 to 5 percent rise",
    "3rd of the 21st century": "third of the twenty-first century",
    "on 2024-05-01": "on May first, 2024",
    "call 555-123-4567": "call 555, 123, 4567",
    "in the 1990s": "in the 1990s",
    "-5 degrees": "minus 5 degrees",
    "World War II, Henry VIII": "World War Two, Henry the eighth",
    # abbreviations
    "cats, e.g. lions, i.e. big ones": "cats, for example lions, that is big ones",
    "pens, etc. Dr. Smith vs. Mr. Jones": "pens, and so on. Doctor Smith versus Mister Jones",
    "No. 5 is alive": "number 5 is alive",
    "No. It is not.": "No. It is not.",
    "No.": "No.",
    "In the U.S. Many do.": "In the U S. Many do.",
    "he/she and/or A&B": "he or she and or A and B",
    # structure
    "**Bold**, _italic_ and `code`": "Bold, italic and code",
    "Colours:\n- red\n- blue\n\nDone": "Colours: red. blue. Done",
    "Steps\n1. Mix it.\n2) Bake it": "Steps, 1: Mix it. 2: Bake it.",
    "45 minutes\nTopic: war\nGrade level: 9-10": "45 minutes. Topic: war. Grade level: 9 to 10",
    "above.\n\n===\n\nBelow": "above. Below",
    'He said: "Yes" (softly).': "He said: Yes, softly.",
    "See [the page](https://example.com/x).": "See the page.",
    "https://www.example.com/a/b?c=d": "example dot com slash a slash b",
    "write to me@example.com": "write to me at example dot com",
    "one - no, two — no, three": "one, no, two, no, three",
    "She's 5 o'clock's \u2018friend\u2019": "She's 5 o'clock's friend",
    "C++, C# and CO₂": "C plus plus, C sharp and CO2",
    "hello 😀": "hello",
}


@pytest.mark.parametrize("written", CASES)
def test_what_is_written_becomes_what_is_said(written: str) -> None:
    assert normalise(written) == CASES[written]


@pytest.mark.parametrize("nothing", ["", " ", "...", "---", "日本", "😀", "()", "\n\n"])
def test_what_cannot_be_said_is_empty(nothing: str) -> None:
    assert normalise(nothing) == ""


MARKS = "0123456789 abxyzABIVX.,;:?!'\"-+*/^=<>()[]{}$€%#_~`\\|°²½–\n\t"


@given(st.text(alphabet=MARKS, max_size=40) | st.text(max_size=30))
@example("(" * 12 + "a")
@example("1-2-3/4^5!")
def test_saying_what_is_said_changes_nothing(text: str) -> None:
    spoken = normalise(text)
    assert normalise(spoken) == spoken
    assert spoken == "" or re.search(r"\w", spoken)
    assert re.fullmatch(r"[\w\s.,;:?!'-]*", spoken)
    assert "\n" not in spoken and "  " not in spoken and "_" not in spoken


@given(st.lists(st.from_regex(r"[a-z]{3,9}", fullmatch=True), min_size=1, max_size=12))
def test_plain_words_stay_as_they_are(words: list[str]) -> None:
    text = " ".join(word for word in words if word not in ("etc", "fig", "sqrt", "approx")) + " here."
    assert normalise(text.strip()) == text.strip()


def test_shipped_questions_are_written_as_they_are_said() -> None:
    for question in load_task("spoken-basics").questions:
        for turn in question.turns:
            assert normalise(turn.text) == turn.text
            assert normalise(turn.reference or "") == turn.reference
