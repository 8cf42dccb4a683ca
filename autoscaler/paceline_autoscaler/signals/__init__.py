"""What is heard live: demand from gateways, load from workers."""

from paceline_autoscaler.signals.gateways import Gateways, resolve
from paceline_autoscaler.signals.workers import Workers
from paceline_core.wire.stream import Link, stream_client

__all__ = ["Gateways", "Link", "Workers", "resolve", "stream_client"]
