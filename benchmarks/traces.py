"""The published logs that benchmarks replay, from the folder named by PACELINE_TRACES.

Arrivals that a log rounded to the same instant are spread over the time to the next one.
"""

import os
from dataclasses import replace
from pathlib import Path

from paceline_simulator.traces import TraceRequest, read_trace, spread

VARIABLE = "PACELINE_TRACES"


def folder() -> Path:
    """The folder of traces. Raises SystemExit naming the variable."""
    if not (path := os.environ.get(VARIABLE)):
        raise SystemExit(f"set {VARIABLE} to the folder that holds the traces")
    return Path(path)


def azure(count: int) -> list[TraceRequest]:
    """The first `count` requests of Azure's conversation log of 2023, whose prompts share nothing."""
    return spread(read_trace(folder() / "azure2023_conv.csv.gz", count))


def mooncake(count: int, kind: str = "conversation", after: int = 0) -> list[TraceRequest]:
    """The first `count` requests `after` so many of Mooncake's conversation log, or of its authors' synthetic one."""
    found = read_trace(folder() / f"mooncake_{kind}.jsonl.gz", after + count)[after:]
    return spread([replace(request, at=request.at - found[0].at) for request in found])
