"""What was said: the recording of a run to text, behind a speech gate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kamebench import store
from kamebench.asr.base import Recognised, Recogniser, Word
from kamebench.asr.normalise import normalise, word_error_rate
from kamebench.audio import Pcm, read_two_tracks, seconds
from kamebench.errors import BadRun, EngineFault
from kamebench.events import Event, TextOut, TurnEnd, TurnStart
from kamebench.progress import Progress
from kamebench.records import Segment, SessionRecord, Transcript, TranscriptFile, TurnMark, TurnMeasure
from kamebench.store import Run

PAD = seconds(0.2)
"""Kept around detected speech: recognisers do badly on words without a margin."""
OUTSIDE_S = 0.25
"""How far outside detected speech a word must lie to be taken for invented: several times Whisper's error."""
MAX_WORDS_PER_S = 8.0
"""No voice speaks that fast; text that would need it was invented."""

SETTINGS = {"pad_s": PAD / seconds(1), "outside_s": OUTSIDE_S, "max_words_per_s": MAX_WORDS_PER_S}


def transcribe_run(run: Run, recogniser: Recogniser, progress: Progress | None = None) -> TranscriptFile:
    """Transcribe every turn that was played and write `transcripts.json`. Blocking: call it in a thread.

    The system's track from response start to turn end is transcribed; where no response was detected nothing
    is, as recognisers invent text on silence. A recogniser that fails on a turn leaves it without text and
    says so in its reason, which begins with "recogniser"; the other turns go on.

    Raises:
        BadRun: the run was not measured.
    """
    if run.measures is None:
        raise BadRun(f"{run.path}: was not measured yet. Measure it with: kamebench measure {run.path}")
    measures = {(row.question_id, row.turn): row for row in run.measures.turns}
    if progress is not None:
        progress.stage("Transcribing", len(measures))
    rows: list[Transcript] = []
    for question, session in run.sessions.items():
        played = [mark for mark in session.turns if (question, mark.turn) in measures]
        if not played:
            continue
        user, system = read_two_tracks(run.session_folder(question) / store.AUDIO)
        own = own_texts(run.events(question), session)
        for mark in played:
            measure = measures[question, mark.turn]
            rows.append(_turn(mark, measure, (user, system), own.get(mark.turn), recogniser))
            if progress is not None:
                progress.step(f"{question}/{mark.turn}")
    file = TranscriptFile(
        recogniser=recogniser.name, settings=SETTINGS | dict(recogniser.settings), turns=tuple(rows)
    )
    store.write_derived(run.path, store.TRANSCRIPTS, file)
    return file


def own_texts(events: Iterable[Event], session: SessionRecord) -> dict[int, str]:
    """The system's own text stream by turn; turns without any are left out."""
    pieces: dict[int, list[str]] = {mark.turn: [] for mark in session.turns}
    turn: int | None = None
    for event in events:
        if isinstance(event, TurnStart):
            turn = event.turn
        elif isinstance(event, TurnEnd):
            turn = None
        elif isinstance(event, TextOut) and turn in pieces:
            pieces[turn].append(event.text)
    joined = {number: " ".join("".join(parts).split()) for number, parts in pieces.items()}
    return {number: text for number, text in joined.items() if text}


def _turn(
    mark: TurnMark,
    measure: TurnMeasure,
    tracks: tuple[Pcm, Pcm],
    own: str | None,
    recogniser: Recogniser,
) -> Transcript:
    user, system = tracks
    heard = _recognise(recogniser, user, mark.user_start_sample, mark.user_end_sample)
    user_text = None if isinstance(heard, str) else heard.text
    base = Transcript(
        question_id=measure.question_id,
        turn=mark.turn,
        text=None,
        user_text=user_text,
        user_wer=None if user_text is None else word_error_rate(mark.spoken.text_spoken, user_text),
        own_text=own,
    )
    start = measure.onset.onset_sample
    if start is None:
        reason = f"{measure.onset.outcome}: {measure.onset.reason}".rstrip(": ")
        return base.model_copy(update={"reason": reason})
    speech = [segment for segment in measure.onset.segments if segment.start >= start]
    said = _recognise(recogniser, system, start, min(speech[-1].end, mark.end_sample))
    if isinstance(said, str):
        return base.model_copy(update={"reason": said})
    begin_s = max(0, start - PAD) / seconds(1)
    words = [Word(w.text, w.start_s + begin_s, w.end_s + begin_s) for w in said.words]
    spoken_s = sum(segment.end - segment.start for segment in speech) / seconds(1)
    normalised = normalise(said.text)
    n_words = len(normalised.split())
    invented = outside_speech(words, speech) or (not words and n_words > MAX_WORDS_PER_S * spoken_s)
    return base.model_copy(
        update={
            "text": said.text,
            "normalised": normalised,
            "flags": ("hallucination",) if invented else (),
            "own_wer": None if own is None else word_error_rate(own, said.text),
            "words_per_minute": 60 * n_words / spoken_s,
        }
    )


def _recognise(recogniser: Recogniser, track: Pcm, start: int, end: int) -> Recognised | str:
    """The text of samples [start, end), or why there is none."""
    try:
        return recogniser.transcribe_words(track[max(0, start - PAD) : end + PAD])
    except EngineFault as error:
        return f"recogniser: {error.kind}: {error}"


def outside_speech(words: Sequence[Word], speech: Sequence[Segment]) -> bool:
    """Whether a word lies wholly outside detected speech, with a margin: the recogniser invented it.

    Word times are seconds, segments samples, both from the start of the recording.
    """
    margin = seconds(OUTSIDE_S)
    return any(
        all(
            seconds(word.end_s) <= segment.start - margin or seconds(word.start_s) >= segment.end + margin
            for segment in speech
        )
        for word in words
    )
