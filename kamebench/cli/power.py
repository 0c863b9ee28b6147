"""`kamebench power`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("power")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN [RUN2]")
@click.option("--score-margin", type=click.FloatRange(min=0, min_open=True), help="In points.")
@click.option(
    "--latency-margin-ms", type=click.FloatRange(min=0, min_open=True), help="Of the typical change."
)
@click.option("--score", help="Name of a score file; default the run's headline score.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    runs: tuple[Path, ...],
    score_margin: float | None,
    latency_margin_ms: float | None,
    score: str | None,
    as_json: bool,
) -> None:
    """Tell how many questions, or repeats, a margin needs so that equal systems pass the gate.

    Give two runs of one system for the real spread of repeats; one run gives an upper bound.
    """
    import json
    from dataclasses import asdict

    from kamebench.errors import UserError
    from kamebench.gate.outputs import amount
    from kamebench.gate.power import need
    from kamebench.stats.snapshot import take
    from kamebench.store import open_run

    if len(runs) > 2:
        raise UserError(f"power reads one run or two of one system, {len(runs)} were given.")
    wanted = [("score", score_margin), ("latency_change", latency_margin_ms)]
    margins = [(name, margin) for name, margin in wanted if margin is not None]
    if not margins:
        raise UserError("power needs a margin: --score-margin 0.3, --latency-margin-ms 80, or both.")
    snapshots = [take(open_run(path), score) for path in runs]
    needs = [need(snapshots, name, margin) for name, margin in margins]
    if as_json:
        click.echo(json.dumps([asdict(item) for item in needs], indent=1))
        return
    for item in needs:
        margin, spread = amount(item.margin, item.unit), amount(item.spread, item.unit)
        click.echo(f"{item.metric}: margin {margin}, spread {spread} a question ({item.source})")
        for power, questions in item.questions.items():
            click.echo(
                f"  equal systems pass in {power:.0%} of gates with {questions} questions, "
                f"or {item.repeats[power]} run(s) a side of the present {item.n_questions}"
            )
