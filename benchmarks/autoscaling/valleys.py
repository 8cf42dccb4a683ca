"""Valleys filled with offline work: GPU time for each token, on the scored windows of the cells that move.

Beside the cell, CLIENTS clients each send another offline request as soon as their last one has ended, of lengths drawn
from the cell's own; after a refusal it waits as long as `retry-after` says. The class has no target, so it buys no
replica. Tokens are those of prompts and answers: of interactive requests that attained, and of offline ones that were
answered within the window. The oracle's, and our attainment without offline work, are those of the matrix.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random

from benchmarks.autoscaling.cells import WARMUP_S, Window
from benchmarks.autoscaling.exact import run_plan, service_plan
from benchmarks.autoscaling.fluid import ORACLE, fluid_plan, requests_of
from benchmarks.autoscaling.hindsight import SEED
from benchmarks.autoscaling.jobs import cell_of
from benchmarks.autoscaling.learned import learned
from benchmarks.autoscaling.store import FOLDER, CellFile, write
from benchmarks.simulator.cells import LEAD_S

from paceline_core.registry.enums import Outcome, RequestClass
from paceline_gateway.queueing.shedding import LATEST_S
from paceline_simulator.gateway import ClientRequest
from paceline_simulator.policies import SLO
from paceline_simulator.results import RequestResult
from paceline_simulator.simulation import Simulation
from paceline_simulator.traces import TraceRequest

FILE = FOLDER / "valleys.json"
MOVING = ("codeC", "gamma", "r1", "az-code", "az-conv", "m-large")
CLIENTS = 1000
_OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class Valley:
    """A window's attainment (0 to 1) with and without offline work, and its GPU-seconds for 1,000 tokens."""

    cell: str
    window: str
    attainment: float
    without: float
    gpu_s: float
    oracle_gpu_s: float


class OfflineClients:
    """Closed loop: `follow` is called with each request that has ended."""

    def __init__(self, like: Sequence[TraceRequest], seed: int) -> None:
        self._like = like
        self._random = Random(f"offline {seed}")

    def first(self) -> list[TraceRequest]:
        return [self._next(0.0) for _ in range(CLIENTS)]

    def follow(self, ended: ClientRequest, now: float) -> TraceRequest | None:
        if ended.asked.tenant != _OFFLINE:
            return None
        refused = ended.record is not None and ended.record.outcome is Outcome.SHED
        return self._next(now + (LATEST_S if refused else 0.0))

    def _next(self, now: float) -> TraceRequest:
        like = self._random.choice(self._like)
        return replace(like, at=now, blocks=(), tenant=_OFFLINE)


def fill(task: tuple[str, int]) -> Valley:
    """A scored window of a cell, by the cell's name and the window's place."""
    name, place = task
    window = cell_of(name).scored[place]
    requests = requests_of(window, SEED)
    clients, replicas = OfflineClients(requests, SEED), fluid_plan(window, requests).replicas
    plan = service_plan(requests, learned(name).policy(LEAD_S), replicas)
    arrivals = {RequestClass.INTERACTIVE: requests, RequestClass.OFFLINE: clients.first()}
    made = replace(plan, arrivals=arrivals, follow=clients.follow)
    result = Simulation(run_plan(window, made, SEED)).run()
    offered = [request for request in requests if WARMUP_S <= request.at < window.end]
    attained = [one for one in result.scored() if one.tenant != _OFFLINE and one.attained]
    tokens = _tokens(attained) + _tokens([one for one in result.requests if _filled(one, window)])
    file = CellFile.load(name)
    ours, oracle = (file.result(policy, window.name, SEED) for policy in (SLO, ORACLE))
    return Valley(
        cell=name,
        window=window.name,
        attainment=round(len(attained) / len(offered), 5),
        without=round(ours["attainment"], 5),
        gpu_s=round(1000 * sum(result.gpu_s.values()) / tokens, 4),
        oracle_gpu_s=round(1000 * 3600 * oracle["gpu_hours"] / (oracle["attainment"] * _tokens(offered)), 4),
    )


def tasks() -> list[tuple[str, int]]:
    return [(name, place) for name in MOVING for place in range(len(cell_of(name).scored))]


def _filled(one: RequestResult, window: Window) -> bool:
    """Whether it is an offline request that was answered within the window."""
    return one.tenant == _OFFLINE and one.outcome is Outcome.OK and WARMUP_S <= one.ended < window.end


def _tokens(requests: Sequence[TraceRequest | RequestResult]) -> int:
    return sum(request.prompt_tokens + request.output_tokens for request in requests)


def save(found: Sequence[Valley]) -> None:
    write(FILE, {"clients": CLIENTS, "rows": list(map(asdict, found))})


def table(found: Sequence[Valley]) -> str:
    """Markdown."""
    head = "| cell | attainment with / without | GPU-s for 1,000 tokens | oracle without | ratio |"
    rows = [
        f"| {one.cell}, {one.window} | {100 * one.attainment:.2f} / {100 * one.without:.2f} % "
        f"| {one.gpu_s:.3f} | {one.oracle_gpu_s:.3f} | {one.gpu_s / one.oracle_gpu_s:.2f} |"
        for one in found
    ]
    return "\n".join([head, "|---" * 5 + "|", *rows])
