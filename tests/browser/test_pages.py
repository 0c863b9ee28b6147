"""The built site in a real browser, opened from disk."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.browser.conftest import SYSTEMS

pytestmark = pytest.mark.browser
WIDTHS = (390, 1024, 1920)
PICTURES = Path(__file__).with_name("pictures")


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


BOX = """
(selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility()).map((e) => {
  const b = e.getBoundingClientRect();
  return [e.textContent.slice(0, 30), b.left, b.top, b.right, b.bottom];
})
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_no_name_in_the_chart_covers_another(browser: Any, site: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    opened = context.new_page()
    opened.goto((site / "index.html").as_uri())
    boxes = opened.evaluate(BOX, f"{LLM} svg.scatter .name")
    assert len(boxes) == len(SYSTEMS)
    for (a, *one), (b, *other) in combinations(boxes, 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart, (a, b)
    context.close()


def test_the_picture_and_the_answer_come_first(page: Any, site: Path) -> None:
    """Both are seen without scrolling, the picture above the answer and the answer above the table."""
    page.goto((site / "index.html").as_uri())
    order = [
        page.evaluate(BOX, f"section.group:first-of-type {part}")[0]
        for part in ("svg.scatter", ".answer", "table.board")
    ]
    tops = [box[2] for box in order]
    assert tops == sorted(tops)
    assert order[1][4] < 900


def test_playing_both_answers_one_after_the_other(page: Any, site: Path) -> None:
    """Each from a second before the user's end to the end of its turn, not to the end of the recording."""
    page.goto(pages_of(site)["compare"].as_uri())
    article = page.locator("article:has(button.both)").first
    first, second = (article.locator("audio").nth(i).element_handle() for i in (0, 1))
    begin, end = (float(first.get_attribute(f"data-{name}")) for name in ("from", "to"))
    article.locator("button.both").click()

    def until_of(audio: Any, condition: str) -> None:
        for _ in range(100):
            if audio.evaluate(f"(a) => {condition}"):
                return
            page.wait_for_timeout(50)
        raise AssertionError(f"never true within 5 s: {condition}")

    until_of(first, "!a.paused && a.currentTime > 0")
    assert begin <= first.evaluate("(a) => a.currentTime") < begin + 2
    assert second.evaluate("(a) => a.paused")
    first.evaluate(f"(a) => {{ a.currentTime = {end - 0.3}; }}")
    until_of(second, f"!a.paused && a.currentTime > {second.get_attribute('data-from')}")
    assert first.evaluate("(a) => a.paused && !a.ended")
    second.evaluate("(a) => a.pause()")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["index", "run", "turn", "compare"])
def test_pages_look_as_they_did(browser: Any, site: Path, width: int, name: str) -> None:
    """Against the kept pictures. After a wanted change: KAMEBENCH_PICTURES=write pytest tests/browser."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="light", bypass_csp=True
    )
    opened = context.new_page()
    opened.goto(pages_of(site)[name].as_uri())
    opened.add_style_tag(content=same_font())
    opened.evaluate("document.fonts.ready")
    opened.wait_for_timeout(100)
    seen = Image.open(io.BytesIO(opened.screenshot())).convert("L").reduce(4)
    context.close()
    path = PICTURES / f"{name}-{width}.png"
    if os.environ.get("KAMEBENCH_PICTURES") == "write":
        path.parent.mkdir(exist_ok=True)
        seen.save(path, optimize=True)
    kept = np.asarray(Image.open(path), np.int16)
    change = np.abs(np.asarray(seen, np.int16) - kept)
    assert change.mean() < 1.5 and (change > 40).mean() < 0.01, (change.mean(), (change > 40).mean())


@cache
def same_font() -> str:
    """A style sheet that sets all text in the DejaVu that comes with matplotlib, on any machine."""
    import matplotlib as mpl

    faces: list[str] = []
    for file, weight in (("DejaVuSans", "100 500"), ("DejaVuSans-Bold", "501 900")):
        data = Path(mpl.get_data_path(), "fonts", "ttf", f"{file}.ttf").read_bytes()
        faces.append(
            f"@font-face {{ font-family: Same; font-weight: {weight}; "
            f"src: url(data:font/ttf;base64,{base64.b64encode(data).decode()}); }}"
        )
    return "".join(faces) + "* { font-family: Same !important; }"


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
