"""`kamebench demo`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("demo")
@click.option(
    "--limit", type=click.IntRange(min=1), default=9, show_default=True, help="Questions a back-end is asked."
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

    from kamebench.cli.report import build, show_site
    from kamebench.cli.running import RunOptions, start_run

    for backend in ("local", "reference"):
        start_run(RunOptions(backend=backend, limit=limit, results=folder / "results"))
    site = build(folder / "results", folder / "reports")
    show_site(site)
    has_screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if open_it and has_screen:
        click.launch(site.index.resolve().as_uri())
    else:
        click.echo(f"Open it in a browser: {site.index.resolve().as_uri()}")
