"""Who runs: most urgent class first, then oldest. A beam search sits down and gets up as one, each member on a seat."""

from bisect import insort
from operator import attrgetter

from paceline_workers.engine.memory.kv import KvMemory
from paceline_workers.engine.scheduling.admission import Admission
from paceline_workers.engine.scheduling.batching import Batching
from paceline_workers.engine.scheduling.beams import members
from paceline_workers.engine.scheduling.request import Request, State


class Seats:
    """The running requests and their pages; whoever keeps count of either is told here."""

    def __init__(self, memory: KvMemory, batching: Batching, admission: Admission) -> None:
        self.running: list[Request] = []
        self._memory = memory
        self._batching = batching
        self._admission = admission

    def place(self, request: Request) -> None:
        """Give it pages for all its tokens, which must be there, and a seat."""
        request.shared = self._memory.place(request)
        if request.beams is not None:
            request.beams.seat()
        for member in members(request):
            self._seat(member)

    def fork(self, parent: Request, child: Request) -> bool:
        """Let it run on its parent's pages; False, and nothing is changed, where it cannot, or lacks one of its own."""
        if not self._memory.fork(parent, child):
            return False
        child.shared = child.computed // self._memory.page_tokens
        if not self._memory.grow(child):
            self._memory.release(child)
            child.computed = child.shared = 0
            return False
        self._seat(child)
        return True

    def leave(self, request: Request, state: State) -> None:
        """It does not run any more, and holds nothing."""
        for member in members(request):
            self.running.remove(member)
            self._admission.leaves(member)
            self._memory.release(member)
            member.state = state
            if state is State.WAITING:
                self._batching.seat(-1)
                member.computed = member.pending = 0

    def _seat(self, request: Request) -> None:
        request.state = State.RUNNING
        insort(self.running, request, key=attrgetter("rank"))
        self._batching.seat(1)
        self._admission.seated(request)
