"""Which tokens a request's grammar allows next, as a mask over the vocabulary.

A grammar is compiled once for each tokenizer, in a thread concurrently with steps (the library releases Python's lock),
and copied for each request. The library holds that lock while it reads a tokenizer (0.6 s for 128,000 tokens), so that
happens before the engine serves. A matcher belongs to one request and follows its output tokens, so it can be dropped
at any time and rebuilt: after preemption, and on another worker after a resumption.

Tokens that end a request (EOS, stop ids) are allowed only where the grammar may end; where nothing else may follow, the
grammar requires EOS. So a grammar always ends with an EOS token, even if the request ignores EOS or needs more tokens.
A grammar that exceeds a limit while it is followed (`outgrown`) can no longer say what fits: its request is refused.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import llguidance.numpy as lln
import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer
from numpy.typing import NDArray

from paceline_workers.engine.sampling import grammar
from paceline_workers.engine.sampling.grammar import NOTHING
from paceline_workers.engine.scheduling import Request
from paceline_workers.model_source import read_text

Mask = NDArray[np.bool_]
COMPILED = 64
"""How many grammars stay compiled; the least recently used is dropped first."""
RENEWAL_S = 0.05
"""CPU seconds: a grammar that took longer to compile is not compiled again within a step."""
_STATES = "too many states"
_STRAY = "doesn't satisfy the grammar"
"""The library's message for a token that does not fit, such as one from another grammar's stream."""


class Grammars:
    """The grammars of one tokenizer, which `load` reads, else the first compilation.

    `tokenizer` is the text of a tokenizer.json, or its path. `pool`: one thread, unless a test passes another.
    `cpu`: CPU seconds of the calling thread.
    """

    def __init__(
        self,
        tokenizer: str | Path,
        vocab: int,
        eos: Sequence[int] = (),
        *,
        pool: Executor | None = None,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._source = tokenizer
        self._vocab = vocab
        self._eos = list(eos) or None
        self._pool = pool or ThreadPoolExecutor(1, "grammars")
        self._tokenizer: LLTokenizer | None = None
        self._cpu = cpu
        self._compiled: dict[str, Future[Compiled]] = {}

    @classmethod
    def load(cls, folder: Path, vocab: int, eos: Sequence[int]) -> "Grammars | None":
        """For a model folder; None if it has no tokenizer.json: the model then serves everything except grammars.

        A tokenizer that cannot be read now is read again for each grammar, whose error then says what is wrong with it.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            return None
        grammars = cls(path, vocab, eos)
        with contextlib.suppress(OSError, ValueError):
            grammars._loaded()
        return grammars

    def prepare(self, text: str) -> Future["Compiled"]:
        """Begin to compile a grammar unless it is compiled; the future fails with OSError or ValueError."""
        compiled = self._compiled.pop(text, None) or self._pool.submit(self._compile, text)
        self._compiled[text] = compiled
        if len(self._compiled) > COMPILED:
            del self._compiled[next(iter(self._compiled))]
        return compiled

    def ready(self, text: str) -> bool:
        compiled = self._compiled.get(text)
        return compiled is not None and compiled.done() and compiled.exception() is None

    def matcher(self, request: Request) -> "Matcher":
        """The matcher of a request; waits for the grammar if it was not prepared. Raises OSError or ValueError."""
        compiled = self.prepare(request.sampling.grammar).result()
        return Matcher(request, compiled, frozenset(self._loaded().eos_tokens))

    def renewed(self, matcher: "Matcher") -> "Matcher":
        """The matcher with its grammar compiled again, without the lexer states that other texts have used up.

        Only here a step waits for a compiler: once for a request whose grammar needs that many states, if it is fast.
        """
        if matcher.compiled.seconds > RENEWAL_S:
            return matcher
        text = matcher.request.sampling.grammar
        future = self._compiled.get(text)
        if future is not None and future.done() and future.exception() is None and future.result() is matcher.compiled:
            del self._compiled[text]
        fresh = self.matcher(matcher.request)
        fresh.renewed = True
        return fresh

    def masks(self, matchers: Sequence["Matcher"], size: int) -> NDArray[np.bool_]:
        """A row for each matcher: True for each of `size` token ids that may come next.

        One call fills all rows, on several threads and without Python's lock.
        """
        packed = lln.allocate_token_bitmask(len(matchers), self._vocab)
        followed = [(matcher.follow(), place) for place, matcher in enumerate(matchers)]
        lln.fill_next_token_bitmask_par(self._threads, followed, packed)
        masks = np.unpackbits(packed.view(np.uint8), axis=1, count=size, bitorder="little").view(np.bool_)
        for matcher, mask in zip(matchers, masks, strict=True):
            matcher.close(mask)
        return masks

    @property
    def compiled(self) -> int:
        return len(self._compiled)

    @cached_property
    def _threads(self) -> LLExecutor:
        return LLExecutor()

    def _compile(self, text: str) -> "Compiled":
        tokenizer, begun = self._loaded(), self._cpu()
        matcher = grammar.matcher(tokenizer, text)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return Compiled(matcher, self._cpu() - begun)

    def _loaded(self) -> LLTokenizer:
        if self._tokenizer is None:
            source = self._source
            text = source if isinstance(source, str) else read_text(source)
            self._tokenizer = LLTokenizer(text, n_vocab=self._vocab, eos_token=self._eos)
        return self._tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A grammar in its initial state, and the seconds of CPU time that compiling it took."""

    matcher: LLMatcher
    seconds: float


class Matcher:
    """One request's position in its grammar."""

    def __init__(self, request: Request, compiled: Compiled, ends: frozenset[int]) -> None:
        self.request = request
        self.compiled = compiled
        self.renewed = False
        self._matcher = compiled.matcher.deep_copy()
        self._ends = ends
        self._taken = request.prompt_len

    def follow(self) -> LLMatcher:
        """Process the tokens since the last call; returns the state at the next position."""
        tokens = self.request.tokens
        self._matcher.consume_tokens(tokens[self._taken :])
        self._taken = len(tokens)
        return self._matcher

    def close(self, mask: Mask) -> None:
        """Allow or forbid in the grammar's mask the tokens that end the request."""
        request = self.request
        if request.stop_ids and self._matcher.is_accepting():
            mask[[token for token in request.stop_ids if 0 <= token < len(mask)]] = True
        if request.produced < request.min_tokens:
            mask[:] = self._not_yet(mask)

    @property
    def exhausted(self) -> bool:
        """The lexer's states are used up, perhaps by other requests: one attempt without theirs is worthwhile."""
        return not self.renewed and _STATES in self.outgrown()

    def outgrown(self) -> str:
        """The limit that the grammar exceeded at the last mask, in words for the client; "" if none."""
        reason = self._matcher.get_error().partition("\n")[0]
        known = reason in ("", NOTHING) or _STRAY in reason
        return "" if known else reason

    def ends(self, token: int) -> bool:
        """Whether this token ends the text, regardless of the request's own settings."""
        return token in self._ends

    def _not_yet(self, mask: Mask) -> Mask:
        """Without tokens that would end the request, unless no others are left."""
        later = mask.copy()
        later[[token for token in self.request.stop_ids | self._ends if 0 <= token < len(mask)]] = False
        return later if later.any() else mask
