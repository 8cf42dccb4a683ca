"""Why a service's pods do not become ready: queries the API server only when it matters, and rarely.

Pods are not cached: there are many, and they matter only while a service is not ready. Invariant: at most one look at a
service each `EVERY_S` and `RATE` looks a second over all services, and none in a bulk start, so that a thousand
services that start together cost next to nothing; after a refusal, the next look follows after `REFUSED_S`. Only reads.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from paceline_core.clock import Clock
from paceline_core.errors import Forbidden, PacelineError
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.objects.naming import LABEL_SERVICE
from paceline_core.telemetry import get_logger
from paceline_operator.controllers.conditions import fault_of
from paceline_operator.plans.observe import pod_problem
from paceline_operator.plans.types import PodProblem
from paceline_operator.write.executor import KubeApi
from paceline_operator.write.throttle import TokenBucket

INITIAL_DELAY_S = 5.0
EVERY_S = 15.0
REFUSED_S = 10.0
RATE = 2.0
_log = get_logger(__name__)


@dataclass(slots=True)
class _Watched:
    """Since when a service is not ready, when to look again, and the last result."""

    since: float
    again: float = 0.0
    problems: tuple[PodProblem, ...] = field(default=())


class PodDiagnostics:
    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._bucket = TokenBucket(RATE, 2 * RATE, 2 * RATE, clock.monotonic())
        self._watched: dict[ObjectKey, _Watched] = {}

    def forget(self, key: ObjectKey) -> None:
        self._watched.pop(key, None)

    def again_s(self, key: ObjectKey) -> float | None:
        watched = self._watched.get(key)
        if watched is None:
            return None
        now = self._clock.monotonic()
        if now - watched.since < INITIAL_DELAY_S:
            return INITIAL_DELAY_S - (now - watched.since)
        return min(EVERY_S, watched.again - now) if watched.again > now else EVERY_S

    async def problems(self, key: ObjectKey, *, bulk: bool = False) -> tuple[PodProblem, ...]:
        """What keeps an unready service's pods from running, as last seen; () at first. A bulk start reads nothing."""
        now = self._clock.monotonic()
        watched = self._watched.setdefault(key, _Watched(now))
        early = now - watched.since < INITIAL_DELAY_S
        fresh = now < watched.again
        if not (early or fresh or bulk) and self._bucket.take(now) == 0.0:
            watched.again = now + EVERY_S
            watched.problems = await self._read_pods(key, watched)
        return watched.problems

    async def _read_pods(self, key: ObjectKey, watched: _Watched) -> tuple[PodProblem, ...]:
        try:
            pods = await self._api.list(RESOURCES["Pod"], key.namespace, selector=f"{LABEL_SERVICE}={key.name}")
        except Forbidden as error:
            fault = fault_of(error, f"list the pods of {key}")
            watched.again -= EVERY_S - REFUSED_S
            return (PodProblem(fault.reason, fault.message),)
        except PacelineError as error:
            _log.info("pods could not be read", extra={"service": str(key), "reason": str(error)})
            return watched.problems
        return aggregate(problem for pod in pods if (problem := pod_problem(pod)) is not None)


def aggregate(problems: Iterable[PodProblem]) -> tuple[PodProblem, ...]:
    """Each problem once, with the number of pods that have it; the most frequent first."""
    counts = Counter(problems)
    return tuple(replace(problem, pods=count) for problem, count in counts.most_common())
