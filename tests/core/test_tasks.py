"""What is cancelled has ended, and the first to end decides."""

import asyncio

import pytest

from paceline_core.process import cancel, first


async def test_what_is_cancelled_has_ended_and_its_faults_are_dropped() -> None:
    ended = asyncio.Event()

    async def faulty() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()
            raise OSError("at the end")

    task = asyncio.create_task(faulty())
    await asyncio.sleep(0)
    await cancel(task, asyncio.create_task(asyncio.sleep(60)))
    assert ended.is_set()
    assert task.done()


async def test_the_first_to_end_ends_the_others() -> None:
    others: list[str] = []

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            others.append("ended")

    await first(waiting(), asyncio.sleep(0), waiting())
    assert others == ["ended", "ended"]


async def test_what_the_first_raises_is_raised() -> None:
    async def faulty() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await first(asyncio.Event().wait(), faulty())
