"""`kamebench gate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kamebench.gate.decision import GateResult


@click.command("gate")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "--baseline", default="main", show_default=True, help="A baseline's name or file, or a run's folder."
)
@click.option("--baselines", type=click.Path(path_type=Path), default=Path("baselines"), show_default=True)
@click.option("--rules", "rules_file", type=click.Path(path_type=Path), help="TOML; default: built-in rules.")
@click.option("--score", help="Name of a score file; default the run's headline score.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write JUnit XML to this file.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Append Markdown to this file.")
def command(  # noqa: PLR0913, PLR0917 one parameter an option
    runs: tuple[Path, ...],
    baseline: str,
    baselines: Path,
    rules_file: Path | None,
    score: str | None,
    as_json: bool,
    junit: Path | None,
    markdown: Path | None,
) -> None:
    """Gate a run, or several repeats of one system together, against a baseline.

    Exit codes: 0 pass, 1 regression, 2 usage or unreadable input, 3 inconclusive.
    """
    import traceback

    from kamebench.errors import KamebenchError
    from kamebench.gate import outputs

    try:
        result = _decide(runs, baseline, baselines, rules_file, score)
    except KamebenchError:
        raise
    except Exception:  # Python would end with 1, which here means a regression
        traceback.print_exc()
        raise SystemExit(2) from None
    if junit:
        _save(junit, outputs.to_junit(result))
    if markdown:
        _save(markdown, outputs.to_markdown(result), append=True)
    if as_json:
        click.echo(outputs.to_json(result))
    else:
        click.echo(outputs.to_text(result))
    raise SystemExit(result.exit_code)


def _decide(
    runs: tuple[Path, ...], baseline: str, baselines: Path, rules_file: Path | None, score: str | None
) -> GateResult:
    from kamebench.gate.baseline import resolve
    from kamebench.gate.decision import gate
    from kamebench.gate.rules import load_rules
    from kamebench.stats.snapshot import take
    from kamebench.store import open_run

    rules = load_rules(rules_file)
    against = resolve(baseline, baselines, score)
    return gate([take(open_run(path), score) for path in runs], against, rules)


def _save(path: Path, text: str, append: bool = False) -> None:
    from kamebench.errors import BadConfig

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadConfig(
            f"{path}: cannot be written ({error.strerror}). Give a path in a folder of yours."
        ) from None
