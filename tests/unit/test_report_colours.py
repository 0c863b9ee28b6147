"""The report's colours stay apart for readers with every common kind of colour blindness."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from kamebench.report.pages import FOLDER

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# What colour alone tells apart: the parts of the outcome bar, the injections, the two tracks.
SETS = {"outcomes": "c1 c2 c4 c7 c6", "injections": "c3 c2 c6 c4", "tracks": "c1 c2"}
APART = 15.0
"""CIE 1976 difference; about 2.3 is just noticeable side by side."""

CSS = (FOLDER / "static" / "style.css").read_text(encoding="utf-8")
DARK = CSS.index("@media (prefers-color-scheme: dark)")


def palette(scheme: str) -> dict[str, str]:
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part))
        for part in (CSS[:DARK], CSS[DARK : CSS.index("* {", DARK)])
    )
    return light if scheme == "light" else light | dark


def linear(colour: str) -> np.ndarray:
    """sRGB to linear (IEC 61966-2-1)."""
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* under D65."""
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    xyz = to_xyz @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), 841 / 108 * xyz + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("names", SETS.values(), ids=SETS)
def test_colours_stay_apart(scheme: str, sight: str, names: str) -> None:
    colours = palette(scheme)
    seen = {name: lab(SIGHT[sight] @ linear(colours[name])) for name in names.split()}
    nearest = min((float(np.linalg.norm(seen[a] - seen[b])), a, b) for a, b in combinations(seen, 2))
    assert nearest[0] >= APART, nearest
