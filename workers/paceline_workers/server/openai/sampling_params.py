"""How a request wants its tokens chosen: its fields, the model's advice where it has none, and what must not be.

One answer of a request: what the engine gets for it, and how its tokens become text and events.

`best_of`: which of several candidates are told. Pure.

`use_beam_search`: one search of the engine for all answers; what a draw is made by means nothing to it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf

from msgspec import structs

from paceline_workers.messages import Sampling, Started, Submit
from paceline_workers.server.openai.requests import GenerateRequest
from paceline_workers.server.openai.response_writer import ResponseShape
from paceline_workers.server.openai.validation import invalid
from paceline_workers.server.text.output import Piece, TextOutput
from paceline_workers.server.text.tokenizer import Tokenizer

Check = Callable[[str, str], Awaitable[str]]
"""Why a grammar cannot be followed, "" if it can; a tenant's. Raises RequestError."""


def sampling(request: GenerateRequest, started: Started, seed: int, logprobs: int, tokenizer: Tokenizer) -> Sampling:
    """What the engine is told, but for the grammar. Raises RequestError."""
    vocabulary = tokenizer.size
    if request.use_beam_search:
        return Sampling(temperature=0.0, logprobs=logprobs)
    if any(token >= vocabulary for token in request.logit_bias):
        raise invalid(f"`logit_bias` names a token id that is not in 0 to {vocabulary - 1}.", "logit_bias")
    if not all(0 <= token < vocabulary for token in request.allowed_token_ids or ()):
        words = f"`allowed_token_ids` names a token id that is not in 0 to {vocabulary - 1}."
        raise invalid(words, "allowed_token_ids")
    return Sampling(
        temperature=_value(request, started, "temperature"),
        top_p=_value(request, started, "top_p"),
        top_k=max(int(_value(request, started, "top_k")), 0),
        seed=seed,
        logprobs=logprobs,
        min_p=_value(request, started, "min_p"),
        repetition=_value(request, started, "repetition_penalty"),
        presence=request.presence_penalty,
        frequency=request.frequency_penalty,
        bias=request.logit_bias,
        allowed=request.allowed_token_ids or [],
        bad_words=_bad_words(request.bad_words, tokenizer),
    )


def _value(request: GenerateRequest, started: Started, name: str) -> float:
    """The request's own, else what the model's makers advise, else what changes nothing."""
    own: float = getattr(request, name)
    return own if name in request.model_fields_set else started.defaults.get(name, own)


def _bad_words(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Each as the tokens of a text that begins with it, and of one that goes on with it behind a space.

    vLLM leaves the second out where it has more or fewer tokens, and so lets many words pass. Raises RequestError.
    """
    found: list[list[int]] = []
    for word in words:
        begun = tokenizer.encode_now(word.lstrip(), special=False)
        if not begun:
            raise invalid(f"`bad_words` holds {word!r}, which has no tokens.", "bad_words")
        behind = tokenizer.encode_now(" " + word.lstrip(), special=False)
        found.append(begun)
        if behind[-len(begun) :] != begun:
            found.append(behind)
    return found


async def followed(
    request: GenerateRequest,
    started: Started,
    check: Check,
    tenant: str,
    alternative: Callable[[str], str] | None = None,
) -> str:
    """The grammar that its text must follow, "" for none. `alternative` adds what may come in the place of an answer.

    Raises RequestError.
    """
    text, field = ("", "") if request.use_beam_search else request.requested
    if text and not started.grammars:
        raise invalid(f"This worker cannot follow a grammar, which `{field}` needs; leave it out.", field)
    try:
        text = alternative(text) if alternative and text else text
    except ValueError as error:
        raise invalid(f"`{field}` cannot be followed: {error}.", field) from None
    if reason := await check(text, tenant) if text else "":
        raise invalid(f"`{field}` cannot be followed: {reason}.", field)
    return text


@dataclass(frozen=True, slots=True)
class Choice:
    """`finish`: it had ended in an earlier life of its stream, and why; `told`: the client knows.

    `opened`: the client has the events that come before its text.
    """

    submit: Submit
    output: TextOutput
    shape: ResponseShape
    finish: str = ""
    sent: bool = False
    opened: bool = False


def best(candidates: Sequence[Sequence[Piece]], count: int) -> list[Sequence[Piece]]:
    """The `count` candidates with the highest mean logprob of their tokens, best first, as OpenAI says; ties in order.

    The token that stops is no part of a text, so it does not count; a candidate of nothing else is the worst.
    """
    return sorted(candidates, key=_mean, reverse=True)[:count]


def _mean(candidate: Sequence[Piece]) -> float:
    values = [value for piece in candidate for value, _ in piece.logprobs]
    return sum(values) / len(values) if values else -inf


def searched(submit: Submit, request: GenerateRequest, started: Started) -> list[Submit]:
    """The search once for each answer, under the answer's id; the engine is sent the first. Raises RequestError."""
    if request.candidates > started.slots:
        field = "best_of" if request.best_of else "n"
        words = f"`{field}` asks for {request.candidates} beams; this worker computes at most {started.slots} at once."
        raise invalid(words, field)
    ids = [f"{submit.id}-{choice}" for choice in range(request.n)] if request.n > 1 else [submit.id]
    search = structs.replace(
        submit,
        beams=request.candidates,
        length_penalty=request.length_penalty,
        early_stopping=request.early_stopping,
        answers=ids,
    )
    return [structs.replace(search, id=answer, choice=choice) for choice, answer in enumerate(ids)]
