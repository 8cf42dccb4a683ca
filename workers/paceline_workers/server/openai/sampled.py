"""How a request wants its tokens chosen: its fields, the model's advice where it has none, and what must not be."""

from paceline_workers.messages import Sampling, Started
from paceline_workers.server.openai.body import invalid
from paceline_workers.server.openai.requests import GenerateRequest
from paceline_workers.server.openai.structured import checked


def sampling(request: GenerateRequest, started: Started, seed: int, logprobs: int, vocabulary: int) -> Sampling:
    """What the engine is told. Raises RequestError."""
    if request.use_beam_search:
        return Sampling(temperature=0.0, logprobs=logprobs)
    if any(token >= vocabulary for token in request.logit_bias):
        raise invalid(f"`logit_bias` names a token id that is not in 0 to {vocabulary - 1}.", "logit_bias")
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
        grammar=_grammar(request, started),
    )


def _value(request: GenerateRequest, started: Started, name: str) -> float:
    """The request's own, else what the model's makers advise, else what changes nothing."""
    own: float = getattr(request, name)
    return own if name in request.model_fields_set else started.defaults.get(name, own)


def _grammar(request: GenerateRequest, started: Started) -> str:
    text, field = request.wished
    if text and not started.grammars:
        raise invalid(f"This worker cannot follow a grammar, which `{field}` needs; leave it out.", field)
    return checked(text, field)
