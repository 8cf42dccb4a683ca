"""The official client as people use it: both of its kinds, streamed and not, with its own retries, and leaving."""

import asyncio
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from tests.gateway import manifests
from tests.gateway.books import balanced
from tests.gateway.conftest import MakeWorker
from tests.gateway.official_client import where
from tests.gateway.stand import STREAM, Stand, until
from tests.gateway.worker_double import Script, in_turn

pytestmark = pytest.mark.real
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is TTFT?"}]
TEXT = "Time to first token"


class Watched:
    """An asynchronous client and every answer that it got."""

    def __init__(self, stand: Stand, retries: int = 0) -> None:
        self.answers: list[Any] = []
        http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [self._note]})
        self.client = openai.AsyncOpenAI(**where(stand, retries), http_client=http)

    async def _note(self, answer: Any) -> None:
        self.answers.append(answer)

    @property
    def statuses(self) -> list[int]:
        return [answer.status_code for answer in self.answers]

    async def ask(self) -> str:
        answer = await self.client.chat.completions.create(model="chat", messages=MESSAGES)
        return str(answer.choices[0].message.content)

    async def stream(self) -> str:
        stream = await self.client.chat.completions.create(model="chat", messages=MESSAGES, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def test_the_synchronous_client_asks_and_streams(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())

    def both() -> tuple[Any, str, list[str]]:
        with openai.OpenAI(**where(stand, 0)) as client:
            answer = client.chat.completions.create(model="chat", messages=MESSAGES)
            stream = client.chat.completions.create(model="chat", messages=MESSAGES, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            return answer, text, [model.id for model in client.models.list()]

    answer, text, names = await asyncio.to_thread(both)
    assert (answer.choices[0].message.content, text, names) == (TEXT, TEXT, ["chat"])
    assert answer.usage.completion_tokens == 4
    await balanced(stand, {"ok": 2})


async def test_many_at_once_get_their_own_answers(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    watched = Watched(stand)
    texts = await asyncio.gather(*(watched.stream() if n % 2 else watched.ask() for n in range(20)))
    assert texts == [TEXT] * 20
    await balanced(stand, {"ok": 20})


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_rate_limit_is_waited_out_by_its_retry_after(
    stand: Stand, make_worker: MakeWorker, streamed: bool
) -> None:
    """Two seconds: by itself the client would come again after half a second, and be refused again."""
    stand.work(await make_worker())
    stand.cluster.put(manifests.tenant(limits={"requestsPerMinute": 30}))
    await until(lambda: stand.process.registry.snapshot.tenants["team"].requests_per_minute == 30)
    watched = Watched(stand, retries=1)
    while 429 not in watched.statuses:
        assert await (watched.stream() if streamed else watched.ask()) == TEXT
    assert watched.statuses[-2:] == [429, 200]
    refusal = watched.answers[-2]
    assert refusal.headers["x-should-retry"] == "true"
    assert 0 < int(refusal.headers["retry-after-ms"]) <= 2000
    await balanced(stand, {"ok": len(watched.answers) - 1, "quota": 1})


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_full_queue_is_retried_and_counted(stand: Stand, make_worker: MakeWorker, streamed: bool) -> None:
    go_on = asyncio.Event()
    worker = await make_worker(slots=1)
    stand.cluster.put(manifests.service(classes={"interactive": {"queueLimit": 1}}))
    stand.work(worker)
    await stand.ready()
    watched = Watched(stand, retries=1)
    await watched.ask()  # something has gone, so that it is known how fast the line moves
    worker.script = lambda _: Script(until=go_on)
    others = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM)) for _ in range(2)]
    await until(lambda: stand.process.requests.open == 2)
    asked = asyncio.create_task(watched.stream() if streamed else watched.ask())
    await until(lambda: watched.statuses[1:] == [503])
    go_on.set()
    assert await asked == TEXT
    refusal = watched.answers[1]
    assert refusal.headers["x-should-retry"] == "true"
    assert int(refusal.headers["retry-after"]) >= 1
    await asyncio.gather(*others)
    await balanced(stand, {"ok": 4, "shed": 1})


async def test_what_a_retry_cannot_help_is_asked_once(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    watched = Watched(stand, retries=3)
    with pytest.raises(openai.NotFoundError, match="nonsense"):
        await watched.client.chat.completions.create(model="nonsense", messages=MESSAGES)
    with pytest.raises(openai.BadRequestError):
        await watched.client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=10**9)
    worker.script = lambda _: Script(
        status=400, body='{"error":{"message":"too long","code":"context_length_exceeded"}}'
    )
    with pytest.raises(openai.BadRequestError, match="too long"):
        await watched.ask()
    assert watched.statuses == [404, 400, 400]
    assert len(worker.seen) == 1


async def test_a_stream_that_is_closed_stops_the_worker(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=2)
    stand.work(worker)
    watched = Watched(stand)
    stream = await watched.client.chat.completions.create(model="chat", messages=MESSAGES, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content == " to":
            break
    await stream.close()
    await until(worker.seen[0].closed.is_set)
    await balanced(stand, {"cancelled": 1})


async def test_a_call_that_is_cancelled_stops_the_worker(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=0)
    stand.work(worker)
    watched = Watched(stand, retries=3)
    for ask in (watched.ask, watched.stream):
        before = len(worker.seen)
        asked = asyncio.create_task(ask())
        await until(lambda count=before: len(worker.seen) > count)  # type: ignore[misc]
        asked.cancel()
        await until(worker.seen[-1].closed.is_set)
    await balanced(stand, {"cancelled": 2})


async def test_a_synchronous_client_that_leaves_its_stream_stops_the_worker(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=2)
    stand.work(worker)

    def some() -> str:
        with (
            openai.OpenAI(**where(stand, 0)) as client,
            client.chat.completions.create(model="chat", messages=MESSAGES, stream=True) as stream,
        ):
            return str(next(iter(stream)).choices[0].delta.role)

    assert await asyncio.to_thread(some) == "assistant"
    await until(worker.seen[0].closed.is_set)
    await balanced(stand, {"cancelled": 1})


async def test_a_client_that_has_waited_enough_retries_and_leaves_nothing(
    stand: Stand, make_worker: MakeWorker
) -> None:
    """Its own time limit: it closes, and comes again."""
    worker = await make_worker()
    worker.script = in_turn(Script(stall_after=0))
    stand.work(worker)
    watched = Watched(stand, retries=1)
    answer = await watched.client.with_options(timeout=openai.Timeout(20, read=0.5)).chat.completions.create(
        model="chat", messages=MESSAGES
    )
    assert answer.choices[0].message.content == TEXT
    assert len(worker.seen) == 2
    await balanced(stand, {"cancelled": 1, "ok": 1})
