"""Where data folders (tasks/, systems/) are found: a given root, the current folder, the shipped copies."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def data_folders(kind: str, root: Path | None = None) -> list[Path]:
    """Existing folders of a kind ("tasks", "systems"), the one that wins first."""
    places = [root, Path.cwd()] if root is not None else [Path.cwd()]
    folders = [place / kind for place in places]
    folders += [_PACKAGE / "shipped" / kind, _PACKAGE.parent / kind]
    found: list[Path] = []
    for folder in folders:
        if folder.is_dir() and folder.resolve() not in [f.resolve() for f in found]:
            found.append(folder)
    return found
