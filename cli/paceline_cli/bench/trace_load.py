"""A trace as load: its arrivals and lengths as they were logged, its prefix blocks as shared text. Pure.

A file of its own beside `profiles`, which draw their load.
"""

from collections.abc import Sequence

from paceline_cli.bench.openloop import Arrival
from paceline_cli.bench.profiles import LoadPhase, Profile
from paceline_simulator.replay import Replay
from paceline_simulator.traces import TraceRequest

PHASE = "trace"


def trace_profile(name: str, trace: Sequence[TraceRequest], replay: Replay, seed: int) -> tuple[Profile, list[Arrival]]:
    """The requests to offer, and a summary of them for the report. Raises InvalidInput if the replay has none."""
    seconds, requests = replay.seconds(trace), replay.requests(trace, seed)
    arrivals = [
        Arrival(number, request.at, PHASE, request.prompt_tokens, request.output_tokens, request.blocks)
        for number, request in enumerate(requests)
    ]
    prompt, output = (
        round(sum(tokens) / len(requests))
        for tokens in ([one.prompt_tokens for one in requests], [one.output_tokens for one in requests])
    )
    phases = (LoadPhase(PHASE, seconds, len(requests) / seconds),)
    return Profile(f"trace {name}", phases, prompt, max(output, 1), spacing=None), arrivals
