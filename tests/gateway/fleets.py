"""A fleet of workers that a policy picks from, what its workers say, and prompts whose blocks can be cached."""

from tests.gateway.pieces import endpoint, report

from paceline_core.registry import RequestClass
from paceline_core.wire import KVLoad, PrefixDelta, StepTime
from paceline_core.wire.message import BLOCK
from paceline_gateway.routing.policies import RoutingPolicy, RoutingRequest, ShortestTTFT
from paceline_gateway.routing.worker import RAMP_S, Worker
from paceline_gateway.routing.worker_pool import WorkerPool

NOW = 1000.0
LOOKAHEAD_S = 0.5
INTERACTIVE = RequestClass.INTERACTIVE
FAST = StepTime(base=0.001, prefill=0.0001)
KV = KVLoad(page_tokens=16, total=10_000, free=10_000)


def fleet(*names: str, policy: RoutingPolicy | None = None, **said: object) -> WorkerPool:
    """All of them past their slow start. `policy`: the gateway's own if left out."""
    made = WorkerPool(policy or ShortestTTFT(LOOKAHEAD_S), silence_s=1e9, lookahead_s=LOOKAHEAD_S, prefix_bytes=1 << 20)
    made.update(endpoint(name) for name in names)
    for name in names:
        made.on_report(name, report(name, **({"step_time": FAST, "slots": 64, "kv": KV} | said)), NOW - RAMP_S)
    return made


def say(made: WorkerPool, name: str, now: float = NOW, **said: object) -> None:
    made.on_report(name, report(name, **({"step_time": FAST, "slots": 64, "kv": KV} | said)), now)


def ask(prompt: int, tokens: int = 1000, blocks: int = 4, name: RequestClass = INTERACTIVE) -> RoutingRequest:
    """A prompt of its own, all of it in whole blocks."""
    keys = tuple(f"{prompt * 1000003 + 1:08x}{block:08x}" for block in range(blocks))
    return RoutingRequest(tokens, name, 10, keys, blocks * BLOCK)


def has(made: WorkerPool, name: str, asked: RoutingRequest, blocks: int, now: float = NOW) -> None:
    say(made, name, now, prefix=PrefixDelta(added=asked.keys[:blocks]))


def picked(made: WorkerPool, asked: RoutingRequest, now: float = NOW) -> str | None:
    pick = made.pick(asked, now)
    return None if pick is None else pick.worker.name


def worker(made: WorkerPool, name: str) -> Worker:
    found = made.workers.get(name)
    assert found is not None
    return found


def picks(made: WorkerPool, prompts: list[RoutingRequest]) -> list[str | None]:
    """The worker of each in turn, which then has it in flight."""
    found = []
    for number, asked in enumerate(prompts):
        pick = made.assign(number, asked, NOW, stream=True)
        found.append(None if pick is None else pick.worker.name)
    return found
