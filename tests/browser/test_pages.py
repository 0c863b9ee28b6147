"""The built site in a real browser, opened from disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
WIDTHS = (390, 1024, 1920)


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test on a script error, a refused resource or a request to a network."""
    context = browser.new_context(viewport={"width": 1024, "height": 900})
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    opened.on("request", lambda r: None if r.url.startswith("file:") else wrong.append(r.url))
    yield opened
    context.close()
    assert not wrong


def pages_of(site: Path) -> dict[str, Path]:
    run = next(iter(sorted((site / "runs").glob("duplex-*"))))
    return {
        "index": site / "index.html",
        "run": run / "index.html",
        "turn": run / "q0.html",
        "compare": next(iter(sorted((site / "compare").glob("*.html")))),
    }


def names(page: Any, group: str) -> list[str]:
    return page.locator(f"{group} tbody tr:visible th a").all_inner_texts()


def until(page: Any, condition: str) -> None:
    """Poll from outside: Playwright's own waiting evaluates strings in the page, which its policy refuses."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true within 5 s: {condition}")


LLM = "section.group[data-judge='gpt-4']"


def test_sorting_by_a_column_and_back(page: Any, site: Path) -> None:
    page.goto((site / "index.html").as_uri())
    assert names(page, LLM) == ["slow (large)", "duplex (large)", "duplex (small)"]
    header = page.locator(f"{LLM} th", has_text="p50, s")
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert names(page, LLM) == ["duplex (small)", "duplex (large)", "slow (large)"]
    header.locator("button").press("Enter")
    assert names(page, LLM) == ["slow (large)", "duplex (large)", "duplex (small)"]


def test_filters_hide_rows_and_groups(page: Any, site: Path) -> None:
    page.goto((site / "index.html").as_uri())
    page.select_option("select[name=judge]", "gpt-4")
    assert page.locator("section.group:visible").count() == 1
    page.select_option("select[name=backend]", "small")
    assert names(page, LLM) == ["duplex (small)"]
    assert page.locator(".shown").inner_text() == "1 system shown"
    page.select_option("select[name=category]", "stem")
    assert page.locator(f"{LLM} thead th:visible", has_text="humanities").count() == 0


def test_the_answer_under_a_limit(page: Any, site: Path) -> None:
    page.goto((site / "index.html").as_uri())
    assert page.locator(f"{LLM} .pick").inner_text().startswith("Under 1.0 s, pick duplex (large)")
    page.locator(f"{LLM} .limit input").fill("3")
    assert "slow (large)" in page.locator(f"{LLM} .pick").inner_text()
    page.locator(f"{LLM} .limit input").fill("0.2")
    assert "duplex (small)" in page.locator(f"{LLM} .pick").inner_text()


def test_rows_that_are_not_comparable_stand_apart(page: Any, site: Path) -> None:
    page.goto((site / "index.html").as_uri())
    assert page.locator("section.group").count() == 2
    assert "facts-only" not in page.locator(LLM).inner_text()
    assert page.get_by_text("not comparable with an LLM judge").first.is_visible()


def test_seeking_and_playing(page: Any, site: Path) -> None:
    page.goto(pages_of(site)["turn"].as_uri())
    assert page.evaluate("document.querySelector('audio').networkState") in (0, 1)  # nothing loaded yet
    page.locator("[data-seek]").first.click()
    now = "document.querySelector('audio').currentTime"
    until(page, f"Math.abs({now} - 3) < 0.02")
    scale = float(page.locator("svg.tracks").get_attribute("data-scale"))
    assert abs(float(page.locator(".cursor").get_attribute("x1")) - 3 * scale) < 2
    page.locator(".seek").press("ArrowRight")
    until(page, f"Math.abs({now} - 4) < 0.02")
    page.locator(".seek").press("Shift+ArrowLeft")
    until(page, f"Math.abs({now} - 3.92) < 0.02")
    page.locator("svg.tracks").click(position={"x": scale * 1.5, "y": 60})
    until(page, f"Math.abs({now} - 1.5) < 0.05")
    page.locator(".seek").press(" ")
    until(page, f"{now} > 1.8")
    page.locator(".seek").press(" ")
    until(page, "document.querySelector('audio').paused")
    assert abs(page.evaluate("document.querySelector('audio').duration") - 13) < 0.1


@pytest.mark.parametrize("name", ["run", "turn", "compare"])
def test_a_script_in_a_transcript_does_not_run(page: Any, site: Path, name: str) -> None:
    page.goto(pages_of(site)[name].as_uri())
    assert "document.documentElement.dataset.owned" in page.locator("main").inner_text()
    assert page.evaluate("document.documentElement.dataset.owned") is None
    assert page.locator("main img").count() == 0


def test_the_policy_refuses_inline_scripts(browser: Any, site: Path) -> None:
    """The second wall: even markup that got into the page would not run."""
    context = browser.new_context()
    opened = context.new_page()
    opened.goto((site / "index.html").as_uri())
    opened.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.owned = 1';"
        "document.body.append(s)"
    )
    assert opened.evaluate("window.owned") is None
    context.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_layout_at_three_widths(browser: Any, site: Path, width: int, scheme: str) -> None:
    """No page scrolls sideways, nothing moves while loading, and two visits give the same picture."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    for name, path in pages_of(site).items():
        pictures: list[bytes] = []
        for _ in range(2):
            opened = context.new_page()
            opened.add_init_script(
                "window.shift = 0;"
                "new PerformanceObserver((l) => l.getEntries().forEach((e) => window.shift += e.value))"
                ".observe({ type: 'layout-shift', buffered: true })"
            )
            opened.goto(path.as_uri())
            opened.wait_for_load_state("load")
            assert opened.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
            assert opened.evaluate("window.shift") < 0.02, name
            pictures.append(opened.screenshot())
            opened.close()
        assert pictures[0] == pictures[1], name
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, site: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    context = browser.new_context(
        viewport={"width": 1024, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    for name, path in pages_of(site).items():
        opened = context.new_page()
        opened.goto(path.as_uri())
        found = axe.run(opened).response["violations"]
        serious = [
            (v["id"], v["nodes"][0]["html"][:160]) for v in found if v["impact"] in ("serious", "critical")
        ]
        assert not serious, (name, serious)
    context.close()
