"""Admission: turns a request's head and body into the terms it is served under, or refuses it. Pure, over a snapshot.

A key is verified with one SHA-256 against its record. A head that repeats on its connection is not verified again until
the snapshot changes (`Head.judged`), so a revoked key is refused at once. An error does not say which part of a key is
wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from paceline_core.auth import key_id, verify
from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry.enums import DegradeKind, RequestClass
from paceline_core.wire import PrefixKeys
from paceline_gateway.http.message import Headers
from paceline_gateway.request.body import MAX_INT64, ParsedBody, limit_tokens, limit_under, parse, rename_model
from paceline_gateway.request.prompt_size import PromptSize, measure
from paceline_gateway.routing.config_snapshot import ConfigSnapshot
from paceline_gateway.routing.model_lookup import Destination, Requester, resolve_model
from paceline_gateway.routing.prefix import prefix_keys

_MISSING = "No API key was sent; send the header `Authorization: Bearer pl_...`."
_CHALLENGE = {"www-authenticate": "Bearer"}
_WRONG = "The API key is not valid; check it, or ask for a new one."


def authenticate(headers: Mapping[bytes, bytes], snapshot: ConfigSnapshot) -> ResolvedTenant:
    """The tenant that owns the key in the headers. Raises RequestError `invalid_api_key`."""
    key = _bearer(headers)
    if key is None:
        raise RequestError(Code.INVALID_API_KEY, _MISSING, headers=_CHALLENGE)
    record = snapshot.keys.get(key_id(key) or "")
    tenant = snapshot.tenants.get(record.tenant) if record is not None else None
    if record is None or tenant is None or not verify(key, record):
        raise RequestError(Code.INVALID_API_KEY, _WRONG, headers=_CHALLENGE)
    return tenant


def sent_key_id(headers: Mapping[bytes, bytes]) -> str | None:
    """The id within the key in the headers, known or not: eight letters and digits; None if it is no key."""
    return key_id(_bearer(headers) or "")


def choose_class(headers: Mapping[bytes, bytes], tenant: ResolvedTenant) -> RequestClass:
    """The class in `x-paceline-class`, or the tenant's default. Raises RequestError."""
    asked = headers.get(b"x-paceline-class")
    if asked is None:
        return tenant.default_class
    name = asked.decode("latin-1").strip().lower()
    if name not in set(RequestClass):
        message = f"x-paceline-class must be one of {', '.join(tenant.classes)}, not `{name[:32]}`."
        raise RequestError(Code.INVALID_REQUEST, message, param="x-paceline-class")
    return _open(RequestClass(name), tenant)


def reauthorize(headers: Mapping[bytes, bytes], name: RequestClass, service: str, snapshot: ConfigSnapshot) -> None:
    """Check that a waiting request is still allowed this service and class after keys or tenants have changed.

    Raises RequestError.
    """
    tenant = authenticate(headers, snapshot)
    _open(name, tenant)
    if not tenant.allows(service):
        raise RequestError(Code.MODEL_NOT_FOUND, "The model is not open to you any more.", param="model")


def _bearer(headers: Mapping[bytes, bytes]) -> str | None:
    scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip().decode("latin-1")
    own = headers.get(b"x-api-key")  # as Anthropic's clients send it
    return None if own is None else own.strip().decode("latin-1")


def _open(name: RequestClass, tenant: ResolvedTenant) -> RequestClass:
    if name not in tenant.classes:
        message = f"The class `{name}` is not open to you; you may use {', '.join(tenant.classes)}."
        raise RequestError(Code.CLASS_FORBIDDEN, message, param="x-paceline-class")
    return name


class AdmittedRequest(NamedTuple):
    """`body` goes to the worker: the client's own bytes, except for a model name that the worker does not know and a
    limit of output tokens that was lowered.

    `max_tokens` is the request's own, else the class's limit, or less if its route serves less (`degraded`). `native`:
    the workers run paceline's own runtime, so a stream that loses its worker can resume at another. `prefix` has the
    prompt's prefix keys for these workers; None for other runtimes and short prompts.
    """

    destination: Destination
    request_class: RequestClass
    stream: bool
    max_tokens: int
    body: bytes
    prefix: PrefixKeys | None = None
    choices: int = 1
    native: bool = False
    fallbacks: tuple[Destination, ...] = ()
    """Later destinations, for when no worker of this one answers."""
    prompt: PromptSize = PromptSize()
    min_tokens: int = 0
    """The least number of tokens of each choice."""
    counts: bool = False
    """It only turns text into tokens or back: it computes nothing and has no latency target."""
    degraded: tuple[DegradeKind, ...] = ()
    """How the answer is less than asked for."""


_TOKENIZERS = frozenset({"paceline", "vllm", "sglang", "custom"})
"""Runtimes that answer, or may answer, `/tokenize`, `/detokenize` and `/v1/messages/count_tokens` in vLLM's format."""

