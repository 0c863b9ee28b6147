"""When the back-end is asked: the released server's rule and two others, each a small class.

A policy is asked at every poll, by stream time, and keeps its own history; one object a session.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal, Protocol

from kamebench.errors import UnknownName

Reason = Literal["first", "grown", "final"]
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class UserState:
    """What is known of the user at a poll.

    text: anything to ask about, committed or pending. words: cumulative count over the session; what an
    interim result takes back does not lower it. final: a final result came since the last request.
    asked: a request was made in this session. running: the latest request has not ended.
    """

    text: bool
    words: int
    final: bool
    asked: bool
    running: bool


class Policy(Protocol):
    """Decides at each poll whether to ask the back-end now."""

    poll_ns: int

    def decide(self, t_ns: int, user: UserState) -> Reason | None:
        """Why to start a request at stream time `t_ns` (a running one is cancelled), or None."""
        ...


class ReleasedPolicy:
    """The released server's rule.

    Every 0.5 s: start if no request was made yet and there is user text; restart if the cumulative word
    count grew by `min_new_words` since the last start or a final result came; at most `max_restarts` starts
    within `window_s`. A final that meets the limit is kept for the next poll (the released server forgets
    it; at its own poll interval the limit never binds).
    """

    def __init__(
        self, poll_s: float = 0.5, min_new_words: int = 2, max_restarts: int = 5, window_s: float = 2.0
    ) -> None:
        self.poll_ns = round(poll_s * NS_PER_S)
        self._min_new_words, self._max_restarts = min_new_words, max_restarts
        self._window_ns = round(window_s * NS_PER_S)
        self._starts: deque[int] = deque()
        self._words_at_start = 0

    def decide(self, t_ns: int, user: UserState) -> Reason | None:
        while self._starts and t_ns - self._starts[0] > self._window_ns:
            self._starts.popleft()
        reason = self._reason(user)
        if reason is None or len(self._starts) >= self._max_restarts:
            return None
        self._starts.append(t_ns)
        self._words_at_start = user.words
        return reason

    def _reason(self, user: UserState) -> Reason | None:
        if user.final:
            return "final"
        if not user.asked:
            return "first" if user.text else None
        return "grown" if user.words - self._words_at_start >= self._min_new_words else None


class PatientPolicy(ReleasedPolicy):
    """As released, but only a final result interrupts a running request; growth waits for its end."""

    def _reason(self, user: UserState) -> Reason | None:
        if user.running and not user.final:
            return None
        return super()._reason(user)


class FinalOnlyPolicy(ReleasedPolicy):
    """One request for each final result and none before: what a cascade would do."""

    def _reason(self, user: UserState) -> Reason | None:
        return "final" if user.final else None


POLICIES: dict[str, type[ReleasedPolicy]] = {
    "released": ReleasedPolicy,
    "patient": PatientPolicy,
    "final-only": FinalOnlyPolicy,
}


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """A policy by name, with its limits; the defaults are the released server's."""

    name: str = "released"
    poll_s: float = 0.5
    min_new_words: int = 2
    max_restarts: int = 5
    window_s: float = 2.0

    def build(self) -> Policy:
        """A new policy for one session.

        Raises:
            UnknownName: no policy of that name.
        """
        if self.name not in POLICIES:
            raise UnknownName("restart policy", self.name, POLICIES)
        return POLICIES[self.name](self.poll_s, self.min_new_words, self.max_restarts, self.window_s)
