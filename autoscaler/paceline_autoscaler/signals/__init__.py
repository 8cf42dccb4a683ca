"""Live signals: demand from gateways, load from workers."""

from paceline_autoscaler.signals.live import GatewayDemand, WorkerLoads, resolve
from paceline_core.wire.stream import StreamClient, stream_client

__all__ = ["GatewayDemand", "StreamClient", "WorkerLoads", "resolve", "stream_client"]
