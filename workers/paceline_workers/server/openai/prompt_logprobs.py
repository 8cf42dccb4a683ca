"""Log-probabilities of a prompt's tokens: `prompt_logprobs` in vLLM's form, and `echo` with `logprobs` in OpenAI's.

The first token follows no other, so it has none. A prompt's candidates arrive together, are kept until the answer ends
and are then serialized at once, in a thread if there are many (`openai.jobs.written`). CANDIDATES bounds the candidates
of all prompts of a request, to some 32 MB.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from paceline_workers.messages import PromptLogprob
from paceline_workers.server.openai.response_writer import (
    LOWEST,
    PromptCandidate,
    ResponseShape,
    ShapeWrapper,
    TokenBytes,
)
from paceline_workers.server.openai.validation import invalid
from paceline_workers.server.text.output import Logprob, Piece

MOST = 20
"""The most candidates of a token, as in vLLM."""
CANDIDATES = 1 << 18


def check(field: str, count: int, tokens: int) -> None:
    """Refuse more candidates than the limit, for prompts of `tokens` tokens in total. Raises RequestError."""
    if tokens * (count + 1) > CANDIDATES:
        words = f"`{field}` asks for {tokens * (count + 1)} log-probabilities of {tokens} tokens of prompts; "
        raise invalid(f"{words}at most {CANDIDATES} of a request are told.", field)


@dataclass(frozen=True, slots=True)
class PromptScores:
    """A prompt and the scores of its tokens, which grow until the first output token arrives.

    `top`: how many of each token's candidates to report.
    """

    ids: Sequence[int]
    scores: Sequence[PromptLogprob]
    top: int
    token_bytes: TokenBytes
    _names: dict[int, str] = field(default_factory=dict)

    def name(self, token: int) -> str:
        """A token's text, cached: a prompt has many tokens but few distinct ones."""
        if token not in self._names:
            self._names[token] = self.token_bytes(token).decode(errors="replace")
        return self._names[token]

    def entries(self) -> Iterator[tuple[int, Logprob | None]]:
        """Each token with its entry in `logprobs`."""
        yield self.ids[0], None
        for token, (own, _, best) in zip(self.ids[1:], self.scores, strict=True):
            yield token, (own, best[: self.top])

    def by_id(self) -> list[dict[str, PromptCandidate] | None]:
        """Candidates by token id in vLLM's order: the prompt's own token first, then the likeliest ones."""
        by_id: list[dict[str, PromptCandidate] | None] = [None]
        for token, (own, rank, best) in zip(self.ids[1:], self.scores, strict=True):
            places = {token: (own, rank)}
            for place, (other, value) in enumerate(best[: self.top], 1):
                places.setdefault(other, (value, place))
            by_id.append(
                {
                    str(other): PromptCandidate(max(value, LOWEST), place, self.name(other))
                    for other, (value, place) in places.items()
                }
            )
        return by_id


class WithPromptLogprobs(ShapeWrapper):
    """A completion's shape that adds `prompt_logprobs` to whole choices; streams do not have them."""

    def __init__(self, shape: ResponseShape, prompt: PromptScores) -> None:
        super().__init__(shape)
        self._prompt = prompt

    def whole(self, pieces: Sequence[Piece]) -> Any:
        return structs.replace(self.shape.whole(pieces), prompt_logprobs=self._prompt.by_id())
