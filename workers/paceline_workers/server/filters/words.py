"""The filter `words`: replaces listed words, or ends the answer at one. It also serves as an example of a filter.

A word matches, in any case, if no letter, digit or underscore is next to it; of several that begin at one position the
longest wins. Text is held back only while it could still become a listed word or a longer one, so the output depends on
the text alone and not on how it was split. Known hole: scripts without spaces between words.
"""

import re
from collections.abc import Mapping, Sequence

from paceline_core.errors import InvalidInput
from paceline_core.objects.service_runtime import WORDS_ACTIONS, WORDS_SETTINGS, listed_words
from paceline_workers.server.filters.runner import FilterResult

_WORDLIKE = re.compile(r"\w")


class WordList:
    """The prepared list of words; calling it makes one answer's filter.

    `replacement` None: the first listed word ends the text.
    """

    def __init__(self, listed: Sequence[str], replacement: str | None) -> None:
        words = sorted(map(_folded, listed), key=len, reverse=True)
        self.longest = len(words[0])
        self.begins = frozenset(word[:size] for word in words for size in range(1, len(word) + 1))
        self.found = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")
        self.replacement = replacement

    def __call__(self) -> "Words":
        """A new filter that has seen no text."""
        return Words(self)


class Words:
    """One answer's filter."""

    def __init__(self, listed: WordList) -> None:
        self._listed = listed
        self._before = ""

    def __call__(self, text: str, *, last: bool) -> FilterResult:
        """Judge the held and the new text."""
        listed, seen, offset = self._listed, _folded(self._before + text), len(self._before)
        out, at, edge = "", offset, self._open(seen, offset, last=last)
        while (match := listed.found.search(seen, at)) and match.start() < edge:
            out += text[at - offset : match.start() - offset]
            if listed.replacement is None:
                return FilterResult(out, end=True)
            out, at = out + listed.replacement, match.end()
            edge = self._open(seen, at, last=last)
        out += text[at - offset : edge - offset]
        self._before = (self._before + text)[:edge][-1:]
        return FilterResult(out, held=len(seen) - edge)

    def _open(self, seen: str, start: int, *, last: bool) -> int:
        """Where, from `start` on, text begins that may still become a listed word or a longer one; else the end."""
        if last:
            return len(seen)
        places = range(max(start, len(seen) - self._listed.longest), len(seen))
        return next((place for place in places if self._may_begin(seen, place)), len(seen))

    def _may_begin(self, seen: str, place: int) -> bool:
        return seen[place:] in self._listed.begins and not (place and _WORDLIKE.match(seen[place - 1]))


def words(settings: Mapping[str, str], field: str) -> WordList:
    """A word list from `words` (separated by commas), `action` (replace or end) and `replacement` (***)."""
    if unknown := sorted(settings.keys() - set(WORDS_SETTINGS)):
        raise InvalidInput(f"{field}.{unknown[0]}", f"is unknown; `words` takes {', '.join(WORDS_SETTINGS)}")
    listed = listed_words(settings)
    if not listed:
        raise InvalidInput(f"{field}.words", "must hold at least one word; separate several with commas")
    action = settings.get("action", "replace")
    if action not in WORDS_ACTIONS:
        raise InvalidInput(f"{field}.action", f"must be {' or '.join(WORDS_ACTIONS)}, not {action!r}")
    return WordList(listed, settings.get("replacement", "***") if action == "replace" else None)


def _folded(text: str) -> str:
    """In lower case, character by character, so that positions stay the same."""
    return "".join(lower if len(lower := character.lower()) == 1 else character for character in text)
