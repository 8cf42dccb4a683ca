"""Which earlier tokens a token sees: all, or the last ones (a window) and the first ones (sinks). Pure.

Every token keeps its position in the text, and its key is rotated once by it. So the content of a page depends only on
the tokens up to its end, and the result equals full attention under a mask, which a reference can compute. StreamingLLM
(Xiao et al., arXiv 2309.17453), the source of sinks, counts positions within the cache instead. That works beyond the
model's context; but then a page depends on how its prompt was split into steps, no two requests could share it, and no
recompute would restore it. So here the model's context still bounds a text's length.

A block table is compact: the pages of the sinks (the `head`), then those from the first page that is still visible on.
Invariant: pages between them were dropped for good; no later token sees them.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AttentionWindow:
    """`window`: visible tokens, including the current one, None: all. `sinks`: first tokens that are always visible."""

    window: int | None = None
    sinks: int = 0

    def head(self, size: int) -> int:
        """The number of pages of `size` tokens that hold a sink."""
        return 0 if self.window is None else -(-self.sinks // size)

    def first(self, position: int, size: int) -> int:
        """The first page after the head that the token at `position`, or any later one, sees."""
        if self.window is None:
            return 0
        return max((position + 1 - self.window) // size, self.head(size))

    def dropped(self, position: int, size: int) -> int:
        """The number of pages that neither the token at `position` nor any later one sees."""
        return self.first(position, size) - self.head(size)

    def max_pages(self, size: int, stride: int) -> int | None:
        """The most pages of a request if no step computes beyond `stride` pages; None: pages for all its tokens.

        The head, the window at its worst offset, and two strides: pages are dropped when a step is committed, and the
        next one may already be planned by then.
        """
        return None if self.window is None else self.head(size) + -(-(self.window - 1) // size) + 2 * stride

    def min_pages(self, size: int) -> int | None:
        """Pages with which a request of any length can progress, page by page."""
        return self.max_pages(size, 1)

    def visible(self, tokens: float) -> float:
        """How many of `tokens` tokens the last one sees, sinks included."""
        return tokens if self.window is None else min(tokens, self.window + self.sinks)

    def hit(self, known: Iterable[bool], size: int) -> int:
        """The longest prefix, in pages, of which every page that the token after it sees is known."""
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
        """Limited to `window`; the sinks have no effect for tokens that see less already."""
        return self if self.window is not None and self.window <= window else AttentionWindow(window, sinks)


ALL = AttentionWindow()
"""Every token before it."""


def widest(attention_windows: Iterable[AttentionWindow]) -> AttentionWindow:
    """The window that covers all layers of a model: a single window with its sinks and narrower ones without sinks."""
    listed = list(attention_windows)
    return (
        ALL
        if any(attention_window.window is None for attention_window in listed)
        else max(listed, key=lambda attention_window: attention_window.window or 0)
    )
