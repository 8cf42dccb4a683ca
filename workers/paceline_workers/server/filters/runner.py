"""Output filters: who judges a growing text, and what becomes of it when the judge fails.

A filter sees all text that it has not let go yet, and says what goes out (changed or not), how much of its end waits
for more, and whether the answer ends there. So a word that is cut by a token or a chunk is judged whole. What waits is
bounded: a filter that holds more than HELD_LIMIT has failed, like one that raises. Then `open` lets all text pass from
there on, and `closed` ends the answer with an error. A filter runs on the server's loop, so it must be quick.
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
    """`out` goes on; the last `held` characters of what was seen are seen again; `end`: nothing follows `out`."""

    out: str
    held: int = 0
    end: bool = False


class OutputFilter(Protocol):
    """One filter of one answer; it may keep state."""

    def __call__(self, text: str, *, last: bool) -> FilterResult:
        """Judge what was held and what is new; `last`: nothing follows, so nothing may be held."""
        ...


class FilterRunner:
    """A filter with its name and what its failing means."""

    def __init__(self, name: str, failure: Failure, judge: OutputFilter) -> None:
        self._name = name
        self._failure = failure
        self._judge = judge
        self._held = ""
        self._failed = False
        self.ended = False

    def feed(self, text: str, *, last: bool) -> str:
        """What passes of new text. Raises RequestError when the filter fails and is closed."""
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
                raise ValueError(words)  # noqa: TRY301 - it has failed, like one that raises
        except Exception as error:  # noqa: BLE001 - whatever a filter raises, its configuration says what follows
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
        """What a client may have of new text. Raises RequestError as `FilterRunner.feed`."""
        if self.ended:
            return ""
        for guard in self._guards:
            text = guard.feed(text, last=last)
            last = last or guard.ended
            self.ended = self.ended or guard.ended
        return text