Choose = Callable[[Sequence[Destination], RequestClass, int, PromptSize], Sequence[Destination]]
"""The part of a chain that a request of this class, body size in bytes and prompt follows; its first one takes it."""


def whole(chain: Sequence[Destination], _: RequestClass, _size: int, _prompt: PromptSize) -> Sequence[Destination]:
    """All of it, whatever the state of its destinations."""
    return chain


def admit(  # noqa: PLR0913 - all inputs of the decision
    body: bytes,
    headers: Headers,
    tenant: ResolvedTenant,
    snapshot: ConfigSnapshot,
    draw: float,
    *,
    path: str = "",
    choose: Choose = whole,
) -> AdmittedRequest:
    """Check a request of this tenant to this path. Raises RequestError naming the field."""
    asked = parse(body, path)
    request_class = choose_class(headers, tenant)
    chain: Sequence[Destination] = resolve_model(asked.model, Requester(tenant, headers), snapshot, draw)
    prompt = measure(asked.data, path)
    if len(chain) > 1 or chain[0].degradation is not None:
        chain = choose(chain, request_class, len(body), prompt)
    return _under(asked, body, request_class, tenant, chain, prompt)


def readmit(
    body: bytes, tenant: ResolvedTenant, admission: AdmittedRequest, place: int, *, path: str = ""
) -> AdmittedRequest:
    """Check an admitted request again, for a later destination of its chain. Raises RequestError.

    `body` is what went to the worker before: once capped, its output stays so.
    """
    again = _under(
        parse(body, path), body, admission.request_class, tenant, admission.fallbacks[place:], admission.prompt
    )
    return again._replace(degraded=tuple(kind for kind in admission.degraded if kind is DegradeKind.MAX_TOKENS))


def _under(  # noqa: PLR0913, PLR0917 - as above
    asked: ParsedBody,
    body: bytes,
    request_class: RequestClass,
    tenant: ResolvedTenant,
    chain: Sequence[Destination],
    size: PromptSize,
) -> AdmittedRequest:
    """The terms at the chain's first destination."""
    destination = chain[0]
    limit = (destination.instead_of or destination.service).classes[request_class].max_tokens
    if asked.max_tokens is not None and asked.max_tokens > limit:
        message = (
            f"`{asked.limit_field}` is too large: this model gives a request of class `{request_class}` at most "
            f"{limit} output tokens. Send {limit} or less."
        )
        raise RequestError(Code.INVALID_REQUEST, message, param=asked.limit_field)
    own = destination.service.classes[request_class].max_tokens
    most = own if asked.max_tokens is None else asked.max_tokens
    max_tokens = most if destination.instead_of is None else min(most, _cap(asked, destination, own))
    if max_tokens < most:
        body = limit_tokens(body, asked.limit_field, max_tokens)
    if destination.model != asked.model:
        body = rename_model(body, asked.model, destination.model)
    native = destination.service.runtime.name == "paceline"
    prefix = prefix_keys(asked.data, tenant.name) if native else None
    return AdmittedRequest(
        destination=destination,
        request_class=request_class,
        stream=asked.stream,
        max_tokens=max_tokens,
        body=body,
        prefix=prefix,
        choices=asked.choices,
        native=native,
        fallbacks=tuple(chain[1:]),
        prompt=size,
        min_tokens=min(asked.min_tokens, max_tokens or own),
        degraded=_degraded(destination, capped=max_tokens < most),
    )


def _cap(asked: ParsedBody, destination: Destination, own: int) -> int:
    """The most output tokens at a destination that serves less; `own` is its limit for the class."""
    if not asked.limit_field:
        return MAX_INT64
    return limit_under(asked, own if destination.max_tokens is None else min(own, destination.max_tokens))


def _degraded(destination: Destination, *, capped: bool) -> tuple[DegradeKind, ...]:
    smaller = destination.instead_of is not None and destination.instead_of.key != destination.service.key
    kinds = {DegradeKind.MODEL: smaller, DegradeKind.MAX_TOKENS: capped}
    return tuple(kind for kind, applies in kinds.items() if applies)


def admit_tokens(  # noqa: PLR0913 - as above
    body: bytes, headers: Headers, tenant: ResolvedTenant, snapshot: ConfigSnapshot, draw: float, *, path: str
) -> AdmittedRequest:
    """Check a request that tokenizes or detokenizes: it has no fallbacks to other models. Raises RequestError."""
    admission = admit(body, headers, tenant, snapshot, draw, path=path)
    runtime = admission.destination.service.runtime.name
    if runtime not in _TOKENIZERS:
        raise RequestError(Code.ROUTE_NOT_FOUND, f"The model is served by {runtime}, which has no {path} like vLLM's.")
    return admission._replace(stream=False, prefix=None, fallbacks=(), counts=True)
