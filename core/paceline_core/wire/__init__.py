"""Messages between processes. All carry `v`; unknown fields are ignored, an unknown version is refused."""

from paceline_core.wire.demand import ClassDemand, DemandReport, ServiceDemand
from paceline_core.wire.load import KVLoad, LoadReport, PrefixDelta, WorkerState
from paceline_core.wire.message import VERSION, Message, decode, encode
from paceline_core.wire.steptime import StepTime

__all__ = [
    "VERSION",
    "ClassDemand",
    "DemandReport",
    "KVLoad",
    "LoadReport",
    "Message",
    "PrefixDelta",
    "ServiceDemand",
    "StepTime",
    "WorkerState",
    "decode",
    "encode",
]
