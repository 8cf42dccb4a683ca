"""Checks of grammars wait in a bounded line in which tenants take turns, and what is known is not asked again."""

import asyncio

import pytest

from paceline_core.errors import Code, RequestError
from paceline_core.registry.enums import GrammarCheck
from paceline_workers.engine.sampling.grammar import LONGEST
from paceline_workers.server.grammar.checks import MAX_CACHED, RUNNING, SHARE, WAITING, GrammarChecks
from paceline_workers.server.grammar.process import CheckResult

Open = dict[str, asyncio.Future[tuple[CheckResult, str]]]


class Bench:
    """Checks that the test ends itself; `asked` in the order in which they began."""

    def __init__(self) -> None:
        self.open: Open = {}
        self.asked: list[str] = []
        self.told: list[GrammarCheck] = []
        self.checks = GrammarChecks(self._ask, self.told.append)

    async def _ask(self, text: str) -> tuple[CheckResult, str]:
        self.asked.append(text)
        self.open[text] = asyncio.get_running_loop().create_future()
        return await self.open[text]

    async def enter(self, text: str, tenant: str = "a") -> "asyncio.Task[str]":
        task = asyncio.create_task(self.checks.check(text, tenant))
        for _ in range(3):
            await asyncio.sleep(0)
        return task

    async def end(self, text: str, answer: CheckResult = CheckResult.VERDICT, reason: str = "") -> None:
        self.open.pop(text).set_result((answer, reason))
        for _ in range(4):
            await asyncio.sleep(0)


async def test_one_check_answers_all_who_ask_for_a_grammar_then_and_later() -> None:
    bench = Bench()
    waiting = [await bench.enter("regex:a", tenant) for tenant in "aab"]
    await bench.end("regex:a", reason="no")
    assert [await task for task in waiting] == ["no"] * 3
    assert await bench.checks.check("regex:a", "c") == "no"
    assert (bench.asked, bench.told) == (["regex:a"], [GrammarCheck.REFUSED])


async def test_verdicts_are_kept_up_to_a_number_and_the_oldest_is_asked_anew() -> None:
    bench = Bench()
    for number in range(MAX_CACHED + 1):
        task = await bench.enter(f"regex:{number}")
        await bench.end(f"regex:{number}")
        assert await task == ""
    again = await bench.enter("regex:0")
    await bench.end("regex:0")
    assert await again == ""
    assert len(bench.asked) == MAX_CACHED + 2


async def test_tenants_take_turns_and_none_has_more_than_one_check_at_a_time() -> None:
    bench = Bench()
    tasks = [await bench.enter(f"regex:a{number}", "a") for number in range(4)]
    tasks += [await bench.enter("regex:b", "b"), await bench.enter("regex:c", "c")]
    assert (bench.asked, bench.checks.waiting) == (["regex:a0", "regex:b"], 4)
    assert RUNNING == 2
    while bench.open:
        await bench.end(next(iter(bench.open)))
    order = [text.removeprefix("regex:") for text in bench.asked]
    assert order == ["a0", "b", "c", "a1", "a2", "a3"]
    assert [await task for task in tasks] == [""] * 6
    assert bench.checks.waiting == 0


async def test_who_asks_too_much_is_refused_and_nobody_else() -> None:
    bench = Bench()
    tasks = [await bench.enter(f"regex:a{number}", "a") for number in range(SHARE + 1)]
    with pytest.raises(RequestError, match="of them yours") as caught:
        await bench.checks.check("regex:more", "a")
    assert (caught.value.code, bench.told) == (Code.QUEUE_FULL, [GrammarCheck.FULL])
    others = range(WAITING - SHARE + 1)
    tasks += [await bench.enter(f"regex:{number}", f"t{number // SHARE}") for number in others]
    with pytest.raises(RequestError, match=f"{WAITING} grammars wait"):
        await bench.checks.check("regex:last", "z")
    await bench.checks.close()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ends} == {asyncio.CancelledError}
    assert bench.checks.waiting == 0


async def test_who_leaves_takes_the_verdict_from_nobody() -> None:
    bench = Bench()
    leaving, staying = await bench.enter("regex:a"), await bench.enter("regex:a")
    leaving.cancel()
    await bench.end("regex:a")
    assert await staying == ""


async def test_a_check_without_an_answer_is_a_retry_and_is_not_kept() -> None:
    bench = Bench()
    task = await bench.enter("regex:a")
    await bench.end("regex:a", CheckResult.FAILED)
    with pytest.raises(RequestError) as caught:
        await task
    assert (caught.value.code, caught.value.retry_after) == (Code.NO_CAPACITY, 1.0)
    again = await bench.enter("regex:a")
    await bench.end("regex:a")
    assert await again == ""
    assert bench.told == [GrammarCheck.FAILED, GrammarCheck.ACCEPTED]


@pytest.mark.parametrize(("answer", "words"), [(CheckResult.TIME, "1 s of a CPU"), (CheckResult.MEMORY, "64 MiB")])
async def test_a_check_that_was_ended_is_the_grammars_fault(answer: CheckResult, words: str) -> None:
    bench = Bench()
    task = await bench.enter("regex:a")
    await bench.end("regex:a", answer)
    assert words in await task
    assert words in await bench.checks.check("regex:a", "b")


async def test_a_grammar_that_is_too_long_is_asked_of_nobody() -> None:
    bench = Bench()
    assert "at most 65536" in await bench.checks.check("regex:" + "a" * LONGEST, "a")
    assert bench.asked == []
