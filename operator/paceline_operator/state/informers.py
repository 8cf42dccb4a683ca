"""Where the world's news come from: watches of our own on children, and lists of our own of the four kinds.

Both are complete once before anybody plans, so that a restart acts on the whole picture. kopf watches the four kinds
from then on; whenever it lists anew, and at every resync, a list of our own says what is gone.
"""

import asyncio

from paceline_core.clock import Clock
from paceline_core.errors import Forbidden, PacelineError
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.client.watch import WatchLiveness, WatchOptions, watch_all
from paceline_core.objects.metadata import ACCELERATOR_PROFILE
from paceline_core.telemetry import FaultLog, get_logger
from paceline_operator.plans.labels import MANAGED_BY
from paceline_operator.state.child_cache import trimmed
from paceline_operator.state.cluster_state import ClusterState
from paceline_operator.state.object_cache import KINDS, seen
from paceline_operator.write.executor import PlanExecutor

SELECTOR = "=".join(MANAGED_BY)
SETTLE_S = 1.0
RETRY_S = (1.0, 2.0, 5.0)
_FAILED = "the list of {} fails"
_log = get_logger(__name__)


class Informers:
    """`children` and `objects` run until cancelled; `audit` asks for a list of a kind."""

    def __init__(
        self, api: KubeClient, world: ClusterState, hands: PlanExecutor, clock: Clock, namespaces: tuple[str, ...]
    ) -> None:
        self._api = api
        self._world = world
        self._hands = hands
        self._clock = clock
        self._namespaces = namespaces
        self._due: set[str] = set(KINDS)
        self._asked = asyncio.Event()
        self._asked.set()
        self._complaints = FaultLog(_log)
        self.unseen: frozenset[str] = frozenset()

    def audit(self, kind: str) -> None:
        """Let a kind be listed soon: somebody listed it who does not tell what is gone."""
        if kind not in self.unseen:
            self._due.add(kind)
            self._asked.set()

    async def children(self, kind: str, namespaces: tuple[str, ...], pulse: WatchLiveness) -> None:
        """Follow the children of a kind."""
        async for event in watch_all(self._api, WatchOptions(RESOURCES[kind], namespaces, SELECTOR, trimmed), pulse):
            for key in self._world.on_child(kind, event):
                await self._look(kind, key)

    async def first(self) -> None:
        """List the four kinds, however long it takes."""
        failures = 0
        while not await self._lists():
            await self._clock.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
            failures += 1

    async def audits(self) -> None:
        """Carry out what `audit` asked for; what fails is tried again, at the pace of `first`."""
        failures = 0
        while True:
            await self._asked.wait()
            await self._clock.sleep(SETTLE_S if failures == 0 else RETRY_S[min(failures, len(RETRY_S)) - 1])
            failures = 0 if await self._lists() else failures + 1

    async def _lists(self) -> bool:
        self._asked.clear()
        for kind in sorted(self._due):
            try:
                await self._list(kind)
            except PacelineError as error:
                self._complaints.begin(_FAILED.format(kind), str(error))
                self._asked.set()
                return False
            self._complaints.end(_FAILED.format(kind))
            self._due.discard(kind)
        return True

    async def _list(self, kind: str) -> None:
        resource = RESOURCES[kind]
        try:
            for namespace in (self._namespaces if resource.namespaced else ()) or ("",):
                found = await self._api.snapshot(resource, namespace, trim=seen)
                self._world.on_objects(kind, found.items, int(found.version), namespace)
        except Forbidden as error:
            if kind != ACCELERATOR_PROFILE or not self._namespaces:
                raise
            _log.info("AcceleratorProfiles may not be read; the built-in ones are used", extra={"reason": str(error)})
            self.unseen = self._world.unreadable = frozenset((ACCELERATOR_PROFILE,))
        self._world.listed(kind)

    async def _look(self, kind: str, key: ObjectKey) -> None:
        try:
            self._world.wake(await self._hands.look(kind, key))
        except PacelineError as error:
            _log.warning("a doubtful child could not be asked for", extra={"kind": kind, "reason": str(error)})
