"""What `kamebench synth` does and shows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from kamebench.audio import SAMPLE_RATE, write_mono
from kamebench.cli.console import Reporter
from kamebench.speech import open_engine
from kamebench.speech.speaking import Spoken, speak_questions
from kamebench.tasks import Question


def speak(questions: Sequence[Question], voice: str, out: Path | None) -> list[dict[str, Any]]:
    """Speak the questions; one dict a turn. With `out`, each turn becomes a file `<question>.<turn>.flac`."""
    rows: list[dict[str, Any]] = []
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with Reporter() as progress, closing(open_engine(voice)) as engine:
        engine.start()
        progress.stage(f"Speaking with {voice}", sum(len(question.turns) for question in questions))
        for spoken in speak_questions(questions, engine):
            row = _row(spoken)
            if out is not None:
                write_mono(out / f"{row['turn']}.flac", spoken.pcm)
            rows.append(row)
            progress.step(row["turn"])
    return rows


def _row(made: Spoken) -> dict[str, Any]:
    turn = made.spoken
    return {
        "turn": f"{made.question_id}.{made.turn}",
        "seconds": round(turn.n_samples / SAMPLE_RATE, 2),
        "from": round(turn.speech_start_sample / SAMPLE_RATE, 2),
        "to": round(turn.speech_end_sample / SAMPLE_RATE, 2),
        "said": turn.text_spoken,
        "written": turn.text_written,
        "audio_sha256": turn.audio_sha256,
        "voice": f"{turn.engine}:{turn.voice}",
    }
