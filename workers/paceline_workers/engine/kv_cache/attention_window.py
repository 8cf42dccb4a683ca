"""What a token sees of those before it: all, or the last ones (a window) and the first ones (sinks). Pure.

Every token keeps its own position in the text: keys are rotated by it once, so what a page holds depends on the tokens
up to its end and on nothing else, and the whole equals full attention under a mask, which a reference can compute.
StreamingLLM (Xiao et al., arXiv 2309.17453), which sinks come from, counts positions within the cache instead. That
goes on beyond the model's context; but then a page depends on how its prompt was cut into steps, no two requests could
share it, and no recompute would bring it back. So here the model's context still bounds a text's length.

A block table is compact: the pages of the sinks, the `head`, then those from the first page that is still visible on.
Invariant: pages between them were dropped for ever; a later token never sees them again.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AttentionWindow:
    """`window`: tokens visible, the one that looks included, None: all. `sinks`: first tokens always visible."""

    window: int | None = None
    sinks: int = 0

    def head(self, size: int) -> int:
        """Pages of `size` tokens that hold a sink."""
        return 0 if self.window is None else -(-self.sinks // size)

    def first(self, position: int, size: int) -> int:
        """The first page behind the head that the token at `position`, or any after it, sees."""
        if self.window is None:
            return 0
        return max((position + 1 - self.window) // size, self.head(size))

    def dropped(self, position: int, size: int) -> int:
        """Pages that neither the token at `position` nor any after it sees."""
        return self.first(position, size) - self.head(size)

    def max_pages(self, size: int, stride: int) -> int | None:
        """Pages that a request holds at most if no step computes beyond `stride` pages; None: pages for all its tokens.

        The head, the window at its worst offset, and two strides: pages are dropped when a step is committed, and the
        next one may have been planned by then.
        """
        return None if self.window is None else self.head(size) + -(-(self.window - 1) // size) + 2 * stride

    def min_pages(self, size: int) -> int | None:
        """Pages with which a request of any length gets on, page by page."""
        return self.max_pages(size, 1)

    def visible(self, tokens: float) -> float:
        """How many of `tokens` tokens the last one sees, sinks included."""
        return tokens if self.window is None else min(tokens, self.window + self.sinks)

    def hit(self, known: Iterable[bool], size: int) -> int:
        """The longest prefix, in pages, of which all is known that the token behind it sees."""
        head, begin, best = self.head(size), 0, 0
        for end, found in enumerate(known, 1):
            if not found:
                if self.window is None or end <= head:
                    break
                begin = end
            elif begin <= self.first(end * size, size):
                best = end
        return best

    def narrowed(self, window: int, sinks: int) -> "AttentionWindow":
        """No further back than `window`; the sinks show nothing to tokens that see less already."""
        return self if self.window is not None and self.window <= window else AttentionWindow(window, sinks)


ALL = AttentionWindow()
"""Every token before it."""


def widest(attention_windows: Iterable[AttentionWindow]) -> AttentionWindow:
    """What the layers of a model need together; with one window and its sinks, beside narrower windows without any."""
    listed = list(attention_windows)
    return (
        ALL
        if any(attention_window.window is None for attention_window in listed)
        else max(listed, key=lambda attention_window: attention_window.window or 0)
    )
