"""`kamebench demo`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("demo")
@click.option(
    "--limit", type=click.IntRange(min=1), default=5, show_default=True, help="Questions a back-end is asked."
)
@click.option("--folder", type=click.Path(path_type=Path), default=Path("demo"), show_default=True)
@click.option("--open/--no-open", "open_it", default=True, help="Open the report in a browser.")
def command(limit: int, folder: Path, open_it: bool) -> None:
    """Benchmark the embedded cascade twice and open the report.

    Once with a small language model (the floor) and once with a back-end that speaks the task's own reference
    answers (the topline: what recognition, synthesis and timing cost by themselves).
    """
    import os
    import sys
    import webbrowser

    from kamebench.cli.reporting import build_report
    from kamebench.cli.running import start_run

    for backend in ("local", "reference"):
        start_run(backend=backend, limit=limit, results=folder / "results")
    index = build_report(folder / "results", folder / "reports")
    click.echo(f"\nReport: {index}")
    has_screen = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if open_it and has_screen:
        webbrowser.open(index.resolve().as_uri())
    else:
        click.echo("Open it in a browser.")
