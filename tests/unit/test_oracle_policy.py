"""Restart policies, chunking and the conversation's word count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kamebench.errors import UnknownName
from kamebench.oracle.chunking import Chunking, chunker
from kamebench.oracle.policy import PolicySettings, UserState
from kamebench.oracle.prompt import Conversation

S = 1_000_000_000


def user(words: int, *, final: bool = False, asked: bool = True, running: bool = False) -> UserState:
    return UserState(text=words > 0, words=words, final=final, asked=asked, running=running)


def test_released_policy() -> None:
    policy = PolicySettings().build()
    assert policy.poll_ns == S // 2
    assert policy.decide(1 * S, user(0, asked=False)) is None
    assert policy.decide(2 * S, user(1, asked=False)) == "first"
    assert policy.decide(3 * S, user(2)) is None
    assert policy.decide(4 * S, user(3)) == "grown"
    assert policy.decide(5 * S, user(4)) is None
    assert policy.decide(6 * S, user(4, final=True)) == "final"


def test_at_most_five_starts_in_any_two_seconds_and_no_final_lost() -> None:
    policy = PolicySettings(poll_s=0.1).build()
    starts = [t for t in range(0, 40) if policy.decide(t * S // 10, user(2 * t + 2, asked=t > 0))]
    assert starts == [0, 1, 2, 3, 4, 21, 22, 23, 24, 25]
    assert policy.decide(4 * S, user(100, final=True)) is None
    assert policy.decide(42 * S // 10, user(100, final=True)) == "final"


def test_patient_policy_lets_a_request_end_unless_the_user_has() -> None:
    policy = PolicySettings(name="patient").build()
    assert policy.decide(1 * S, user(2, asked=False)) == "first"
    assert policy.decide(2 * S, user(9, running=True)) is None
    assert policy.decide(3 * S, user(9)) == "grown"
    assert policy.decide(4 * S, user(9, final=True, running=True)) == "final"


def test_final_only_policy() -> None:
    policy = PolicySettings(name="final-only").build()
    assert policy.decide(1 * S, user(9, asked=False)) is None
    assert policy.decide(2 * S, user(9, final=True, asked=False)) == "final"


def test_unknown_policy_is_named() -> None:
    with pytest.raises(UnknownName, match="released"):
        PolicySettings(name="relesed").build()


@given(st.lists(st.text(alphabet="ab \n", min_size=1, max_size=4), max_size=12))
@pytest.mark.parametrize("kind", ["released", "word-safe"])
def test_chunkers_lose_nothing_but_white_space_at_the_end(kind: Chunking, chunks: list[str]) -> None:
    cutter = chunker(kind)
    pieces = [piece for chunk in chunks for piece in cutter.feed(chunk)] + list(cutter.flush())
    assert "".join(pieces).rstrip() == "".join(chunks).rstrip()
    assert all(piece.strip() for piece in pieces)
    if kind == "word-safe":
        words = [word for piece in pieces for word in piece.split()]
        assert words == "".join(chunks).split()


def test_released_chunks_are_one_each_as_they_come() -> None:
    cutter = chunker("released")
    assert [list(cutter.feed(chunk)) for chunk in ("un", " ", "believable")] == [["un"], [], [" believable"]]


def test_the_word_count_never_falls_within_an_utterance() -> None:
    conversation = Conversation()
    conversation.hear_partial("one two three")
    conversation.hear_partial("one")
    assert (conversation.words, conversation.pending, conversation.committed) == (3, "one", "")
    conversation.hear_final("one two")
    assert (conversation.words, conversation.pending, conversation.committed) == (2, "", "one two")
