"""What a replica costs. Money is decimal; the pool's price is its replicas' sum."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final

from paceline_core.objects import FieldError, ResolvedPool, ResolvedService
from paceline_planner.hardware import Accelerator

_BUDGET: Final = "spec.scaling.budget.dollarsPerHour"


def replica_price(accelerator: Accelerator, gpus: int = 1) -> Decimal | None:
    """US dollars an hour of one replica on `gpus` devices; None while the price of a device is unknown."""
    return None if accelerator.price is None else accelerator.price * gpus


def pool_price(
    service: ResolvedService, pool: ResolvedPool, find: Callable[[str], Accelerator | None]
) -> Decimal | None:
    """The same of a pool's replica; of what is emulated where it is emulated. `find` knows accelerators by name."""
    emulation = service.engine.emulation
    device = find(emulation.accelerator if emulation else pool.accelerator)
    return None if device is None else replica_price(device, max(replica_devices(service, pool), 1))


def budget_doubts(service: ResolvedService, find: Callable[[str], Accelerator | None]) -> Iterator[FieldError]:
    """Why a budget in dollars is probably not meant so: too small for what must run, or blind to what it costs."""
    budget = service.scaling.budget_dollars_per_hour
    if budget is None:
        return
    prices = {pool.name: pool_price(service, pool, find) for pool in service.pools}
    known = [price for price in prices.values() if price is not None]
    least = sum((pool.min * (prices[pool.name] or 0) for pool in service.pools), Decimal(0))
    if budget < least:
        said = f"{budget:f} is below the {least:f} that replicas.min of all pools costs; raise it, or lower min"
        yield FieldError(_BUDGET, said)
    elif known and budget < min(known) and len(known) == len(prices):
        yield FieldError(_BUDGET, f"{budget:f} is below the {min(known):f} of one replica; raise it, or remove it")
    if blind := [name for name, price in prices.items() if price is None]:
        said = f"the price of pool {', '.join(blind)} is unknown, so that it counts as nothing"
        yield FieldError(_BUDGET, f"{said}; write dollarsPerHour in its AcceleratorProfile")


def replica_devices(service: ResolvedService, pool: ResolvedPool) -> int:
    """GPUs of one replica: emulated ones where it is emulated."""
    return pool.tensor * service.engine.pipeline if service.engine.emulation else pool.gpus
