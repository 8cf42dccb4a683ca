"""Time that moves only when somebody waits for it, each wait ending a little late."""


class ManualTimer:
    """`late` is added to every wait, as a real machine does."""

    def __init__(self, late: float = 0.0) -> None:
        self.time = 100.0
        self.late = late

    def now(self) -> float:
        return self.time

    def until(self, target: float) -> None:
        if target > self.time:
            self.time = target + self.late

    def pause(self, seconds: float) -> None:
        self.time += seconds
