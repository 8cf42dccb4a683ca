"""Scale-downs of a whole local run: the least busy worker goes, no stream is cut, and nothing is lost on the way."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from tests.cli.waiting import until

from paceline_autoscaler.signals import StreamClient, WorkerLoads, stream_client
from paceline_cli.up.command import choose_ports
from paceline_core.auth import FileSigner
from paceline_core.clock import SystemClock
from paceline_core.kube import Endpoint, ObjectKey, ScaleTarget, ServiceEndpoints
from paceline_core.kube.local import endpoints_from
from paceline_core.wire import LoadReport
from paceline_local import HOST
from paceline_local.apiserver import ENDPOINTS
from paceline_local.component_configs import AUTOSCALER
from paceline_local.context import HttpProber, PortPool, RunContext
from paceline_local.keys import KeyFile, create_signing_keys
from paceline_local.manifests import read_local_manifests
from paceline_local.rundir import run_dir
from paceline_local.stack import LocalStack, running

pytestmark = pytest.mark.real

KEY = ObjectKey("default", "busy")
POOL = ScaleTarget(KEY, "main")
NAMES = ["busy-main-1", "busy-main-2", "busy-main-3"]
NEWEST = NAMES[-1]
"""The one that would go without any retirement."""
LENGTHS = (500, 250)
"""Tokens of streams: the emulated L4 makes some 20 a second."""
GAP = 100
STREAMS = 12
LIMIT_S = 90.0


def manifest(replicas: int) -> dict[str, Any]:
    emulate = {"accelerator": "l4", "model": "llama-3.1-8b", "coldStart": "100ms"}
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {
            "model": {"source": "builtin://demo", "servedName": "busy"},
            "engine": {"maxModelLen": 4096, "emulate": emulate},
            "pools": [{"name": "main", "accelerator": "cpu", "replicas": {"min": replicas, "max": replicas}}],
            "scaling": {"policy": "fixed"},
        },
    }


class Stream:
    """One streamed chat, from when its first token has come. `tokens` is how many it was to have."""

    def __init__(self, http: httpx.AsyncClient, tokens: int) -> None:
        self.tokens = tokens
        self._begun = asyncio.Event()
        self._http = http
        self.task = asyncio.create_task(self._read())

    async def begun(self) -> "Stream":
        async with asyncio.timeout(LIMIT_S):
            await self._begun.wait()
        return self

    async def _read(self) -> tuple[int, str, bool]:
        """Its tokens, why it ended, and whether it ended as a stream should."""
        body = {
            "model": "busy",
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": self.tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        usage, reason, done = 0, "", False
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                data = line.removeprefix("data: ")
                done = done or data == "[DONE]"
                if line == data or done:
                    continue
                self._begun.set()
                event = json.loads(data)
                usage = (event.get("usage") or {}).get("completion_tokens", usage)
                reason = next((c["finish_reason"] for c in event["choices"] if c["finish_reason"]), reason)
        return usage, reason, done


class Run:
    """A local run in this process; gateway, autoscaler and workers are processes of their own."""

    def __init__(self, stack: LocalStack, http: httpx.AsyncClient, loads: WorkerLoads) -> None:
        self.stack = stack
        self.http = http
        self._loads = loads

    def want(self, replicas: int) -> None:
        self.stack.store.objects.put(manifest(replicas))

    @property
    def endpoints(self) -> list[Endpoint]:
        items: list[ServiceEndpoints] = [endpoints_from(item) for item in self.stack.store.watch(ENDPOINTS)[0]["items"]]
        return [endpoint for item in items for endpoint in item.endpoints]

    def names(self, of: Callable[[Endpoint], bool] = lambda _: True) -> list[str]:
        return [endpoint.name for endpoint in self.endpoints if of(endpoint)]

    @property
    def ready(self) -> list[str]:
        return self.names(lambda endpoint: endpoint.ready)

    @property
    def ordered(self) -> int:
        return self.stack.store.scales.get(POOL).replicas

    def report(self, name: str) -> LoadReport | None:
        self._loads.follow([ServiceEndpoints(KEY, tuple(self.endpoints))])
        return self._loads.reports(str(KEY)).get(name)

    def running(self, *names: str) -> int:
        return sum(found.running for name in names if (found := self.report(name)))

    def retired(self) -> list[str]:
        return [name for name in self.names() if (found := self.report(name)) and found.retired]

    async def busy(self) -> tuple[list[Stream], str]:
        """Streams at every worker, and who has by far the fewest tokens left to produce: not the newest."""
        streams: list[Stream] = []
        for tokens in islice(cycle(LENGTHS), STREAMS):
            streams.append(await Stream(self.http, tokens).begun())
            await until(lambda: self.running(*NAMES) == len(streams))
            left = {name: found.remaining_tokens for name in NAMES if (found := self.report(name))}
            least, second, _ = sorted(left, key=left.__getitem__)
            if left[least] and least != NEWEST and left[second] - left[least] > GAP:
                return streams, least
        pytest.fail("the work is spread too evenly")

    def kill(self, words: str) -> None:
        """SIGKILL for the process with these words on its command line or in its environment."""
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if words in " ".join([*child.cmdline(), *child.environ().values()]) and child.ppid() == os.getpid():
                    child.send_signal(signal.SIGKILL)
                    return
        pytest.fail(f"no process of {words}")


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    file, clock, pool = tmp_path / "busy.yaml", SystemClock(), PortPool(HOST)
    file.write_text(yaml.safe_dump(manifest(len(NAMES))))
    manifests = read_local_manifests([file], clock.utc())
    async with contextlib.AsyncExitStack() as opened:
        place = opened.enter_context(run_dir(tmp_path / "state"))
        probes = await opened.enter_async_context(httpx.AsyncClient(trust_env=False))
        ports = choose_ports(0, pool)
        site = RunContext(place, pool, clock, HttpProber(probes), f"http://{HOST}:{ports.public}")
        keys = KeyFile(tmp_path / "state")
        headers = {"authorization": f"Bearer {keys.local(clock)}"}
        create_signing_keys(place)
        stack = LocalStack(site, manifests, keys, ports)
        await opened.enter_async_context(running(stack, site))
        client = httpx.AsyncClient(base_url=site.endpoint, headers=headers, timeout=LIMIT_S, trust_env=False)
        http = await opened.enter_async_context(client)
        streams = await opened.enter_async_context(stream_client(12.0))
        loads = WorkerLoads(StreamClient(streams, FileSigner(place.signing_key(AUTOSCALER), AUTOSCALER), clock))
        opened.push_async_callback(loads.close)
        made = Run(stack, http, loads)
        assert await stack.wait_ready() == {}
        await until(lambda: made.ready == NAMES, LIMIT_S)
        await until(lambda: all(made.report(name) for name in NAMES), LIMIT_S)
        yield made


async def test_the_least_busy_worker_goes_and_no_stream_is_cut(run: Run) -> None:
    streams, least = await run.busy()
    run.want(2)
    await until(lambda: run.ordered == 2, LIMIT_S)
    assert run.names(lambda endpoint: endpoint.terminating or not endpoint.ready) == [least]
    ended = [await stream.task for stream in streams]
    assert ended == [(stream.tokens, "length", True) for stream in streams]
    await until(lambda: run.names() == [name for name in NAMES if name != least], LIMIT_S)


async def test_who_is_needed_again_is_back_and_what_dies_meanwhile_changes_nothing(run: Run) -> None:
    run.want(2)
    await until(lambda: len(run.retired()) == 1, LIMIT_S)
    run.want(3)
    await until(lambda: not run.retired() and run.ready == NAMES, LIMIT_S)
    assert run.ordered == 3

    run.want(2)
    await until(lambda: len(run.retired()) == 1, LIMIT_S)
    (victim,) = run.retired()
    run.kill(f"{victim}/")
    staying = [name for name in NAMES if name != victim]
    await until(lambda: run.ordered == 2 and run.names() == run.ready == staying, LIMIT_S)

    run.want(1)
    await until(lambda: len(run.retired()) == 1, LIMIT_S)
    (victim,) = run.retired()
    run.kill("paceline_autoscaler.main")
    staying = [name for name in staying if name != victim]
    await until(lambda: run.ordered == 1 and run.names() == run.ready == staying, LIMIT_S)
