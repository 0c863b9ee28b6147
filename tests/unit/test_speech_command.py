"""`kamebench synth`: what is printed and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from test_speech_cache import LEAD, TAIL, TONE, ToneEngine

from kamebench.audio import SAMPLE_RATE, pcm_sha256, read_mono
from kamebench.cli import speaking
from kamebench.cli.synth import command
from kamebench.errors import UnknownName


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToneEngine:
    made = ToneEngine()
    monkeypatch.setattr(speaking, "open_engine", lambda name: made)
    monkeypatch.setenv("KAMEBENCH_CACHE", str(tmp_path / "cache"))
    return made


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(command, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_rows_say_what_is_said_and_where(tmp_path: Path) -> None:
    result = run("spoken-basics", "--limit", "2", "--json", "--out", str(tmp_path / "out"))
    rows = json.loads(result.stdout)
    assert [row["turn"] for row in rows] == ["r1.1", "r1.2", "s1.1", "s1.2"]
    for row in rows:
        assert row["seconds"] == round((LEAD + TONE + TAIL) / SAMPLE_RATE, 2)
        assert (row["from"], row["to"]) == (LEAD / SAMPLE_RATE, (LEAD + TONE) / SAMPLE_RATE)
        assert row["said"] == row["written"]
        assert pcm_sha256(read_mono(tmp_path / "out" / f"{row['turn']}.flac")) == row["audio_sha256"]


def test_a_table_and_the_cache(engine: ToneEngine) -> None:
    first = run("spoken-basics", "--category", "stem", "--limit", "1")
    assert "s1.1" in first.stdout and "2 turns, 2.8 s of audio" in first.stdout
    assert len(engine.said) == 2
    assert run("spoken-basics", "--category", "stem", "--limit", "1").stdout == first.stdout
    assert len(engine.said) == 2


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(UnknownName, match="spoken-basics"):
        run("spoken-basic")
