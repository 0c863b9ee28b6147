"""What `kamebench fetch` shows while it works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from kamebench import assets
from kamebench.cli.console import errors


def rows_of(names: list[str]) -> list[dict[str, Any]]:
    """One dict an asset: what it is, how large, under which licence, whether it is here, its hashes."""
    return [
        {
            "name": name,
            "state": "fetched" if assets.is_fetched(name) else "absent",
            "MB": round(assets.describe(name).size / 1e6, 1),
            "licence": assets.describe(name).licence,
            "about": assets.describe(name).about,
            "sha256": assets.sha256s(name),
        }
        for name in names
    ]


def fetch_all(names: list[str], *, offline: bool | None) -> dict[str, Path]:
    """Name -> folder. Unknown names are refused before anything is fetched."""
    for name in names:
        assets.describe(name)
    if not errors.is_terminal:
        return {name: assets.fetch(name, offline=offline) for name in names}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=errors) as bars:
        places: dict[str, Path] = {}
        for name in names:
            bar = bars.add_task(name, total=assets.describe(name).size)
            places[name] = assets.fetch(
                name,
                offline=offline,
                on_bytes=lambda _, done, total, bar=bar: bars.update(bar, completed=done, total=total),
            )
            bars.update(bar, completed=assets.describe(name).size)
    return places
