"""The clocks: nothing here takes a real second."""

from __future__ import annotations

import asyncio
import time

from kamebench.clock import NS_PER_S, Activity, StreamClock, VirtualClock


async def test_virtual_clock_jumps_to_the_next_sleeper() -> None:
    clock, order = VirtualClock(), []

    async def sleeper(name: str, t_s: int) -> None:
        await clock.sleep_until_ns(t_s * NS_PER_S)
        order.append((name, clock.now_ns() // NS_PER_S))

    async def both() -> None:
        await asyncio.gather(sleeper("b", 3600), sleeper("a", 60))

    started = time.perf_counter()
    await clock.run(both())
    assert order == [("a", 60), ("b", 3600)]
    assert time.perf_counter() - started < 1


async def test_skipping_wakes_who_sleeps_on_the_stream() -> None:
    base = VirtualClock()
    stream = StreamClock(base)

    async def skip() -> None:
        stream.skip_to(5 * NS_PER_S)

    async def scenario() -> int:
        sleeping = asyncio.create_task(stream.sleep_until_ns(5 * NS_PER_S))
        await asyncio.sleep(0)
        await skip()
        await sleeping
        return base.now_ns()

    assert await base.run(scenario()) == 0
    assert stream.now_ns() == 5 * NS_PER_S


async def test_stream_time_stands_still_while_stopped_and_operations_settle() -> None:
    base = VirtualClock()
    stream = StreamClock(base)
    activity = Activity(stream)

    async def scenario() -> None:
        with activity.operation("backend") as operation:
            with stream.stopped():
                await base.sleep_until_ns(2 * NS_PER_S)
            assert stream.now_ns() == 0
            assert not activity.idle
            await operation.settle()
        assert stream.now_ns() == 2 * NS_PER_S
        assert base.now_ns() == 4 * NS_PER_S
        assert activity.idle

    await base.run(scenario())


def test_sync_tests_work_beside_the_task_guard() -> None:
    assert VirtualClock().now_ns() == 0


async def test_skipping_stops_at_the_next_sleeper() -> None:
    base = VirtualClock()
    stream = StreamClock(base)
    woke: list[int] = []

    async def timer() -> None:
        await stream.sleep_until_ns(50)
        woke.append(stream.now_ns())

    async def scenario() -> None:
        task = asyncio.create_task(timer())
        await asyncio.sleep(0)
        await stream.advance_to_ns(80, Activity(stream))
        await task

    await base.run(scenario())
    assert woke == [50]
    assert stream.now_ns() == 80


async def test_virtual_pace_waits_for_what_is_in_flight() -> None:
    base = VirtualClock()
    stream = StreamClock(base)
    activity = Activity(stream)

    async def work() -> None:
        with activity.operation("recognition"):
            await base.sleep_until_ns(30)

    async def scenario() -> tuple[int, int]:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await stream.advance_to_ns(80, activity)
        await task
        return base.now_ns(), stream.now_ns()

    assert await base.run(scenario()) == (30, 80)
