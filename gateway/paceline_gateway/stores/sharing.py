"""From the configuration to a gateway's counters: its own alone, or a share of those that several gateways have."""

import secrets

from paceline_core.clock import Clock
from paceline_core.telemetry import Metrics
from paceline_gateway.config import GatewayConfig
from paceline_gateway.quota.quotas import Quotas
from paceline_gateway.stores.pump import Pump


def counters(config: GatewayConfig, clock: Clock, metrics: Metrics) -> tuple[Quotas, Pump | None]:
    """The counters, and who carries between them and the shared ones."""
    if config.quota.redis is None:
        return Quotas(), None
    from paceline_gateway.stores.redis_store import RedisStore  # noqa: PLC0415 - a third of a second, for who needs it

    holder = f"{config.name}.{secrets.token_hex(4)}"  # a gateway that starts anew holds nothing of what it held before
    pump = Pump(RedisStore(config.quota.redis, config.namespace), holder, config.quota.wait_s, clock, metrics)
    return Quotas(pump.send, holder, config.quota.gateways), pump
