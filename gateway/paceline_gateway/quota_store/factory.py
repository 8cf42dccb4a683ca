"""From the configuration to a gateway's counters: its own alone, or a share of those that several gateways have."""

import secrets
import socket
from dataclasses import dataclass

from paceline_core.auth import Signer
from paceline_core.clock import Clock
from paceline_core.kube import Cluster
from paceline_core.telemetry import Metrics
from paceline_gateway.config import GatewayConfig
from paceline_gateway.http.connection_pool import Address
from paceline_gateway.quota.bucket_store import TTL_S
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota_store.peer import PeerDeps, PeerStore
from paceline_gateway.quota_store.sync import CounterStore, QuotaSync


@dataclass(frozen=True, slots=True)
class QuotaBackend:
    """`pump` carries between a gateway's own and the shared counters; `peers` may keep the shared ones."""

    quotas: QuotaManager
    pump: QuotaSync | None = None
    peers: PeerStore | None = None


@dataclass(frozen=True, slots=True)
class QuotaDeps:
    """What sharing needs. `admin` is the address that the admin port is bound to."""

    cluster: Cluster
    signer: Signer
    clock: Clock
    metrics: Metrics
    admin: Address


def counters(config: GatewayConfig, around: QuotaDeps) -> QuotaBackend:
    holder = f"{config.name}.{secrets.token_hex(4)}"  # a gateway that starts anew holds nothing of what it held before
    store: CounterStore
    peers = None
    if config.quota.redis is not None:
        from paceline_gateway.quota_store.redis import RedisStore  # noqa: PLC0415 - a third of a second to import

        store = RedisStore(config.quota.redis, config.namespace)
    elif config.quota.lease:
        ways = PeerDeps(around.cluster, around.signer, around.clock, config.limits, TTL_S)
        store = peers = PeerStore(holder, reachable(around.admin), ways)
    else:
        return QuotaBackend(QuotaManager())
    pump = QuotaSync(store, holder, config.quota.wait_s, around.clock, around.metrics)
    return QuotaBackend(QuotaManager(pump.send, holder, config.quota.gateways), pump, peers)


def reachable(bound: Address) -> Address:
    """Where other gateways reach a port that is bound to this address: a pod's name resolves to the pod's own."""
    host, port = bound
    return (socket.gethostbyname(socket.gethostname()) if host in ("0.0.0.0", "::") else host, port)  # noqa: S104
