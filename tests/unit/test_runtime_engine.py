"""The slots of a batch, on a batch that only counts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from kamebench.audio import FRAME_SAMPLES
from kamebench.errors import SystemFault
from kamebench.runtime.batch import Output, Request
from kamebench.runtime.engine import Engine, Slot
from kamebench.runtime.oracle_stream import OracleStream

PAD, INITIAL = 3, 200
FRAME = np.zeros(FRAME_SAMPLES, np.float32)
pytestmark = pytest.mark.usefixtures("threads_ended")


@dataclass(frozen=True)
class Update:
    reset: bool = False
    tokens: tuple[int, ...] = ()


@dataclass
class Counting:
    """Says which rows ran together; `gate` holds a beat up in its thread."""

    rows: int
    beats: list[list[Request]] = field(default_factory=list)
    gate: threading.Event | None = None
    fail_at: int | None = None
    closed: bool = False
    threads: set[int] = field(default_factory=set)

    def step(self, requests: Sequence[Request]) -> list[Output]:
        self.threads.add(threading.get_ident())
        self.beats.append(list(requests))
        if self.gate is not None:
            assert self.gate.wait(10)
        if len(self.beats) == self.fail_at:
            raise RuntimeError("out of memory")
        return [Output(request.pcm, 100 + request.row) for request in requests]

    def close(self) -> None:
        self.closed = True

    def together(self) -> list[list[int]]:
        return [[request.row for request in beat] for beat in self.beats]


def engine_of(batch: Counting, gather_s: float = 5.0) -> Engine:
    return Engine(batch, PAD, INITIAL, gather_s)


async def end(engine: Engine, *slots: Slot) -> None:
    for slot in slots:
        await slot.aclose()
    engine.close()


async def test_a_beat_waits_for_nobody_once_all_are_there() -> None:
    batch = Counting(3)
    engine = engine_of(batch)
    slots = [engine.open(seed) for seed in range(3)]
    for _ in range(4):
        outs = await asyncio.gather(*(slot.step(FRAME) for slot in slots))
        assert [out.text_token for out in outs] == [100, 101, 102]
    assert [sorted(rows) for rows in batch.together()] == [[0, 1, 2]] * 4
    assert [r.seed for r in batch.beats[0]] == [0, 1, 2]
    assert [r.seed for r in batch.beats[1]] == [None] * 3
    await end(engine, *slots)
    assert batch.closed
    assert len(batch.threads) == 1
    assert batch.threads != {threading.get_ident()}


async def test_a_slow_conversation_delays_the_others_by_the_gather_time_alone() -> None:
    batch = Counting(2)
    engine = engine_of(batch, gather_s=0.02)
    fast, slow = engine.open(0), engine.open(1)
    began = time.monotonic()
    for _ in range(3):
        await fast.step(FRAME)
    assert 0.06 <= time.monotonic() - began < 5
    await asyncio.gather(fast.step(FRAME), slow.step(FRAME))
    assert batch.together() == [[0], [0], [0], [0, 1]]
    await slow.aclose()
    began = time.monotonic()
    await fast.step(FRAME)
    await end(engine, fast)


async def test_a_conversation_that_ends_lets_the_waiting_go_on() -> None:
    batch = Counting(2)
    engine = engine_of(batch, gather_s=1e6)
    one, other = engine.open(0), engine.open(1)
    step = asyncio.create_task(one.step(FRAME))
    await asyncio.sleep(0)
    assert not batch.beats
    await other.aclose()
    await step
    await end(engine, one)


async def test_frames_that_come_during_a_beat_go_into_the_next() -> None:
    gate = threading.Event()
    batch = Counting(3, gate=gate)
    engine = engine_of(batch, gather_s=0.0)
    slots = [engine.open(0) for _ in range(3)]
    first = asyncio.create_task(slots[0].step(FRAME))
    while not batch.beats:
        await asyncio.sleep(0.001)
    later = [asyncio.create_task(slot.step(FRAME)) for slot in slots[1:]]
    await asyncio.sleep(0.01)
    gate.set()
    await asyncio.gather(first, *later)
    assert batch.together() == [[0], [1, 2]]
    await end(engine, *slots)


async def test_a_step_cancelled_before_its_beat_is_withdrawn() -> None:
    batch = Counting(2)
    engine = engine_of(batch, gather_s=1e6)
    one, other = engine.open(0), engine.open(1)
    given_up = asyncio.create_task(one.step(FRAME))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await asyncio.gather(one.step(FRAME), other.step(FRAME))
    assert [sorted(rows) for rows in batch.together()] == [[0, 1]]
    await end(engine, one, other)


async def test_a_step_cancelled_in_its_beat_waits_for_the_beat_and_harms_nobody() -> None:
    gate = threading.Event()
    batch = Counting(2, gate=gate)
    engine = engine_of(batch)
    one, other = engine.open(0), engine.open(1)
    steps = [asyncio.create_task(slot.step(FRAME)) for slot in (one, other)]
    while not batch.beats:
        await asyncio.sleep(0.001)
    steps[0].cancel()
    await asyncio.sleep(0.01)
    assert not steps[0].done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await steps[0]
    assert (await steps[1]).text_token == 101
    await end(engine, one, other)


async def test_a_failed_beat_is_a_fault_of_those_in_it_and_the_next_conversation_is_new() -> None:
    batch = Counting(2, fail_at=2)
    engine = engine_of(batch)
    slot = engine.open(7)
    await slot.step(FRAME)
    with pytest.raises(SystemFault, match="RuntimeError: out of memory") as caught:
        await slot.step(FRAME)
    assert (caught.value.kind, caught.value.retryable) == ("crash", False)
    await slot.aclose()
    again = engine.open(8)
    await again.step(FRAME)
    assert batch.beats[-1][0].seed == 8
    await end(engine, again)


async def test_refusals() -> None:
    engine = engine_of(Counting(1))
    slot = engine.open(0)
    with pytest.raises(SystemFault, match="holds 1 conversations") as caught:
        engine.open(0)
    assert (caught.value.kind, caught.value.retryable) == ("busy", True)
    with pytest.raises(SystemFault, match=r"\[480\]"):
        await slot.step(FRAME[:480])
    await slot.aclose()
    await slot.aclose()
    with pytest.raises(SystemFault, match="closed"):
        await slot.step(FRAME)
    slot = engine.open(0)
    await end(engine)
    with pytest.raises(SystemFault, match="closed"):
        await slot.step(FRAME)
    with pytest.raises(SystemFault, match="closed"):
        engine.open(0)


async def test_each_slot_has_its_own_oracle_and_a_reset_clears_it() -> None:
    engine = engine_of(Counting(2))
    one, other = engine.open(0), engine.open(1)

    async def both(*updates: Update) -> tuple[int, int]:
        a, b = await asyncio.gather(one.step(FRAME, updates), other.step(FRAME))
        return a.oracle_token, b.oracle_token

    assert await both() == (PAD, PAD)
    assert await both(Update(tokens=(10, 11))) == (INITIAL, PAD)
    assert await both() == (10, PAD)
    assert await both(Update(True, (20,)), Update(tokens=(21,))) == (INITIAL, PAD)
    assert await both() == (20, PAD)
    one.reset()
    assert await both() == (PAD, PAD)
    assert await both(Update(tokens=(30,))) == (INITIAL, PAD)
    await end(engine, one, other)


def test_tokens_that_come_after_their_index_are_never_seen() -> None:
    stream = OracleStream(PAD, INITIAL)
    seen = []
    for step in range(9):
        if step == 2:
            stream.reset(step)
            stream.append(step, [10])
        if step == 6:  # indices 2 and 3 have passed at steps 4 and 5
            stream.append(step, [11, 12, 13, 14])
        seen.append(stream.at(step))
    assert seen == [PAD, PAD, INITIAL, 10, PAD, PAD, 13, 14, PAD]
