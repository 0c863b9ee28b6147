"""A small site with hostile transcripts, and one Chromium for all tests of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kamebench.report.site import build_site
from tests.synthetic import Planted, make_run

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--autoplay-policy=no-user-gesture-required",
)
HOSTILE = (
    "<script>document.documentElement.dataset.owned='1'</script>"
    "<img src=x onerror=\"document.documentElement.dataset.owned='1'\">"
    "</text></svg><a href=javascript:alert(1)>"
)
SYSTEMS = (("duplex", "small", 4.0, -100.0), ("duplex", "large", 6.0, 300.0), ("slow", "large", 8.0, 2000.0))


def plant(results: Path) -> None:
    """Three comparable systems, and one with another judge."""
    for i, (system, backend, score, latency) in enumerate(SYSTEMS):
        plan = {
            f"q{q}": [
                Planted(
                    score=score + (q % 3 - 1) / 2,
                    latency_ms=latency + 10 * q,
                    text=HOSTILE if q == 0 else "Four.",
                )
            ]
            * 2
            for q in range(6)
        }
        make_run(
            results,
            plan,
            system=system,
            backend=backend,
            judge="gpt-4",
            run_id=f"20260101T00000{i}-aaaaaa",
            audio=True,
        )
    make_run(results, {f"q{q}": [Planted(score=9.0)] for q in range(6)}, system="facts-only", backend=None)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "results"
    plant(folder)
    return folder


@pytest.fixture(scope="session")
def site(results: Path) -> Path:
    out = results.parent / "reports"
    build_site(results, out, workers=1)
    return out


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """Playwright's own event loop runs in this thread; asyncio's check cannot run beside it."""


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Chromium, ended with the module, so that the loop is free again for asynchronous tests."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_api.sync_playwright() as play:
        running = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield running
        running.close()
