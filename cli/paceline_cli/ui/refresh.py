"""Polls the gateways repeatedly and shows the differences; until interrupted, or once.

Rates and quantiles are over the time since the oldest kept snapshot, at most `WINDOW_S`. A gateway that stops answering
is named; it is an error only if no gateway answers at first, or for the only frame.
"""

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final

import typer

from paceline_cli.ui.frame import Frame, frame
from paceline_cli.ui.gateway_poll import GatewaySnapshot, Reading, UnreachableGateway
from paceline_cli.ui.top_outputs import TopOutput
from paceline_core.clock import Clock
from paceline_core.errors import Forbidden, Unreachable

WINDOW_S: Final = 30.0

OneService = Annotated[
    str, typer.Option("--service", metavar="NAME", help="Service (name or namespace/name). Default: all.")
]
Once = Annotated[bool, typer.Option("--once", help="Print one snapshot and exit; for scripts.")]
Interval = Annotated[
    float, typer.Option("--interval", min=0.2, max=60, metavar="SECONDS", help="Seconds between two refreshes.")
]
INTERVAL_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class RefreshInterval:
    """The time between frames, and whether there is only one."""

    interval_s: float
    once: bool


class History:
    """Each gateway's snapshots of the last `WINDOW_S`."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._looks: dict[str, deque[GatewaySnapshot]] = {}

    def frame(self, reading: Reading) -> Frame:
        """The current frame, against the oldest snapshot; a gateway that is gone for long is forgotten."""
        found = frame(reading, {name: looks[0] for name, looks in self._looks.items() if looks})
        for look in reading:
            if isinstance(look, GatewaySnapshot):
                looks = self._looks.setdefault(look.gateway, deque())
                looks.append(look)
                while len(looks) > 1 and look.at - looks[0].at >= self._window_s:
                    looks.popleft()
                self._looks = {
                    name: kept for name, kept in self._looks.items() if look.at - kept[-1].at <= self._window_s
                }
        return found


async def show(read: Callable[[], Awaitable[Reading]], pace: RefreshInterval, output: TopOutput, clock: Clock) -> None:
    """Show frames. Raises Unreachable when no gateway answers at first, or for the only frame; Forbidden when the
    permission for it is missing.
    """
    history = History()
    history.frame(_some(await read()))
    while True:
        await clock.sleep(pace.interval_s)
        reading = await read()
        output.show(history.frame(_some(reading) if pace.once else reading))
        if pace.once:
            return


def _some(reading: Reading) -> Reading:
    if any(isinstance(each, GatewaySnapshot) for each in reading):
        return reading
    if refused := next(
        (each.reason for each in reading if isinstance(each, UnreachableGateway) and each.forbidden), None
    ):
        raise Forbidden(HTTPStatus.FORBIDDEN, "Forbidden", refused)
    reasons = [f"{each.gateway}: {each.reason}" for each in reading if isinstance(each, UnreachableGateway)]
    raise Unreachable(f"no gateway answers ({'; '.join(reasons) or 'there is none'})")


@contextlib.contextmanager
def until_interrupted(output: TopOutput) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        output.close()
