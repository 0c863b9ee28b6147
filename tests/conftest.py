"""Fixtures that every kind of test shares."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees a provider's key or a proxy of the machine."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_TORCH_COMPILE", "1")
    yield


@pytest.fixture(autouse=True)
async def nothing_left_behind() -> AsyncIterator[None]:
    """A test that leaves a task running fails."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)
    here = {asyncio.current_task()}
    left = [task for task in asyncio.all_tasks() - before - here if not task.done()]
    for task in left:
        task.cancel()
    assert not left, f"tasks left behind: {left}"


@pytest.fixture
def threads_ended() -> Iterator[None]:
    """A test that asks for this fails when it leaves a thread of its own behind."""
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and not t.daemon and t.is_alive()]
    assert not left, f"threads left behind: {left}"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Recorded cases kept outside the repository."""
    if not SHARED.is_dir():
        pytest.skip("recorded cases (../shared) are not beside this checkout")
    return SHARED
