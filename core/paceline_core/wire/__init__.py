"""Messages between processes. All carry `v`; unknown fields are ignored, an unknown version is refused."""

from paceline_core.wire.demand import ClassDemand, DemandReport, ServiceDemand
from paceline_core.wire.load import KVLoad, LoadReport, PrefixDelta, WorkerState
from paceline_core.wire.message import VERSION, Message, decode, encode
from paceline_core.wire.prefix import PREFIX, PrefixKeys
from paceline_core.wire.resume import (
    MOVED,
    RESUME,
    SEED,
    VOCABULARY,
    Evacuate,
    Evacuated,
    MoveReason,
    Resume,
    ResumedChoice,
)
from paceline_core.wire.steptime import StepTime

__all__ = [
    "MOVED",
    "PREFIX",
    "RESUME",
    "SEED",
    "VERSION",
    "VOCABULARY",
    "ClassDemand",
    "DemandReport",
    "Evacuate",
    "Evacuated",
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
