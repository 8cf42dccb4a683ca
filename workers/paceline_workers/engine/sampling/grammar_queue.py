"""Requests wait here until their grammar is compiled, before they are queued: no step ever waits for a compiler.

A thread compiles grammars one after the other, in order of request; a request whose grammar is compiled passes at once.
A request whose grammar cannot be compiled leaves with the reason. One whose deadline passes leaves like any other, and
ends in the queue.
"""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from paceline_workers.engine.scheduling import Rejection, Request
from paceline_workers.messages import Submit

MAX_WAITING = 256


class Compiler(Protocol):
    """Compiles in a separate thread."""

    def ready(self, text: str) -> bool:
        """Whether it is already compiled."""
        ...

    def prepare(self, text: str) -> Future[Any]:
        """Begin, unless it has begun; the future fails with OSError or ValueError if it cannot be compiled."""
        ...


@dataclass(frozen=True, slots=True)
class PendingGrammar:
    """A request as it was submitted, and why it cannot be served."""

    request: Request
    submit: Submit
    refusal: Rejection | None = None


class GrammarCompileQueue:
    """All requests that wait for a compiler, in `waiting`, and those that were refused since the last `leave`."""

    def __init__(self, compiler: Compiler | None) -> None:
        self._compiler = compiler
        self.waiting: deque[PendingGrammar] = deque()
        self._refused: list[PendingGrammar] = []

    def enter(self, request: Request, submit: Submit) -> bool:
        """Whether a request with a grammar waits here; if not, it can be queued at once."""
        if self._compiler is None or self._compiler.ready(request.sampling.grammar):
            return False
        if len(self.waiting) >= MAX_WAITING:
            refusal = Rejection(
                f"{MAX_WAITING} requests wait for grammars to be compiled; try again shortly", "queue_full"
            )
            self._refused.append(PendingGrammar(request, submit, refusal))
        else:
            self.waiting.append(PendingGrammar(request, submit))
            self._compiler.prepare(self.waiting[0].request.sampling.grammar)
        return True

    def leave(self, now: float) -> list[PendingGrammar]:
        """Requests that need not wait any longer, in order of arrival."""
        gone, self._refused = self._refused, []
        while self.waiting and self._compiler is not None:
            pending = self.waiting[0]
            future = self._compiler.prepare(pending.request.sampling.grammar)
            if not future.done():
                break
            self.waiting.popleft()
            gone.append(PendingGrammar(pending.request, pending.submit, _refusal(future)))
        deadlines = [(pending, pending.request.deadline) for pending in self.waiting]
        late = [pending for pending, deadline in deadlines if deadline is not None and now >= deadline]
        for pending in late:
            self.waiting.remove(pending)
        return gone + late

    def abort(self, request_id: str) -> None:
        self.waiting = deque(pending for pending in self.waiting if pending.request.id != request_id)


def _refusal(future: Future[Any]) -> Rejection | None:
    """The rejection for an error of the compiler. Only a ValueError is the grammar's own fault."""
    error = future.exception()
    if error is None:
        return None
    return Rejection(
        f"The grammar cannot be followed: {error}.", "refused" if isinstance(error, ValueError) else "error"
    )
