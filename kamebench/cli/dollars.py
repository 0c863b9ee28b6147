"""The type of `--max-cost`."""

from __future__ import annotations

import math
from typing import Any

import click


class Dollars(click.FloatRange):
    """US dollars, 0 or more, finite."""

    name = "dollars"

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is no amount of US dollars: give a number, or leave it out.", param, ctx)
        return found
