"""Different spellings of the same words are the same text, different words are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kamebench.asr.normalise import normalise, word_error_rate

SAME = [
    ("thirty six", "36"),
    ("thirty-six", "36"),
    ("CO 2", "CO2"),
    ("CO₂", "C O two"),
    ("H2O", "H two O"),
    ("one dollar", "$1"),
    ("$1.50", "one dollar and fifty cents"),
    ("$200,000", "two hundred thousand dollars"),
    ("fifty cents", "$0.50"),
    ("twenty first", "21st"),
    ("the first", "the 1st"),
    ("3.5", "three point five"),
    ("zero point five", "0.5"),
    ("5 per cent", "5%"),
    ("twenty percent", "20 %"),
    ("The colour of the theatre.", "the color of the theater"),
    ("It's three o'clock!", "it is 3 o'clock"),
    ("a thousand", "1,000"),
    ("a hundred and five", "105"),
    ("two million", "2,000,000"),
    ("2/3", "two thirds"),
    ("one half", "1/2"),
    ("-5", "minus five"),
    ("10 - 3", "ten minus three"),
    ("3 + 4 = 7", "three plus four equals seven"),
    ("x²", "x squared"),
    ("5:30", "five thirty"),
    ("25 °C", "twenty five degrees Celsius"),
    ("5 km", "five kilometres"),
    ("nineteen eighty-four", "1984"),
    ("The U.S.", "the US"),
    ("O.K., I won't", "okay I will not"),
    ("um, well-known", "Well known"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_the_same_words_come_out_the_same(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)
    assert word_error_rate(one, other) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [("36", "35"), ("$1.50", "$2.50"), ("CO2", "SO2"), ("-5", "5"), ("5%", "5"), ("1/2", "1/3"), ("a", "b")],
)
def test_different_words_stay_different(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


def test_the_rate_counts_substitutions_deletions_and_insertions() -> None:
    reference = "the sun rises in the east"
    assert word_error_rate(reference, "the sun rises in the west") == pytest.approx(1 / 6)
    assert word_error_rate(reference, "the sun rises") == pytest.approx(3 / 6)
    assert word_error_rate(reference, "well the sun rises in the far east") == pytest.approx(2 / 6)
    assert word_error_rate("east", "it is in the far west") == 6


def test_an_empty_reference_has_a_rate() -> None:
    assert word_error_rate("", "") == 0
    assert word_error_rate("...", "something") == 1
    assert word_error_rate("something", "") == 1


@given(st.text(max_size=60))
def test_any_text_can_be_compared_with_itself(text: str) -> None:
    assert word_error_rate(text, text) == 0


@given(st.integers(0, 9_999))
def test_any_number_is_the_same_in_digits_with_and_without_a_sign_for_thousands(number: int) -> None:
    assert normalise(f"{number:,} people") == normalise(f"{number} people")
