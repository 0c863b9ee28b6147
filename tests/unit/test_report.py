"""The site's data and bytes, without a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from click.testing import CliRunner

from kamebench import store
from kamebench.cli.report import command
from kamebench.errors import BadConfig
from kamebench.report import board, charts, comparing, opus, published, timeline
from kamebench.report.site import build_site
from tests.synthetic import Planted, make_run


def plan(score: float, latency: float | None, n: int = 6) -> dict[str, list[Planted]]:
    return {f"q{q}": [Planted(score=score, latency_ms=latency)] * 2 for q in range(n)}


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    for i, (name, score, latency) in enumerate((("a", 5.0, 100.0), ("b", 7.0, 900.0), ("c", 4.0, 1500.0))):
        make_run(folder, plan(score, latency), system=name, run_id=f"20260101T00000{i}-aaaaaa", audio=i == 0)
    return folder


def test_only_runs_measured_alike_share_a_group(results: Path) -> None:
    make_run(results, plan(9, 100), system="judged", judge="gpt-4")
    make_run(results, plan(9, 100), system="later", version="2")
    make_run(results, plan(9, 100, n=5), system="fewer")
    groups = board.build(store.find_runs(results)).groups
    together = [sorted(e.run.manifest.system for e in g.entries) for g in groups]
    assert sorted(together) == [["a", "b", "c"], ["fewer"], ["judged"], ["later"]]
    assert groups[0].llm_judge and groups[0].first.run.manifest.system == "judged"


def test_a_row_shows_the_latest_run_and_counts_the_others(results: Path) -> None:
    make_run(
        results,
        plan(2, 100),
        system="a",
        run_id="20260301T000000-bbbbbb",
        started_at="2026-03-01T00:00:00+00:00",
    )
    rows = board.build(store.find_runs(results)).groups[0].rows
    row = next(r for r in rows if r.entry.run.manifest.system == "a")
    assert (row.n_runs, row.entry.score.value) == (2, 2.0)


def test_front_and_answer_leave_out_floor_and_topline(results: Path) -> None:
    top = make_run(results, plan(10, 50), system="top", run_id="20260101T000009-aaaaaa")
    store.seal(top.path, role="topline")
    group = board.build(store.find_runs(results)).groups[0]
    assert [e.run.manifest.system for e in group.front] == ["a", "b"]
    assert group.rows[0].entry.run.manifest.system == "top"
    best = {limit: group.best_under(limit) for limit in (0.05, 0.5, 1.0)}
    found = {limit: e.run.manifest.system if e else None for limit, e in best.items()}
    assert found == {0.05: None, 0.5: "a", 1.0: "b"}


def test_runs_that_are_not_whole_are_left_out_with_the_reason(results: Path) -> None:
    run = store.find_runs(results)[0]
    store.seal(run.path, status="running")
    made = board.build(store.find_runs(results))
    assert len(made.entries) == 2
    assert "--resume" in made.skipped[0][1] and str(results) not in made.skipped[0][1]


def test_a_run_edited_by_hand_is_left_out_with_the_reason(results: Path) -> None:
    run = store.find_runs(results)[0]
    scores = next((run.path / "scores").glob("*.json"))
    scores.write_text(scores.read_text().replace('"score": ', '"score":  ', 1))
    made = board.build(store.find_runs(results))
    assert len(made.entries) == 2
    assert "was changed after the run (hash mismatch)" in made.skipped[0][1]


def test_same_results_same_bytes_and_only_changed_runs_again(results: Path, tmp_path: Path) -> None:
    first = build_site(results, tmp_path / "one", workers=1)
    before = files_of(tmp_path / "one")
    assert first.rebuilt == 3
    assert build_site(results, tmp_path / "one", workers=1).rebuilt == 0
    build_site(results, tmp_path / "two", workers=2)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two") == before
    run = store.find_runs(results)[0]
    store.seal(run.path, git_commit="0123456789abcdef")
    assert build_site(results, tmp_path / "one", workers=1).rebuilt == 1
    assert files_of(tmp_path / "one") != before


def test_what_is_gone_from_results_is_gone_from_the_site(results: Path, tmp_path: Path) -> None:
    build_site(results, tmp_path / "out", workers=1)
    run = store.find_runs(results)[0]
    (run.path / store.MANIFEST).unlink()
    build_site(results, tmp_path / "out", workers=1)
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 2
    assert not (tmp_path / "out" / "audio").exists()


def test_pages_hold_no_inline_code_no_address_and_no_path(results: Path, tmp_path: Path) -> None:
    build_site(results, tmp_path / "out", workers=1)
    for path in (tmp_path / "out").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son[a-z]+=", text), path
        assert not re.search(r'(src|href)="(https?:)?//(?!arxiv\.org/abs/)', text), path
        assert str(tmp_path) not in text, path
    assert (tmp_path / "out" / "index.html").stat().st_size < 500_000


def test_no_runs_give_a_page_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    build_site(tmp_path / "results", tmp_path / "out")
    assert "No complete run yet" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_command_prints_json_and_a_table(results: Path, tmp_path: Path) -> None:
    options = ["--results", str(results), "--out", str(tmp_path / "out")]
    made = CliRunner().invoke(command, [*options, "--json"])
    rows = json.loads(made.stdout)["groups"][0]["rows"]
    assert [row["system"] for row in rows] == ["b", "a", "c"]
    assert "not comparable with an LLM judge" in CliRunner().invoke(command, options).stdout


def test_opus_has_fixed_bytes_and_the_same_length(tmp_path: Path) -> None:
    stereo = (np.random.default_rng(0).standard_normal((30_000, 2)) * 0.1).astype(np.float32)
    for name in ("a", "b"):
        opus.write_opus(tmp_path / f"{name}.opus", stereo)
    a, b = ((tmp_path / f"{name}.opus").read_bytes() for name in ("a", "b"))
    assert a == b
    decoded, rate = sf.read(tmp_path / "a.opus")
    assert (rate, decoded.shape) == (24_000, (30_000, 2))
    assert float(np.corrcoef(decoded[2000:, 0], stereo[2000:, 0])[0, 1]) > 0.5


def test_an_empty_recording_is_a_whole_file(tmp_path: Path) -> None:
    opus.write_opus(tmp_path / "x.opus", np.zeros((0, 2), np.float32))
    assert sf.info(tmp_path / "x.opus").channels == 2
    assert [file.name for file in tmp_path.iterdir()] == ["x.opus"]


def test_only_files_of_an_earlier_build_are_removed(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    build_site(results, out, workers=1)
    mine = [out / "assets" / "logo.png", out / "runs" / "mine" / "thesis.txt", out / "figures" / "fig1.png"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    gone = store.find_runs(results)[0]
    (gone.path / store.MANIFEST).unlink()
    build_site(results, out, workers=1)
    assert all(path.read_text() == "mine" for path in mine)
    assert len(list((out / "runs").iterdir())) == 2 + 1


def test_a_list_of_somebody_else_removes_nothing_outside_the_site(results: Path, tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim.txt"
    build_site(results, out, workers=1)
    victim.write_text("mine")
    with (out / "site.txt").open("a") as file:
        file.write(f"{victim}\n../victim.txt\n")
    build_site(results, out, workers=1)
    assert victim.read_text() == "mine"


def test_a_page_of_somebody_else_is_not_overwritten(results: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "index.html").write_text("mine")
    with pytest.raises(BadConfig, match=r"kamebench did not make it"):
        build_site(results, tmp_path / "out")
    assert (tmp_path / "out" / "index.html").read_text() == "mine"


def test_axis_ticks_are_round_and_signed() -> None:
    made = charts.axis(-0.5, 2.3, 0, 280)
    assert [text for _, text in made.ticks] == ["-0.5", "0.0", "0.5", "1.0", "1.5", "2.0"]
    assert made(0.0) == 50.0


def test_published_figures_are_hollow_points_with_their_name() -> None:
    found = published.read()
    drawn = charts.scatter(None, found, 960, 400, "wide")
    assert len(drawn.points) == 4 and {p.kind for p in drawn.points} == {"published"}
    assert all("published" in p.title for p in drawn.points)


def test_a_large_group_is_compared_with_the_best_and_the_next(tmp_path: Path) -> None:
    for i in range(8):
        make_run(tmp_path, plan(2.0 + i, 100.0 * i, n=1), system=f"s{i}")
    group = board.build(store.find_runs(tmp_path)).groups[0]
    made = [(p.first.run.manifest.system, p.second.run.manifest.system) for p in comparing.pairs(group)]
    best = [(f"s{i}", "s7") for i in range(6, -1, -1)]
    assert made == best + [(f"s{i}", f"s{i + 1}") for i in range(5, -1, -1)]


def test_word_differences() -> None:
    found = timeline.word_differences("It is four, really.", "it is for really")
    assert found == (("same", "it is"), ("only own", "four,"), ("only heard", "for"), ("same", "really"))
    assert timeline.word_differences(None, "x") == ()


def test_peaks_are_where_the_sound_is() -> None:
    pcm = np.zeros(24_000, np.float32)
    pcm[12_000:12_240] = 1.0
    path = timeline.peaks(pcm, 100.0)
    assert path == "M50 -34V0"


def test_injections_that_came_stale_or_were_dropped_are_marked(tmp_path: Path) -> None:
    run = make_run(tmp_path, plan(5, 100, n=1))
    request = {
        "kind": "request",
        "t_ns": 0,
        "reason": None,
        "trigger": None,
        "committed": None,
        "pending": None,
    }
    request |= {"committed_words": None, "pending_words": None, "messages_sha256": None, "temperature": None}
    applied = {"kind": "injection", "t_ns": 0, "tokens": [], "pieces": []}
    rows = [
        {"kind": "header"},
        request | {"request_id": 1, "frame": 10},
        applied | {"request_id": 1, "frame": 12, "reset": True},
        applied | {"request_id": 1, "frame": 13, "reset": False, "text": "<b>Four"},
        request | {"request_id": 2, "frame": 20},
        applied | {"request_id": 1, "frame": 25, "reset": False, "text": " is late"},
        {"kind": "dropped", "request_id": 2, "frame": 30, "t_ns": 0, "reset": False, "text": "Five"}
        | {"reason": "queue_full"},
    ]
    path = run.session_folder("q0") / "oracle.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = timeline.timeline(run, run.sessions["q0"], run.turns, None).injections
    assert [(i.state, i.t_s) for i in found] == [
        ("reset", 0.96),
        ("used", 1.04),
        ("stale", 2.0),
        ("dropped", 2.4),
    ]
    store.seal(run.path)
    build_site(tmp_path, tmp_path / "out", workers=1)
    page = next((tmp_path / "out" / "runs").rglob("q0.html")).read_text(encoding="utf-8")
    assert "oracle 2, dropped" in page and "&lt;b&gt;Four" in page and "<b>Four" not in page


def test_a_verdict_files_warnings_stand_on_the_row_and_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "results", {f"q{i}": [Planted()] for i in range(6)}, judge="gpt-4.1")
    (file,) = run.scores.values()
    text = "the judge <b>is</b> of the back-end's own family"
    changed = file.model_copy(update={"warnings": (text,)})
    store.write_record(run.path / "scores" / f"{file.name}.json", changed)
    store.seal(run.path)
    site = build_site(tmp_path / "results", tmp_path / "out")
    pages = [site.index, *(tmp_path / "out" / "runs").glob("*/index.html")]
    for page in pages:
        html = page.read_text(encoding="utf-8")
        assert "own family" in html
        assert "<b>is</b>" not in html
