"""Every system adapter against one suite: order, close, cancel, fault, nothing left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from kamebench.audio import FRAME_SAMPLES
from kamebench.errors import WorldFault
from kamebench.events import AudioOut, Fault
from tests.contract.cases import CASES
from tests.contract.harness import Case, Conversation

pytestmark = [
    pytest.mark.parametrize("case", CASES, ids=lambda case: case.name),
    # torch 2.13 deprecates a decorator that it uses itself.
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]


def fastest(paces: tuple[str, ...]) -> str:
    return paces[-1]


async def test_events_are_stamped_in_order_and_audio_is_sound(case: Case, tmp_path: Path) -> None:
    async with case.open(tmp_path) as system:
        talk = Conversation(system, tmp_path, fastest(system.capabilities.paces()))
        async with talk.session:
            await talk.wait(3)
            await talk.say()
            await talk.until_audio(case.settle_s)
        if case.answers:
            assert any(isinstance(event, AudioOut) for event in talk.events)
        assert not [event for event in talk.events if isinstance(event, Fault)]
        for event in talk.events:
            assert -1 <= event.frame < talk.index
            assert event.t_ns >= 0
            if isinstance(event, AudioOut):
                assert event.pcm.ndim == 1 and event.pcm.dtype == np.float32
                assert np.isfinite(event.pcm).all() and np.abs(event.pcm).max(initial=0) <= 1.0
        frames = [event.frame for event in talk.events]
        assert frames == sorted(frames)


async def test_frame_synchronous_systems_answer_every_frame_once(case: Case, tmp_path: Path) -> None:
    async with case.open(tmp_path) as system:
        if not system.capabilities.frame_synchronous:
            pytest.skip("the system is not frame-synchronous")
        talk = Conversation(system, tmp_path, "lockstep")
        async with talk.session:
            await talk.wait(12)
        out = [event for event in talk.events if isinstance(event, AudioOut)]
        assert [event.frame for event in out] == sorted({event.frame for event in out})
        assert all(event.synchronous and len(event.pcm) == FRAME_SAMPLES for event in out)
        assert out[-1].frame == talk.index - 1


async def test_closing_twice_and_beginning_again(case: Case, tmp_path: Path) -> None:
    async with case.open(tmp_path) as system:
        pace = fastest(system.capabilities.paces())
        for attempt in range(2):
            talk = Conversation(system, tmp_path / str(attempt), pace)
            talk.folder.mkdir()
            async with talk.session:
                await talk.wait(4)
            await talk.session.aclose()


async def test_a_cancelled_send_can_be_closed(case: Case, tmp_path: Path) -> None:
    async with case.open(tmp_path) as system:
        talk = Conversation(system, tmp_path, "realtime")
        async with talk.session:
            speaking = asyncio.create_task(talk.say())
            await asyncio.sleep(0.05)
            speaking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await speaking
        again = Conversation(system, tmp_path, talk.pace)
        async with again.session:
            await again.wait(4)


async def test_idle_again_after_everything_was_said(case: Case, tmp_path: Path) -> None:
    async with case.open(tmp_path) as system:
        if not system.capabilities.knows_idle:
            pytest.skip("the system cannot say when it is idle")
        talk = Conversation(system, tmp_path, "virtual")
        async with talk.session:
            await talk.say()
            await talk.until_audio(case.settle_s)
            await asyncio.wait_for(talk.context.activity.wait_idle(), 10)
        assert talk.context.activity.idle


async def test_a_failure_is_one_event_and_then_an_exception(case: Case, tmp_path: Path) -> None:
    if case.break_it is None:
        pytest.skip("the adapter offers no way to break it")
    async with case.open(tmp_path) as system:
        await case.break_it(system)
        talk = Conversation(system, tmp_path, fastest(system.capabilities.paces()))
        async with talk.session:
            with pytest.raises(WorldFault):
                await talk.say()
                await talk.wait(round(case.settle_s * 12.5))
        faults = [event for event in talk.events if isinstance(event, Fault)]
        assert len(faults) <= 1
