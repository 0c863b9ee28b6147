from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from kamebench import store
from kamebench.cli.gate import command
from kamebench.gate.baseline import read_baseline
from kamebench.gate.decision import gate
from kamebench.gate.outputs import to_junit, to_markdown
from kamebench.gate.rules import DEFAULT_RULES
from kamebench.stats.snapshot import take
from tests.unit.gate_parts import Loss, planted_run

KAMEBENCH = [sys.executable, "-m", "kamebench"]


def call(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = [*KAMEBENCH, *map(str, arguments)]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a baseline `main` and runs: equal, worse, noisy."""
    folder = tmp_path_factory.mktemp("project")
    base = planted_run(folder / "results", "base")
    planted_run(folder / "results", "equal", Loss(seed=2))
    planted_run(folder / "results", "worse", Loss(score=1.0, late_ms=300, seed=2))
    planted_run(folder / "results", "noisy", Loss(sd=3.0, seed=2))
    done = call(folder, "baseline", "set", base.path)
    assert done.returncode == 0, done.stderr
    return folder


def run_of(folder: Path, name: str) -> Path:
    return folder / "results" / "scripted" / "synthetic@1" / name


def test_exit_codes_in_a_shell_script(workplace: Path) -> None:
    script = f"""
        gate() {{ code=0; {sys.executable} -m kamebench gate "$@" >/dev/null 2>&1 || code=$?; echo "$code"; }}
        cd results/scripted/synthetic@1
        gate base --baselines ../../../baselines
        gate equal --baselines ../../../baselines
        gate worse --baselines ../../../baselines
        gate noisy --baselines ../../../baselines
        gate equal --baseline base
        gate equal --baseline none
        gate nowhere --baseline base
        gate
    """
    done = subprocess.run(["bash", "-euc", script], cwd=workplace, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0", "1", "3", "0", "2", "2", "2"]


def test_every_output_tells_the_same(workplace: Path) -> None:
    done = call(
        workplace,
        "gate",
        run_of(workplace, "worse"),
        "--json",
        "--junit",
        "o/gate.xml",
        "--markdown",
        "o/gate.md",
    )
    assert done.returncode == 1
    made = json.loads(done.stdout)
    assert made["outcome"] == "regression" and made["exit_code"] == 1
    outcomes = {rule["name"]: rule["outcome"] for rule in made["results"]}
    assert outcomes["score"] == outcomes["latency_change"] == "regression"
    assert all(rule["mde"] > 0 for rule in made["results"] if rule["name"] != "faults")
    suite = ET.parse(workplace / "o/gate.xml").getroot().find("testsuite")
    assert suite is not None
    failed = {case.get("name") for case in suite.findall("testcase") if case.find("failure") is not None}
    assert failed == {"score", "latency_change"}
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "2", "0")
    markdown = (workplace / "o/gate.md").read_text()
    assert "regression" in markdown and "latency\\_change" in markdown


def test_hostile_labels_stay_text_in_markdown_and_xml(tmp_path: Path) -> None:
    snapshot = take(planted_run(tmp_path, "a"))
    hostile = snapshot.model_copy(update={"label": "a|b`<script>\x00&\n# x", "run_id": "b"})
    result = gate([hostile], [snapshot], DEFAULT_RULES)
    ET.fromstring(to_junit(result))
    markdown = to_markdown(result)
    assert "<script>" not in markdown and "\n# x" not in markdown and "a\\|b" in markdown


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def damaged(folder: Path, damage: str) -> Path:
    """A copy of the plain run with one kind of damage."""
    run = planted_run(folder, damage.replace(" ", "-"), Loss(seed=2)).path
    scores, measures = run / "scores" / "facts.spoken.json", run / store.MEASURES
    if damage == "edited":
        edit(scores, '"score": ', '"score": 1e0, "was": ')
    elif damage == "truncated":
        measures.write_text(measures.read_text()[:500])
        store.seal(run)
    elif damage == "incomplete":
        edit(run / store.MANIFEST, '"status": "complete"', '"status": "running"')
    elif damage == "schema":
        edit(run / store.MANIFEST, '"schema_version": 1', '"schema_version": 99')
    elif damage == "nan":
        edit(measures, '"latency_ms": ', '"latency_ms": NaN, "was": ')
        text = measures.read_text()
        measures.write_text(text[: text.index(' "was": ')] + text[text.index("\n", text.index(' "was": ')) :])
        store.seal(run)
    elif damage == "file missing":
        (run / store.TRANSCRIPTS).unlink()
    elif damage == "unmeasured":
        measures.unlink()
        store.seal(run)
    elif damage == "session missing":
        for file in (run / "sessions" / "q3").iterdir():
            file.unlink()
        store.seal(run)
    return run


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("edited", "scores/facts.spoken.json was changed after the run (hash mismatch)"),
        ("truncated", "measures.json: cannot be read"),
        ("incomplete", "the run is not complete (status 'running')"),
        ("schema", "has schema version 99, this kamebench reads 1"),
        ("nan", "measures.json: turns.0.onset.latency_ms: Input should be a finite number"),
        ("file missing", "transcripts.json is missing"),
        ("unmeasured", "was never measured"),
        ("session missing", "holds no session of 1 of its 30 questions (q3)"),
    ],
)
def test_a_damaged_run_is_unreadable_input_with_a_message_of_its_own(
    workplace: Path, tmp_path: Path, damage: str, says: str
) -> None:
    done = call(workplace, "gate", damaged(tmp_path, damage))
    assert done.returncode == 2
    assert says in done.stderr and "Traceback" not in done.stderr


def test_a_baseline_needs_no_run_beside_it_and_refuses_edits(workplace: Path, tmp_path: Path) -> None:
    file = workplace / "baselines" / "main.json"
    alone = tmp_path / "main.json"
    alone.write_text(file.read_text())
    assert call(tmp_path, "gate", run_of(workplace, "equal"), "--baseline", alone).returncode == 0
    assert read_baseline(alone).runs[0] == take(store.open_run(run_of(workplace, "base")))
    assert alone.stat().st_size < 40_000
    edit(alone, '"score": 6.', '"score": 7.')
    done = call(tmp_path, "gate", run_of(workplace, "equal"), "--baseline", alone)
    assert done.returncode == 2 and "edited by hand (hash mismatch)" in done.stderr


def test_no_baseline_is_not_a_pass(workplace: Path, tmp_path: Path) -> None:
    done = call(tmp_path, "gate", run_of(workplace, "equal"))
    assert done.returncode == 2 and "There is no baseline 'main'" in done.stderr


def test_baselines_are_listed_and_shown(workplace: Path, tmp_path: Path) -> None:
    (row,) = json.loads(call(workplace, "baseline", "list", "--json").stdout)
    assert (row["name"], row["runs"], row["state"]) == ("main", 1, "good")
    shown = call(workplace, "baseline", "show").stdout
    assert "scripted (local) base" in shown and "latency_p50_ms" in shown
    assert call(workplace, "baseline", "show", "other").returncode == 2
    wrong = call(tmp_path, "baseline", "set", run_of(workplace, "base"), "--name", "../up")
    assert wrong.returncode == 2 and not list(tmp_path.iterdir())


def test_power_and_history_read_stored_runs(workplace: Path) -> None:
    pair = [run_of(workplace, "base"), run_of(workplace, "equal")]
    both = json.loads(call(workplace, "power", *pair, "--score-margin", "0.3", "--json").stdout)
    one = json.loads(call(workplace, "power", pair[0], "--score-margin", "0.3", "--json").stdout)
    assert both[0]["questions"]["0.9"] < one[0]["questions"]["0.9"]
    assert call(workplace, "power", pair[0]).returncode == 2
    done = call(workplace, "history", "scripted", "--json", "--chart", "h.svg")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 4
    assert ET.parse(workplace / "h.svg").getroot().tag.endswith("svg")
    first = (workplace / "h.svg").read_bytes()
    call(workplace, "history", "scripted", "--chart", "h.svg")
    assert (workplace / "h.svg").read_bytes() == first
    assert call(workplace, "history", "scriptd").returncode == 2


def test_a_crash_of_the_gate_does_not_look_like_a_regression(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("kamebench.gate.decision.gate", crash)
    made = CliRunner().invoke(
        command, [str(run_of(workplace, "equal")), "--baselines", str(workplace / "baselines")]
    )
    assert made.exit_code == 2 and "ZeroDivisionError" in made.stderr
