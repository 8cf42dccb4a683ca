"""The filter `words`: listed words are replaced, or end the answer. An example of a filter, and a useful one.

A word counts where no letter, digit or underscore stands beside it, in upper or lower case; of several that begin at
one place the longest counts. Text is held back only while it could still become, or go beyond, a listed word, so what
passes depends on the text alone and not on how it was cut. Known hole: scripts without spaces between words.
"""

import re
from collections.abc import Mapping, Sequence

from paceline_core.errors import InvalidInput
from paceline_workers.server.filters.hook import Verdict

FIELDS = frozenset({"words", "replacement", "action"})


class Words:
    """One answer's. `replacement` None: the first listed word ends the text."""

    def __init__(self, words: Sequence[str], replacement: str | None) -> None:
        self._words = sorted(map(_folded, words), key=len, reverse=True)
        self._found = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, self._words))})(?!\w)")
        self._replacement = replacement
        self._before = ""

    def __call__(self, text: str, *, last: bool) -> Verdict:
        """Judge what was held and what is new."""
        seen, offset = _folded(self._before + text), len(self._before)
        out, at, edge = "", offset, self._open(seen, offset, last=last)
        while (match := self._found.search(seen, at)) and match.start() < edge:
            out += text[at - offset : match.start() - offset]
            if self._replacement is None:
                return Verdict(out, end=True)
            out, at = out + self._replacement, match.end()
            edge = self._open(seen, at, last=last)
        out += text[at - offset : edge - offset]
        self._before = (self._before + text)[:edge][-1:]
        return Verdict(out, held=len(seen) - edge)

    def _open(self, seen: str, start: int, *, last: bool) -> int:
        """Where text begins, from `start` on, that may still become a listed word or a longer one; the end if none."""
        longest = len(self._words[0])
        places = range(max(start, len(seen) - longest), len(seen)) if not last else ()
        return next((place for place in places if self._may_begin(seen, place)), len(seen))

    def _may_begin(self, seen: str, place: int) -> bool:
        beside = place > 0 and re.match(r"\w", seen[place - 1])
        return not beside and any(word.startswith(seen[place:]) for word in self._words)


def words(settings: Mapping[str, str], field: str) -> "Factory":
    """A filter for each answer: `words` (separated by commas), `action` (replace or end), `replacement` (***)."""
    if unknown := sorted(settings.keys() - FIELDS):
        raise InvalidInput(f"{field}.{unknown[0]}", f"is unknown; `words` takes {', '.join(sorted(FIELDS))}")
    listed = [word for part in settings.get("words", "").split(",") if (word := part.strip())]
    if not listed:
        raise InvalidInput(f"{field}.words", "must hold at least one word; separate several with commas")
    action = settings.get("action", "replace")
    if action not in ("replace", "end"):
        raise InvalidInput(f"{field}.action", f"must be replace or end, not {action!r}")
    return Factory(listed, settings.get("replacement", "***") if action == "replace" else None)


class Factory:
    """Makes the filter of each answer."""

    def __init__(self, listed: Sequence[str], replacement: str | None) -> None:
        self._listed = listed
        self._replacement = replacement

    def __call__(self) -> Words:
        """One that has seen nothing."""
        return Words(self._listed, self._replacement)


def _folded(text: str) -> str:
    """In lower case, character by character, so that places stay what they are."""
    return "".join(lower if len(lower := character.lower()) == 1 else character for character in text)
