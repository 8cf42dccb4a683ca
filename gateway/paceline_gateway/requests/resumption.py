"""How often and how long a stream that lost its worker may look for another one, and what its earlier workers spent.

Only losses that are held against a request count towards RESUMES: one whose connections break again and again must end,
one that is moved about by scale-downs need not. Deaths of workers are counted elsewhere (`suspicion`). No budget beside
that: each stream was accepted once already.
"""

from paceline_core.registry.enums import CutReason, ResumeReason
from paceline_gateway.requests.nouns import WorkerPhases

RESUMES = 3


class Resumption:
    """One stream's losses. `deadline` and `reason` are those of the loss that it has not got over yet."""

    __slots__ = ("_heard", "_losses", "count", "deadline", "decode", "prefill", "reason")

    def __init__(self) -> None:
        self._losses = 0
        self._heard: float | None = None
        self.count = 0
        self.deadline = 0.0
        self.reason = ResumeReason.CONNECTION
        self.prefill = 0.0
        self.decode = 0.0

    @property
    def earlier(self) -> WorkerPhases:
        """What the workers spent that were lost."""
        return WorkerPhases(prefill=self.prefill, decode=self.decode)

    def lost(self, reason: ResumeReason, heard: float, deadline: float) -> None:
        """A worker is lost; its last tokens came when it was `heard`."""
        if self._heard is None:
            self._heard, self.reason, self.deadline = heard, reason, deadline

    def refusal(self, *, harmless: bool, now: float) -> CutReason | None:
        """Count the loss; why the stream must end, if it must."""
        self._losses += not harmless
        if self._losses > RESUMES:
            return CutReason.ATTEMPTS
        return CutReason.DEADLINE if now >= self.deadline else None

    def began(self, now: float) -> float:
        """It goes on; the gap in seconds."""
        heard, self._heard = self._heard, None
        self.count += 1
        return now - (now if heard is None else heard)

    def spent(self, sent: float, begun: float, lost: float) -> None:
        """A worker that is lost now had its part in the answer."""
        self.prefill += begun - sent
        self.decode += lost - begun
