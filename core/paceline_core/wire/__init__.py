"""Messages between processes. All carry `v`; unknown fields are ignored, an unknown version is refused."""

from paceline_core.wire.demand import ClassDemand, DemandReport, Isolated, ServiceDemand
from paceline_core.wire.load import PREFIX, KVLoad, LoadReport, PrefixDelta, PrefixKeys, StepTime, WorkerState
from paceline_core.wire.message import VERSION, Message, decode, encode
from paceline_core.wire.resume import (
    MOVED,
    MOVED_HEADER,
    RESUME,
    SEED,
    SUSPECT,
    VOCABULARY,
    Evacuate,
    Evacuated,
    MoveReason,
    Resume,
    ResumedChoice,
)

__all__ = [
    "MOVED",
    "MOVED_HEADER",
    "PREFIX",
    "RESUME",
    "SEED",
    "SUSPECT",
    "VERSION",
    "VOCABULARY",
    "ClassDemand",
    "DemandReport",
    "Evacuate",
    "Evacuated",
    "Isolated",
    "KVLoad",
    "LoadReport",
    "Message",
    "MoveReason",
    "PrefixDelta",
    "PrefixKeys",
    "Resume",
    "ResumedChoice",
    "ServiceDemand",
    "StepTime",
    "WorkerState",
    "decode",
    "encode",
]
