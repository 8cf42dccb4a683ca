"""What a replica costs. Money is decimal; the pool's price is its replicas' sum."""

from decimal import Decimal

from paceline_planner.hardware import Accelerator


def replica_price(accelerator: Accelerator, gpus: int = 1) -> Decimal | None:
    """US dollars an hour of one replica on `gpus` devices; None while the price of a device is unknown."""
    return None if accelerator.price is None else accelerator.price * gpus
