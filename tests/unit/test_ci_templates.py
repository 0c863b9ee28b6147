from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kamebench.cli.gate import command as gate_command
from kamebench.cli.run import command as run_command
from kamebench.gate.rules import load_rules
from tests.unit.gate_parts import Loss, planted_run

CI = Path(__file__).parents[2] / "examples" / "ci"


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_workflows_are_yaml_and_call_the_script(name: str) -> None:
    yaml = pytest.importorskip("yaml")
    text = (CI / name).read_text()
    made = yaml.safe_load(text)
    job = made["jobs"]["gate"]["steps"] if "jobs" in made else made["kamebench"]["script"]
    assert "examples/ci/pre-merge.sh" in str(job)


def test_rules_of_the_example_can_be_used() -> None:
    rules = load_rules(CI / "gate.toml")
    assert [rule.name for rule in rules.rules][-1] == "score (reasoning)"


def test_the_script_uses_options_that_exist() -> None:
    script = (CI / "pre-merge.sh").read_text()
    known = {
        option
        for command in (run_command, gate_command)
        for parameter in command.params
        for option in parameter.opts
    }
    used = {word for word in script.replace("-:", " ").split() if word.startswith("--") and word.isascii()}
    named = {word.strip('"[]}') for word in used}
    assert {"--record", "--backend", "--results", "--json", "--junit", "--markdown"} <= named
    assert {word for word in named if word[2:].isalpha()} <= known | {"--name"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The script beside a `kamebench` whose `run` hands out a planted run, and a baseline made by it."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    fake = binaries / "kamebench"
    fake.write_text(
        "#!/usr/bin/env bash\n"
        'if [ "$1" = run ]; then echo "$@" >> calls.txt; [ -n "$NEXT_RUN" ] || exit 1; '
        'echo "{\\"run\\": \\"$NEXT_RUN\\"}"; exit 0; fi\n'
        f'exec {sys.executable} -m kamebench "$@"\n'
    )
    fake.chmod(0o755)
    shutil.copy(CI / "pre-merge.sh", tmp_path)
    return tmp_path


def call(project: Path, run: Path | str, *arguments: str) -> int:
    path = f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NEXT_RUN": str(run), "PYTHONPATH": str(CI.parents[1])}
    words = [str(project / "pre-merge.sh"), *arguments]
    return subprocess.run(words, cwd=project, env=environment, capture_output=True, check=False).returncode


def test_the_script_ends_with_the_gates_exit_code(project: Path) -> None:
    base = planted_run(project, "base").path
    worse = planted_run(project, "worse", Loss(score=1.5, seed=2)).path
    assert call(project, base) == 2, "no baseline is not a pass"
    assert call(project, base, "record") == 0
    calls = (project / "calls.txt").read_text().splitlines()
    assert "--record ci/cassettes" in calls[-2] and "--backend replay:ci/cassettes" in calls[-1]
    assert call(project, planted_run(project, "equal", Loss(seed=3)).path) == 0
    assert call(project, worse) == 1
    assert ET.parse(project / "ci/reports/gate.xml").getroot().get("failures") == "1"
    assert call(project, planted_run(project, "noisy", Loss(sd=3, seed=2)).path, "check") == 3
    assert call(project, "") == 3, "a run that cannot be made is no pass"
    assert call(project, base, "gate") != 0
    assert call(project, base, "nonsense") == 2
