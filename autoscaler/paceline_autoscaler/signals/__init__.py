"""What is heard live: demand from gateways, load from workers."""

from paceline_autoscaler.signals.gateways import GatewayDemand, resolve
from paceline_autoscaler.signals.workers import WorkerLoads
from paceline_core.wire.stream import StreamClient, stream_client

__all__ = ["GatewayDemand", "StreamClient", "WorkerLoads", "resolve", "stream_client"]
