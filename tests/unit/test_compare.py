from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats as reference

from kamebench import store
from kamebench.cli.compare import command
from kamebench.errors import BadRun, UserError
from kamebench.stats.compare import compare
from kamebench.stats.paired import paired_difference
from tests.synthetic import Planted, make_run
from tests.unit.gate_parts import Loss, planted_run


def test_difference_is_scipys_paired_t_interval(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    scores = rng.integers(1, 11, (2, 15)).astype(float)
    tables = []
    for name, row in zip("ab", scores, strict=True):
        plan = {f"q{i}": [Planted(score=float(s))] for i, s in enumerate(row)}
        tables.append(make_run(tmp_path, plan, run_id=name, categories=dict.fromkeys(plan, "stem")).table())
    made = paired_difference(*tables)
    expected = reference.ttest_rel(scores[1], scores[0]).confidence_interval()
    assert (made.low, made.high) == pytest.approx((expected.low, expected.high))
    change = scores[1] - scores[0]
    assert made.effect_size == pytest.approx(change.mean() / change.std(ddof=1))


def test_turns_missing_in_one_run_are_counted(tmp_path: Path) -> None:
    whole = planted_run(tmp_path, "a", n=10).table()
    holed = planted_run(tmp_path, "b", Loss(faults=2), n=10).table()
    made = paired_difference(whole, holed)
    assert (made.n, made.n_questions, made.n_missing) == (16, 8, 4)
    shorter = paired_difference(whole, holed[holed["question_id"] != "q9"])
    assert shorter.n_missing == 6


def test_runs_without_a_common_turn_cannot_be_paired(tmp_path: Path) -> None:
    first = planted_run(tmp_path, "a", n=6).table()
    with pytest.raises(BadRun, match="no pairs"):
        paired_difference(first, first.assign(question_id=first["question_id"] + "x"))


def test_medians_treat_silence_as_later_than_any_answer(tmp_path: Path) -> None:
    first, second = planted_run(tmp_path, "a"), planted_run(tmp_path, "b", Loss(silent=0.3))
    made = paired_difference(first.table(), second.table(), "latency_median")
    assert made.difference is not None and made.difference > 50
    mute = paired_difference(
        first.table(), planted_run(tmp_path, "c", Loss(silent=0.9)).table(), "latency_median"
    )
    assert mute.difference is None and "silent" in mute.reason


def test_the_typical_change_sees_a_shift_that_the_spread_of_turns_hides(tmp_path: Path) -> None:
    first, second = planted_run(tmp_path, "a"), planted_run(tmp_path, "b", Loss(late_ms=80, seed=2))
    change = paired_difference(first.table(), second.table(), "latency_change")
    median = paired_difference(first.table(), second.table(), "latency_median")
    assert change.low is not None and change.high is not None and 40 < change.low < 80 < change.high < 120
    assert median.low is not None and median.high is not None
    assert change.high - change.low < 0.7 * (median.high - median.low)
    same = paired_difference(
        *(planted_run(tmp_path, n, Loss(silent=0.3)).table() for n in ("c", "d")), "latency_change"
    )
    assert same.difference == 0


def test_refuses_another_judge_unless_forced(tmp_path: Path) -> None:
    first, second = planted_run(tmp_path, "a"), planted_run(tmp_path, "b", judge="gpt-4.1")
    with pytest.raises(UserError, match=r"judge setting judge: facts against gpt-4\.1"):
        compare(first, second)
    assert any(difference.fatal for difference in compare(first, second, force=True).differences)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"task_version": "2"}, "task version: 1 against 2"),
        ({"audio": {"q0/1": "0" * 64}}, "user audio of 1 of 1 turns"),
        ({"pace": "lockstep"}, "pace: virtual against lockstep"),
    ],
)
def test_names_what_differs(tmp_path: Path, change: dict[str, object], named: str) -> None:
    first, second = planted_run(tmp_path, "a"), planted_run(tmp_path, "b")
    store.seal(second.path, **change)
    with pytest.raises(UserError, match=named):
        compare(first, store.open_run(second.path))


def test_another_detector_setting_is_named(tmp_path: Path) -> None:
    first, second = planted_run(tmp_path, "a"), planted_run(tmp_path, "b")
    measures = second.measures
    assert measures is not None
    changed = measures.model_copy(update={"settings": {"detector": {"threshold": 0.3}}})
    store.write_record(second.path / store.MEASURES, changed)
    store.seal(second.path)
    with pytest.raises(UserError, match=r"detector setting detector\.threshold: absent against 0\.3"):
        compare(first, store.open_run(second.path))


def test_command_lists_what_changed_most_with_recordings(tmp_path: Path) -> None:
    first = planted_run(tmp_path, "a", n=6, audio=True)
    second = planted_run(tmp_path, "b", Loss(score=1.0), n=6, audio=True)
    result = CliRunner().invoke(command, [str(first.path), str(second.path), "--json"])
    assert result.exit_code == 0
    (made,) = json.loads(result.stdout)
    changes = [change["score_change"] for change in made["changes"]]
    assert changes == sorted(changes, key=abs, reverse=True) and len(changes) == 5
    assert all(Path(path).is_file() for change in made["changes"] for path in change["listen"])
    score = next(row for row in made["results"] if row["metric"] == "score")
    assert score["high"] < 0 and score["n"] == 12
    shown = CliRunner().invoke(command, [str(first.path), str(second.path)])
    assert shown.exit_code == 0 and "listen:" in shown.stdout
