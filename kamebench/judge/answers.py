"""What a judge is given as the answer of each turn: the transcript, or one of the texts behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kamebench.errors import BadRun
from kamebench.oracle import log as oracle_log
from kamebench.oracle import rebuild
from kamebench.records import TurnRecord, What
from kamebench.store import Run

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """A turn's answer.

    `given`: there is text. `empty`: the system said nothing, which is the lowest score. `missing`: not known,
    for a reason that is not the system's.
    """

    kind: Literal["given", "empty", "missing"]
    text: str = ""
    reason: str = ""

    @property
    def as_history(self) -> str | None:
        """What stands for this turn when a later one is judged; None where it is not known."""
        return None if self.kind == "missing" else self.text


def given(text: str, empty_reason: str) -> Answer:
    return Answer("given", text) if text.strip() else Answer("empty", reason=empty_reason)


def missing(reason: str) -> Answer:
    return Answer("missing", reason=reason)


def answers_of(run: Run, what: What) -> dict[Key, Answer]:
    """'question, turn' -> answer, for every turn that the run should hold.

    A silent turn is an empty answer, and so is one without a single recognised word, or in which the system
    only went on speaking (`carry_over`). A fault is missing, and so is what could not be transcribed.

    Raises:
        BadRun: an oracle is asked for, of a run whose system has none.
    """
    rows = {(row.question_id, row.turn): row for row in run.turns}
    if what == "backend-text":
        from kamebench.judge.ablations import stored_backend_texts

        texts = stored_backend_texts(run)
    elif what == "spoken":
        texts = {key: _spoken(row) for key, row in rows.items()}
    elif what == "text-stream":
        texts = _text_streams(rows)
    else:
        texts = _oracles(run, rows, what)
    return {key: _faulted(row) or texts.get(key, missing("not recorded")) for key, row in rows.items()}


def _faulted(row: TurnRecord) -> Answer | None:
    if row.fault is not None:
        return missing(f"{row.fault.party}: {row.fault.kind}")
    return missing("the turn was not played") if row.mark is None else None


def _spoken(row: TurnRecord) -> Answer:
    onset = row.measure.onset
    if onset.outcome in ("silent", "carry_over"):
        return Answer("empty", reason=onset.outcome)
    if onset.outcome == "fault":
        return missing(onset.reason)
    if row.transcript is None:
        return missing("not transcribed")
    if row.transcript.text is None:
        return missing(row.transcript.reason or "no transcript")
    return given(row.transcript.text, "spoke, but no word was recognised")


def _text_streams(rows: dict[Key, TurnRecord]) -> dict[Key, Answer]:
    own = {key: row.transcript.own_text if row.transcript else None for key, row in rows.items()}
    if not any(own.values()):
        return {key: missing("the system shows no text of its own") for key in rows}
    return {key: given(text or "", "the text stream is empty") for key, text in own.items()}


def _oracles(run: Run, rows: dict[Key, TurnRecord], what: What) -> dict[Key, Answer]:
    found: dict[Key, Answer] = {}
    logged = [q for q in run.sessions if (run.session_folder(q) / oracle_log.ORACLE_LOG).is_file()]
    for question in logged:
        log = oracle_log.read(run.session_folder(question))
        for key, row in rows.items():
            if key[0] == question and row.mark is not None:
                found[key] = _oracle(run, row, log, what)
    if rows and not logged:
        raise BadRun(
            f"{run.path}: holds no injection log, so there is no '{what}' to judge: only KAME systems have "
            "an oracle. Judge what was spoken: leave --what out."
        )
    return found


def _oracle(run: Run, row: TurnRecord, log: oracle_log.OracleLog, what: What) -> Answer:
    assert row.mark is not None
    window = rebuild.TurnWindow.of(row.mark)
    last = rebuild.last_completed if what == "oracle-completed" else rebuild.last_injected
    oracle = last(log, window)
    if oracle.text is None or what in ("oracle-last", "oracle-completed"):
        return missing(oracle.reason) if oracle.text is None else given(oracle.text, "the oracle is empty")
    onset = row.measure.onset.onset_sample
    if onset is None:
        return missing(f"no onset: {row.measure.onset.outcome}")
    step = rebuild.step_heard(run.events(row.question_id), onset)
    at = rebuild.oracle_at_onset(log, rebuild.step_heard_at(onset) if step is None else step, window)
    if at.injected_text is None:  # injected in this turn, though later: by then the oracle had said nothing
        return Answer("empty", reason=at.reason)
    text = {"oracle-onset-injected": at.injected_text, "oracle-onset-full": at.full_text}.get(
        what, at.consumed_text
    )
    return missing(at.reason) if text is None else given(text, "nothing of the oracle had come by the onset")
