"""From a request's head and body to the terms it is served under, or the reason why not. Pure."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import PrefixKeys
from paceline_gateway.http.message import Headers
from paceline_gateway.identity import choose_class
from paceline_gateway.requests.body import ParsedBody, parse, rename_model
from paceline_gateway.requests.prompt import PromptSize, measure
from paceline_gateway.routing.directory import ConfigSnapshot
from paceline_gateway.routing.models import Destination, Requester, resolve_model
from paceline_gateway.routing.prefix_keys import prefix_keys


class AdmittedRequest(NamedTuple):
    """`body` is what goes to the worker: the client's own bytes, but for a model name that the worker does not know.

    `max_tokens` is what was asked for, else the class's limit. `ours`: the workers are of our own runtime, so a stream
    that loses one can go on at another. `prefix` names the prompt's beginnings for them; None for others, and for short
    prompts.
    """

    destination: Destination
    request_class: RequestClass
    stream: bool
    max_tokens: int
    body: bytes
    prefix: PrefixKeys | None = None
    choices: int = 1
    ours: bool = False
    onward: tuple[Destination, ...] = ()
    """Where it may go if nobody answers it there."""
    prompt: PromptSize = PromptSize()
    min_tokens: int = 0
    """Tokens that each choice has for certain."""
    counts: bool = False
    """It asks what a text is in tokens, or ids in text: nothing is computed for it, nor was anything promised."""


_TOKENIZERS = frozenset({"paceline", "vllm", "sglang", "custom"})
"""Runtimes that answer `/tokenize`, `/detokenize` and `/v1/messages/count_tokens` in vLLM's shapes, or may."""

Choose = Callable[[Sequence[Destination], RequestClass, int, PromptSize], int]
"""The place of the destination in a chain that takes a request of this class, of so many bytes and this prompt."""


def first(_chain: Sequence[Destination], _: RequestClass, _size: int, _prompt: PromptSize) -> int:
    """Whatever state it is in."""
    return 0


def admit(  # noqa: PLR0913 - all that a judgement rests on
    body: bytes,
    headers: Headers,
    tenant: ResolvedTenant,
    picture: ConfigSnapshot,
    draw: float,
    *,
    path: str = "",
    choose: Choose = first,
) -> AdmittedRequest:
    """Judge a request of this tenant to this path. Raises RequestError naming the field."""
    asked = parse(body, path)
    request_class = choose_class(headers, tenant)
    chain = resolve_model(asked.model, Requester(tenant, headers), picture, draw)
    prompt = measure(asked.data, path)
    place = 0 if len(chain) == 1 else choose(chain, request_class, len(body), prompt)
    return _under(asked, body, request_class, tenant, chain[place:], prompt)


def readmit(
    body: bytes, tenant: ResolvedTenant, admission: AdmittedRequest, place: int, *, path: str = ""
) -> AdmittedRequest:
    """Judge an admitted request anew, for a later destination of its chain. Raises RequestError."""
    return _under(parse(body, path), body, admission.request_class, tenant, admission.onward[place:], admission.prompt)


def _under(  # noqa: PLR0913, PLR0917 - as above
    asked: ParsedBody,
    body: bytes,
    request_class: RequestClass,
    tenant: ResolvedTenant,
    chain: tuple[Destination, ...],
    size: PromptSize,
) -> AdmittedRequest:
    """The terms of the chain's first destination."""
    destination = chain[0]
    limit = destination.service.classes[request_class].max_tokens
    if asked.max_tokens is not None and asked.max_tokens > limit:
        message = (
            f"`{asked.limit_field}` is too large: this model gives a request of class `{request_class}` at most "
            f"{limit} output tokens. Send {limit} or less."
        )
        raise RequestError(Code.INVALID_REQUEST, message, param=asked.limit_field)
    if destination.model != asked.model:
        body = rename_model(body, asked.model, destination.model)
    ours = destination.service.runtime.name == "paceline"
    prefix = prefix_keys(asked.data, tenant.name) if ours else None
    return AdmittedRequest(
        destination=destination,
        request_class=request_class,
        stream=asked.stream,
        max_tokens=limit if asked.max_tokens is None else asked.max_tokens,
        body=body,
        prefix=prefix,
        choices=asked.choices,
        ours=ours,
        onward=chain[1:],
        prompt=size,
        min_tokens=min(asked.min_tokens, asked.max_tokens or limit),
    )


def admit_tokens(  # noqa: PLR0913 - as above
    body: bytes, headers: Headers, tenant: ResolvedTenant, picture: ConfigSnapshot, draw: float, *, path: str
) -> AdmittedRequest:
    """Judge a request that counts or spells tokens: none but the model it names can answer. Raises RequestError."""
    admission = admit(body, headers, tenant, picture, draw, path=path)
    runtime = admission.destination.service.runtime.name
    if runtime not in _TOKENIZERS:
        raise RequestError(Code.ROUTE_NOT_FOUND, f"The model is served by {runtime}, which has no {path} like vLLM's.")
    return admission._replace(stream=False, prefix=None, onward=(), counts=True)
