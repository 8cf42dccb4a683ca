"""The line before the tokenizer's threads: bounded, and without the work of clients that have left."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from functools import partial

import pytest
from tests.worker.harness import LIMIT_S, eventually

from paceline_core.errors import Code, RequestError
from paceline_workers.server.text.threads import CHARACTERS, THREADS, WAITING, TextThreads


class Text:
    """What work holds on to."""

    def read(self, ran: threading.Event) -> None:
        """The work."""
        ran.set()


class Held:
    """Threads that are busy until `release` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.threads = TextThreads()

    async def fill(self) -> list[asyncio.Task[bool]]:
        """Work for every thread, begun."""
        begun = threading.Barrier(THREADS + 1)

        def hold() -> bool:
            begun.wait(LIMIT_S)
            return self.release.wait(LIMIT_S)

        tasks = [asyncio.create_task(self.threads.run(hold, 1)) for _ in range(THREADS)]
        await asyncio.to_thread(begun.wait, LIMIT_S)
        return tasks


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.release.set()
    held.threads.close()


async def test_more_characters_than_may_wait_are_refused_for_now(held: Held) -> None:
    tasks = await held.fill()
    waiting = asyncio.create_task(held.threads.run(lambda: True, CHARACTERS - THREADS))
    await eventually(lambda: held.threads.characters == CHARACTERS)
    with pytest.raises(RequestError, match="long texts wait") as caught:
        await held.threads.run(lambda: True, 1)
    assert (caught.value.code, caught.value.row.should_retry) == (Code.QUEUE_FULL, True)
    held.release.set()
    assert all(await asyncio.gather(*tasks, waiting))
    assert await held.threads.run(lambda: True, 10 * CHARACTERS)
    assert (held.threads.waiting, held.threads.characters) == (0, 0)


async def test_more_texts_than_may_wait_are_refused_for_now(held: Held) -> None:
    tasks = await held.fill()
    waiting = [asyncio.create_task(held.threads.run(lambda: True, 1)) for _ in range(WAITING - THREADS)]
    await eventually(lambda: held.threads.waiting == WAITING)
    with pytest.raises(RequestError, match="64 long texts wait for the tokenizer") as caught:
        await held.threads.run(lambda: True, 1)
    assert (caught.value.code, caught.value.row.should_retry) == (Code.QUEUE_FULL, True)
    held.release.set()
    assert all(await asyncio.gather(*tasks, *waiting))
    assert await held.threads.run(lambda: True, 1)


async def test_waiting_work_is_dropped_with_its_text_when_nobody_awaits_it(held: Held) -> None:
    tasks = await held.fill()
    text = Text()
    kept, ran = weakref.ref(text), threading.Event()
    waiting = asyncio.create_task(held.threads.run(partial(Text.read, text, ran), CHARACTERS // 2))
    del text
    await eventually(lambda: held.threads.waiting == THREADS + 1)
    waiting.cancel()
    await asyncio.wait({waiting})
    del waiting
    gc.collect()
    assert kept() is None
    assert (held.threads.waiting, held.threads.characters) == (THREADS, THREADS)
    held.release.set()
    assert all(await asyncio.gather(*tasks))
    assert await held.threads.run(lambda: not ran.is_set(), 1)


async def test_begun_work_counts_until_its_end_though_nobody_awaits_it(held: Held) -> None:
    for task in await held.fill():
        task.cancel()
    await asyncio.sleep(0)
    assert held.threads.waiting == THREADS
    held.release.set()
    await eventually(lambda: held.threads.waiting == 0)
