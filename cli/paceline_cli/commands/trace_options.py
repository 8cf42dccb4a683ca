"""The options that choose what part of a trace is played, and how densely: for `simulate` and `bench` alike.

A file of its own, so that neither command imports the other.
"""

from typing import Annotated

import typer

from paceline_core.errors import InvalidInput
from paceline_core.units import seconds
from paceline_simulator.replay import Replay

TRACE_HELP = "Request log: CSV or JSON lines of Azure, BurstGPT, Mooncake, or t_s,prompt_tokens,output_tokens; .gz too."

Times = Annotated[int, typer.Option("--times", metavar="K", help="Copies of the trace at once, at random phases.")]
Crowd = Annotated[
    str | None, typer.Option("--crowd", metavar="TIME", help="Start the copies within about this time, e.g. 30s.")
]
From = Annotated[str, typer.Option("--from", metavar="TIME", help="Where in the trace to begin, e.g. 10m.")]
Span = Annotated[str | None, typer.Option("--span", metavar="TIME", help="How much of the trace to play, e.g. 1h.")]


def duration(option: str, text: str) -> float:
    """`90s` -> 90.0; raises InvalidInput naming the option."""
    try:
        return seconds(text)
    except ValueError as error:
        raise InvalidInput(option, str(error)) from None


def replay_of(times: int, crowd: str | None, start: str, span: str | None) -> Replay:
    """The replay that the options describe; raises InvalidInput naming the option."""
    return Replay(
        times,
        None if crowd is None else duration("--crowd", crowd),
        duration("--from", start),
        None if span is None else duration("--span", span),
    )
