"""How far a gateway is on its way out. The process moves it on, the admin port asks for it and shows it."""

import asyncio
from enum import StrEnum


class DrainStage(StrEnum):
    """The steps of an end, in their order."""

    SERVING = "serving"
    SETTLING = "settling"
    """New work is still taken, while load balancers learn of the end."""
    DRAINING = "draining"
    """New connections are turned away, open streams run on."""
    CUTTING = "cutting"
    """The rest is being ended."""


class DrainState:
    """`asked` is set by whoever wants the end; `until` is the monotonic moment at which a stage ends at the latest."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.stage = DrainStage.SERVING
        self.until: float | None = None

    def ask(self) -> None:
        """The end is wanted, and begins when the process next runs."""
        self.asked.set()
        if self.stage is DrainStage.SERVING:
            self.enter(DrainStage.SETTLING)

    def enter(self, stage: DrainStage, until: float | None = None) -> None:
        """The next stage begins."""
        self.stage, self.until = stage, until
