"""The pools of a service as a simulation needs them: engines, starts and prices, all from its manifest.

Engine settings pass through the worker's own configuration, so limits and KV pages are those of an emulated worker. Its
steps take the planner's roofline of the model on the pool's accelerator, or on the emulated one.
Known holes: an engine predicts its steps by the planner's prior and does not learn; nodes have room for every replica.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from paceline_autoscaler.state import PoolSpeed
from paceline_core.errors import InvalidInput
from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import ScaleTarget
from paceline_core.launch.build import FIELDS, Binding, worker_config
from paceline_core.objects.resolved import ResolvedPool, ResolvedService
from paceline_planner import coldstart
from paceline_planner.accelerators import CATALOGUE
from paceline_planner.hardware import Accelerator, Dtype
from paceline_planner.model_config import from_config
from paceline_planner.service_devices import pool_price, replica_devices
from paceline_planner.shapes import ModelShape
from paceline_planner.step_clock import FittedClock, RooflineClock, StepClock
from paceline_simulator.cluster import PoolPlan, StartTimes
from paceline_simulator.engine import EngineSpec
from paceline_workers.config import EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.backends.base import BackendInfo
from paceline_workers.engine.backends.emulated import backend_info, emulated_shape
from paceline_workers.model_source import locate, read_object

VOCABULARY = 1 << 31
"""Above all token ids of simulated prompts."""
_EMULATE = "emulate one with spec.engine.emulate: {accelerator: h100, model: llama-3.1-8b}"
_NOWHERE = Binding("simulated", "", 0, "", "", "", 0)

Find = Callable[[str], Accelerator | None]
"""Looks an accelerator up by name."""


@dataclass(frozen=True, slots=True)
class SimulatedPools:
    """A service whose engines are known. `prices`: dollars an hour of one replica by pool, None if unknown."""

    service: ResolvedService
    pools: tuple[PoolPlan, ...]
    prices: Mapping[str, float | None]


def simulated_pools(
    service: ResolvedService, find: Find = CATALOGUE.get, lead_s: float | None = None
) -> SimulatedPools:
    """The pools of a valid service. `lead_s`: seconds of a start in all, None: as emulated or planned.

    An emulated service knows this lead as its cold start. Raises InvalidInput naming the field that a simulation lacks.
    """
    if lead_s is not None and service.engine.emulation is not None:
        emulation = replace(service.engine.emulation, cold_start_s=lead_s)
        service = replace(service, engine=replace(service.engine, emulation=emulation))
    _refuse_what_is_not_simulated(service)
    pools = tuple(_pool(service, place, find, lead_s) for place in range(len(service.pools)))
    prices = {pool.name: pool_price(service, pool, find) for pool in service.pools}
    known = {name: None if price is None else float(price) for name, price in prices.items()}
    return SimulatedPools(service, pools, known)


def learned_pool(service: ResolvedService, place: int, speed: PoolSpeed, start: StartTimes) -> PoolPlan:
    """A pool whose replicas are as fast as a worker's own fit says, and have the slots and pages that it reports.

    Nothing is planned, so the model need not be known here. Raises InvalidInput naming what a simulation lacks.
    """
    _refuse_what_is_not_simulated(service)
    pool = service.pools[place]
    engine = EngineConfig.model_validate(worker_config(service, pool, _NOWHERE)["engine"])
    pages = speed.kv_tokens // engine.page_tokens
    context = engine.max_model_len or pages * engine.page_tokens
    limits = sizing.limits(engine, context=context, vocab_size=VOCABULARY, pages=pages)
    clock = FittedClock(speed.step_time)
    return PoolPlan(
        ScaleTarget(ObjectKey.parse(service.key), pool.name),
        EngineSpec(clock, speed.step_time, replace(limits, max_seqs=speed.slots), pages, engine.prefix_cache),
        start,
        gpus=replica_devices(service, pool),
        drain_limit_s=service.rollout.drain_timeout_s,
    )


def _refuse_what_is_not_simulated(service: ResolvedService) -> None:
    cache = "spec.engine.kvCache"
    if service.engine.attention_window is not None:
        raise InvalidInput(f"{cache}.attentionWindow", "is not simulated; leave it out of the file for the simulation")
    if service.engine.host_offload_bytes:
        raise InvalidInput(f"{cache}.hostOffloadBytes", "is not simulated; leave it out of the file for the simulation")


def _pool(service: ResolvedService, place: int, find: Find, lead_s: float | None) -> PoolPlan:
    pool = service.pools[place]
    engine = EngineConfig.model_validate(worker_config(service, pool, _NOWHERE)["engine"])
    shape, device = _hardware(service, place, engine, find)
    emulation = service.engine.emulation
    stages = coldstart.stages(shape, device, emulation.cold_start_s if emulation else None)
    start = StartTimes(tuple((stage.name, stage.seconds) for stage in stages))
    try:
        info = backend_info(engine, shape, device, VOCABULARY, stages)
    except InvalidInput as error:
        field = "spec.engine.emulate" if emulation else f"spec.pools[{place}].accelerator"
        raise InvalidInput(field if error.field == "engine.emulate" else FIELDS[error.field], error.message) from None
    return PoolPlan(
        ScaleTarget(ObjectKey.parse(service.key), pool.name),
        engine_spec(RooflineClock(shape, device), info, engine),
        start if lead_s is None else StartTimes.of(lead_s),
        gpus=replica_devices(service, pool),
        drain_limit_s=service.rollout.drain_timeout_s,
    )


def engine_spec(clock: StepClock, info: BackendInfo, engine: EngineConfig) -> EngineSpec:
    """A worker's engine, simulated; it predicts its steps by the prior. Ids only tell contents apart, without bound."""
    limits = replace(info.limits, vocab_size=VOCABULARY)
    return EngineSpec(clock, info.prior, limits, info.pages, prefix_cache=engine.prefix_cache, ahead=info.ahead)


def _hardware(service: ResolvedService, place: int, engine: EngineConfig, find: Find) -> tuple[ModelShape, Accelerator]:
    if emulation := service.engine.emulation:
        return emulated_shape(engine, emulation.model), CATALOGUE[emulation.accelerator]
    pool = service.pools[place]
    device = _device(pool, place, find)
    return sizing.shaped(engine, _model(service), Dtype.BF16), device


def _device(pool: ResolvedPool, place: int, find: Find) -> Accelerator:
    field, device = f"spec.pools[{place}].accelerator", find(pool.accelerator)
    if pool.accelerator == "cpu":
        raise InvalidInput(field, f"workers on cpu measure their step time, nothing plans it; {_EMULATE}")
    if device is None:
        known = ", ".join(name for name in CATALOGUE if name != "cpu")
        raise InvalidInput(field, f"{pool.accelerator!r} is not known; write {known}, or add an AcceleratorProfile")
    return device


def _model(service: ResolvedService) -> ModelShape:
    """The shape of the model's own config.json, which must be on this machine."""
    try:
        return from_config(read_object(locate(service.model.source) / "config.json"), name=service.key)
    except InvalidInput as error:
        message = f"a simulation reads the model's config.json, which fails ({error}); {_EMULATE}"
        raise InvalidInput("spec.model.source", message) from None
