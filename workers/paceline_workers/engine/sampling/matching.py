"""Which tokens a request's grammar lets it produce next, as a mask over the vocabulary.

A grammar is compiled once per tokenizer and copied for each request. A matcher belongs to one request and follows its
output tokens, so it can be dropped at any time and made again: after preemption, and on another worker after a resume.

What ends a request (EOS, stop ids) is allowed only where the grammar may end; where nothing else may follow, the
grammar asks for EOS. So a grammar always ends with an EOS token, even if the request ignores EOS or wants more tokens.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from paceline_core.telemetry import get_logger
from paceline_workers.engine.sampling import grammar
from paceline_workers.engine.scheduling import Request

_log = get_logger(__name__)

Mask = NDArray[np.bool_]
COMPILED = 64
"""Grammars kept compiled, the least recently used is the first to go."""


class Grammars:
    """The grammars of one tokenizer."""

    def __init__(self, tokenizer: str, vocab: int, eos: Sequence[int] = ()) -> None:
        """`tokenizer` is the text of a tokenizer.json. Raises ValueError when its tokens cannot be told in bytes."""
        self._tokenizer = LLTokenizer(tokenizer, n_vocab=vocab, eos_token=list(eos) or None)
        self._ends = frozenset(self._tokenizer.eos_tokens)
        self._compiled: dict[str, LLMatcher] = {}

    @classmethod
    def load(cls, folder: Path, vocab: int, eos: Sequence[int]) -> "Grammars | None":
        """Of a model folder; None where its tokenizer cannot be used, and the model serves all but grammars."""
        path = folder / "tokenizer.json"
        try:
            return cls(path.read_text(encoding="utf-8"), vocab, eos)
        except (OSError, ValueError) as error:
            _log.warning("no grammars", extra={"file": str(path), "reason": str(error)})
            return None

    def matcher(self, request: Request) -> "Matcher":
        """Of a request whose grammar has been checked; one that cannot be compiled allows only the end."""
        text = request.sampling.grammar
        compiled = self._compiled.pop(text, None) or self._compile(text)
        self._compiled[text] = compiled
        if len(self._compiled) > COMPILED:
            del self._compiled[next(iter(self._compiled))]
        return Matcher(request, compiled.deep_copy(), self._ends)

    def _compile(self, text: str) -> LLMatcher:
        try:
            source = grammar.source(text)
        except ValueError:
            source = ""
        return LLMatcher(self._tokenizer, source, log_level=0)

    @property
    def compiled(self) -> int:
        """Grammars kept compiled."""
        return len(self._compiled)


class Matcher:
    """Where one request stands in its grammar."""

    def __init__(self, request: Request, matcher: LLMatcher, ends: frozenset[int]) -> None:
        self._request = request
        self._matcher = matcher
        self._ends = ends
        self._taken = request.prompt_len

    def mask(self, size: int) -> Mask:
        """True for each of `size` token ids that may come next."""
        request = self._request
        self._matcher.consume_tokens(request.tokens[self._taken :])
        self._taken = len(request.tokens)
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        mask = np.unpackbits(packed, count=size, bitorder="little").view(np.bool_)
        if self._matcher.is_accepting():
            mask[[token for token in request.stop_ids if 0 <= token < size]] = True
        return self._not_yet(mask) if request.produced < request.min_tokens else mask

    def ends(self, token: int) -> bool:
        """Whether this token ends the text, whatever else the request says."""
        return token in self._ends

    def _not_yet(self, mask: Mask) -> Mask:
        """Without what would end the request, unless nothing were left."""
        later = mask.copy()
        later[[token for token in self._request.stop_ids | self._ends if 0 <= token < len(mask)]] = False
        return later if later.any() else mask
