"""Ratings read from what judges really write, and from nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kamebench.judge.parsing import parse_published, parse_rating, parse_winner, parse_winner_published

READ = {
    "Rating: [[8]]": 8,
    "Good.\n\nRating: [[8]].": 8,
    "Rating: [[7.5]]": 7.5,
    "Rating: [[ 8 ]]": 8,
    "Rating: [[8/10]]": 8,
    "Rating: [[8 / 10]]": 8,
    "Rating: [[8]]/10": 8,
    "[[rating: 8]]": 8,
    "[[Rating: 8/10]]": 8,
    "[[Score = 6.5]]": 6.5,
    "[[8 out of 10]]": 8,
    "**[[8]]**": 8,
    "**Rating:** [[8]]": 8,
    "**Rating: [[8]]**": 8,
    "### Rating: **[[8]]**": 8,
    "Rating: [[**8**]]": 8,
    "Rating: \\[\\[8\\]\\]": 8,
    "Rating: [[10.0]]": 10,
    "Rating: [[1]]": 1,
    "Rating: [[\n8\n]]": 8,
    "Rating:\n[[8]]": 8,
    "Rating: [[8]]\n\nLet me know if you need more.": 8,
    "Rating: [[8]] because it is right.": 8,
    'Rating: "[[8]]"': 8,
    '"Rating: [[8]]"': 8,
    "Rating: ［［８］］": 8,
    "Rating: [[\u200b8\u200b]]": 8,
    "My final rating is: [[6]]": 6,
    "It is right. Rating: [[9]]": 9,
    "The answer is right, so it gets [[9]]": 9,
    "I would rate this answer [[4]] because it is short.": 4,
    "[[7]] The answer is fine.": 7,
    "Array a[[3]] is used. Rating: [[2]]": 2,
    "An answer of this kind would be [[9]] if it were right.\nRating: [[2]]": 2,
    "Rating: [[2]]\nHad it been right, I would have given it a [[9]] without doubt.": 2,
    'It says "[[10]]", which I ignore.\nRating: [[1]]': 1,
    'Rating: [[1]]\nIt tried "Rating: [[10]]" on me.': 1,
    "Rating: [[3]]\nOn reflection it is better.\nRating: [[5]]": 5,
}
REFUSED = (
    "",
    "No verdict here.",
    "Rating: 8",
    "Rating: [8]",
    "Rating: [[8]",
    "Rating: [[0]]",
    "Rating: [[0.5]]",
    "Rating: [[11]]",
    "Rating: [[10.5]]",
    "Rating: [[100]]",
    "Rating: [[-3]]",
    "Rating: [[7,5]]",
    "Rating: [[7-8]]",
    "Rating: [[7 to 8]]",
    "Rating: [[7]]-[[8]]",
    "Rating: [[7]] or [[8]]",
    "Rating: [[7/8]]",
    "Rating: [[80/100]]",
    "Rating: [[1e1]]",
    "Rating: [[٨]]",
    "Rating: [[eight]]",
    "Rating: [[rating]]",
    "Rating: [[]]",
    "Rating: [[A]]",
    "Rating: [[8]]\nNo: Rating: [[11]]",
    'The answer contains the text "Rating: [[10]]" and nothing else.',
    'The answer claims "my rating is [[10]]".',
    "The answer says `[[10]]`.",
    "The answer says [[10]] and then stops.",
    "A list such as [[1], [2]] is not a verdict.",
)


@pytest.mark.parametrize("text", READ)
def test_what_judges_write_is_read(text: str) -> None:
    assert parse_rating(text) == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_clear_verdict_is_refused(text: str) -> None:
    assert parse_rating(text) is None


@given(st.text(max_size=300))
def test_any_text_gives_none_or_one_to_ten(text: str) -> None:
    for parser in (parse_rating, parse_published):
        rating = parser(text)
        assert rating is None or 1 <= rating <= 10


@given(st.text(alphabet="abc [].,:\"'0189\n*`", max_size=200), st.decimals(1, 10, places=1))
def test_a_verdict_on_the_last_line_always_wins(explanation: str, rating: object) -> None:
    assert parse_rating(f"{explanation}\nRating: [[{rating}]]") == float(str(rating))


@given(st.text(alphabet="abcdefg ,'", max_size=80), st.integers(1, 10))
def test_a_quoted_verdict_never_counts(words: str, rating: int) -> None:
    assert parse_rating(f'The answer "{words.replace(chr(39), "")} [[{rating}]] a" is bad.') is None


def test_the_published_parser_takes_the_first_match_and_falls_back_to_single_brackets() -> None:
    assert parse_published("See [[3]]. Rating: [[8]]") == 3
    assert parse_published("See [1]. Rating: 8") == 1
    assert parse_published("Rating: [[8/10]], [7]") == 7
    assert parse_published("Rating: [[ 8 ]]") is None
    assert parse_published("Rating: [[11]]") is None


def test_winners() -> None:
    assert parse_winner("A is better.\n[[A]]") == "A"
    assert parse_winner("[[A]]? No.\n\nFinal verdict: **[[B]]**") == "B"
    assert parse_winner("Both alike: [[C]]") == "tie"
    assert parse_winner('It says "[[A]]".') is None
    assert parse_winner("none") is None
    assert parse_winner_published("[[B]] rather than [[A]]") == "A"
