"""A service's devices: whether its accelerators are known and can serve it, and what its pools cost. Pure.

Money is decimal; a pool's price is the sum of its replicas' prices.
"""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Final

from paceline_core.objects.field_errors import FieldError, did_you_mean
from paceline_core.objects.resolved import ResolvedPool, ResolvedService
from paceline_planner.accelerators import CATALOGUE
from paceline_planner.hardware import Accelerator, replica_price

_BUDGET_FIELD: Final = "spec.scaling.budget.dollarsPerHour"
_NOT_NVIDIA = (
    "amd.com/",
    "aws.amazon.com/neuron",
    "google.com/tpu",
    "gpu.intel.com/",
    "habana.ai/",
    "huawei.com/",
)
"""The prefixes of extended resources for other vendors' devices."""


def unknown_accelerators(service: ResolvedService, profiles: Iterable[str]) -> Iterator[FieldError]:
    """Pools on an accelerator that neither paceline nor one of these profiles knows; none if steps are emulated."""
    known = list(dict.fromkeys((*CATALOGUE, *profiles)))
    for place, pool in enumerate(() if service.emulated else service.pools):
        name = pool.accelerator
        if name not in known:
            fix = f"write one of them, or add an AcceleratorProfile {name}"
            hint = did_you_mean(name, [one for one in known if one[0] == name[0]])  # a100 is not a typo for h100
            message = f"{name!r} is none of {', '.join(known)}, which are known here{hint}; {fix}"
            yield FieldError(f"spec.pools[{place}].accelerator", message)


def unmanaged_accelerators(service: ResolvedService, find: Callable[[str], Accelerator | None]) -> Iterator[FieldError]:
    """Pools that would compute on devices of other vendors, without emulation: their workers would refuse to start."""
    for place, pool in enumerate(() if service.emulated else service.pools):
        device = find(pool.accelerator)
        if device is not None and device.resource.startswith(_NOT_NVIDIA):
            message = f"workers compute on NVIDIA GPUs and CPUs in this version, and {device.name} is {device.resource}"
            fix = "name an NVIDIA GPU or cpu, or emulate with spec.engine.emulate"
            yield FieldError(f"spec.pools[{place}].accelerator", f"{message}; {fix}")


def pool_price(
    service: ResolvedService, pool: ResolvedPool, find: Callable[[str], Accelerator | None]
) -> Decimal | None:
    """The price of a pool's replica, or of the accelerator that it emulates; `find` looks accelerators up by name."""
    emulation = service.engine.emulation
    device = find(emulation.accelerator if emulation else pool.accelerator)
    return None if device is None else replica_price(device, max(replica_devices(service, pool), 1))


def budget_doubts(service: ResolvedService, find: Callable[[str], Accelerator | None]) -> Iterator[FieldError]:
    """Why a budget in dollars is probably a mistake: too small for the minima, or a pool's price is unknown."""
    budget = service.scaling.budget_dollars_per_hour
    if budget is None:
        return
    prices = {pool.name: pool_price(service, pool, find) for pool in service.pools}
    known = [price for price in prices.values() if price is not None]
    minimum = sum((pool.min * (prices[pool.name] or 0) for pool in service.pools), Decimal(0))
    if budget < minimum:
        message = f"{budget:f} is below the {minimum:f} that replicas.min of all pools costs; raise it, or lower min"
        yield FieldError(_BUDGET_FIELD, message)
    elif known and budget < min(known) and len(known) == len(prices):
        yield FieldError(
            _BUDGET_FIELD, f"{budget:f} is below the {min(known):f} of one replica; raise it, or remove it"
        )
    if unpriced := [name for name, price in prices.items() if price is None]:
        message = f"the price of pool {', '.join(unpriced)} is unknown, so that it counts as nothing"
        yield FieldError(_BUDGET_FIELD, f"{message}; write dollarsPerHour in its AcceleratorProfile")


def replica_devices(service: ResolvedService, pool: ResolvedPool) -> int:
    """GPUs of one replica: emulated ones if it is emulated."""
    return pool.tensor * service.engine.pipeline if service.engine.emulation else pool.gpus
