"""Output filters: they judge a growing text; the runner decides what happens when one fails.

A filter sees all text that it has not released yet, and decides what to release (changed or not), how much of the end
to hold until more arrives, and whether the answer ends there. So it sees a word whole even if a token or a chunk splits
it. Held text is bounded: a filter that holds more than HELD_LIMIT has failed, like one that raises. After a failure,
`open` passes all further text, `closed` ends the answer with an error. Filters block the event loop: they must be fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from paceline_core.errors import Code, RequestError
from paceline_core.telemetry import get_logger

_log = get_logger(__name__)
HELD_LIMIT = 1024
Failure = Literal["open", "closed"]


@dataclass(frozen=True, slots=True)
class FilterResult:
    """`out` is released; the filter sees the last `held` characters again; `end`: the answer ends with `out`."""

    out: str
    held: int = 0
    end: bool = False


class OutputFilter(Protocol):
    """One filter of one answer; it may keep state."""

    def __call__(self, text: str, *, last: bool) -> FilterResult:
        """Judge the held and the new text; `last`: no more text follows, so none may be held."""
        ...


class FilterRunner:
    """A filter with its name and its failure mode."""

    def __init__(self, name: str, failure: Failure, judge: OutputFilter) -> None:
        self._name = name
        self._failure = failure
        self._judge = judge
        self._held = ""
        self._failed = False
        self.ended = False

    def feed(self, text: str, *, last: bool) -> str:
        """The part of new text that passes. Raises RequestError if the filter fails and is closed."""
        if self.ended or not (text or last):
            return ""
        if self._failed:
            return text
        seen = self._held + text
        try:
            verdict = self._judge(seen, last=last)
            held, most = verdict.held, 0 if last else min(len(seen), HELD_LIMIT)
            if not 0 <= held <= most:
                words = f"{held} of {len(seen)} characters are held; at most {HELD_LIMIT} may be, and none at last"
                raise ValueError(words)  # noqa: TRY301 - counts as a failure, like a filter that raises
        except Exception as error:  # noqa: BLE001 - whatever a filter raises, its configuration decides what follows
            return self._give_up(seen, error)
        self._held = seen[len(seen) - verdict.held :]
        self.ended = verdict.end
        return verdict.out

    def _give_up(self, seen: str, error: Exception) -> str:
        _log.error("an output filter failed", exc_info=error, extra={"filter": self._name, "failure": self._failure})
        if self._failure == "closed":
            words = f"The output filter `{self._name}` failed, and what it cannot check is not told."
            raise RequestError(Code.INTERNAL_ERROR, words)
        self._failed, self._held = True, ""
        return seen


class Filters:
    """The filters of one answer, each fed by the one before it; `ended`: one of them has ended the text."""

    def __init__(self, guards: Sequence[FilterRunner] = ()) -> None:
        self._guards = guards
        self.ended = False

    def feed(self, text: str, *, last: bool = False) -> str:
        """The part of new text that the client may have. Raises RequestError as `FilterRunner.feed`."""
        if self.ended:
            return ""
        for guard in self._guards:
            text = guard.feed(text, last=last)
            last = last or guard.ended
            self.ended = self.ended or guard.ended
        return text
