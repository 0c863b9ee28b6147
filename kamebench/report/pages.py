"""Jinja2 environment: undefined names are errors, everything from a run is escaped."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kamebench import __version__
from kamebench.report.glossary import COLUMNS, GLOSSARY
from kamebench.store import write_text

FOLDER = Path(__file__).parent


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"fixed": fixed, "signed": signed, "raw": raw, "words": words}
    shared: dict[str, Any] = made.globals  # pyright: ignore[reportAssignmentType]
    titles = {column.key: column.title for column in COLUMNS}
    shared.update(glossary=GLOSSARY, version=__version__, titles=titles)
    return made


def write_page(path: Path, template: str, up: str, **context: Any) -> None:
    """Render one page; `up` leads from it to the site's root ("" or "../../")."""
    write_text(path, environment().get_template(template).render(up=up, **context) + "\n")


def fixed(value: float, digits: int = 2, unit: float = 1) -> str:
    """A number divided by `unit`, with a true minus sign and no negative zero."""
    text = f"{value / unit:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def signed(value: float, digits: int = 0) -> str:
    text = fixed(value, digits)
    return text if text.startswith("−") or float(text) == 0 else f"+{text}"


def raw(value: float | None) -> str:
    """For sorting: empty where there is none."""
    return "" if value is None or not math.isfinite(value) else f"{value:.6g}"


def words(name: str) -> str:
    return name.replace("_", " ")
