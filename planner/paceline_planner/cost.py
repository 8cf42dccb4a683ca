"""What a replica costs. Money is decimal; the pool's price is its replicas' sum."""

from collections.abc import Callable
from decimal import Decimal

from paceline_core.objects import ResolvedPool, ResolvedService
from paceline_planner.hardware import Accelerator


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


def replica_devices(service: ResolvedService, pool: ResolvedPool) -> int:
    """GPUs of one replica: emulated ones where it is emulated."""
    return pool.tensor * service.engine.pipeline if service.engine.emulation else pool.gpus
