"""What requests would take: tokens to compute that are not cached, and the predicted seconds for them."""

from math import inf

from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import cost, deadlines
from paceline_workers.engine.scheduling.fair_share import ClassPolicy
from paceline_workers.engine.scheduling.request import Request


class CostEstimator:
    """By the step-time `model`, which is usually off by a share of `margin`; both are told as they are learnt."""

    def __init__(self, memory: KVCacheManager, policy: ClassPolicy) -> None:
        self.model: StepTime = cost.UNKNOWN
        self.margin = 0.0
        self._memory = memory
        self._policy = policy

    def renew(self, request: Request) -> None:
        """Look a request up that does not run."""
        request.uncached = self._memory.uncached(request)
        request.service = self.service(request, request.uncached)

    def service(self, request: Request, tokens: int) -> float:
        """What counts as its service if so many tokens are to be computed."""
        return self._policy.service(cost.service(self.model, tokens, request.wanted, self._memory.sight.seen(inf)))

    def hopeless(self, request: Request, ahead: int) -> str:
        """Why it is not queued behind so many tokens; "" if it is."""
        return deadlines.cannot_meet_deadline(self.model, request, ahead, self._memory.sight)

    def latest_start(self, request: Request) -> float:
        """Until when it may stay as it is; it has a deadline."""
        return deadlines.latest_start(self.model, request, self._memory.uncached(request), self._memory.sight)
