"""The public port's routes."""

from enum import StrEnum

from paceline_core.errors import Code, RequestError
from paceline_gateway.http.cors import NO_CORS, CorsPolicy
from paceline_gateway.http.message import Head, Headers, is_cross_origin
from paceline_gateway.request.prompt_size import EMBEDDINGS, RERANK, SCORE, TOKENIZERS, WITHOUT_OUTPUT


class Route(StrEnum):
    """What a path is about."""

    GENERATE = "generate"
    TOKENS = "tokens"
    """What a text is in tokens, and back."""
    MODELS = "models"
    HEALTH = "health"
    VERSION = "version"


_READ = ("GET", "HEAD")
_METHODS = {
    Route.GENERATE: ("POST",),
    Route.TOKENS: ("POST",),
    Route.MODELS: _READ,
    Route.HEALTH: _READ,
    Route.VERSION: _READ,
}
_PATHS = {
    "/v1/chat/completions": Route.GENERATE,
    "/v1/completions": Route.GENERATE,
    EMBEDDINGS: Route.GENERATE,
    **dict.fromkeys((*SCORE, *RERANK), Route.GENERATE),
    "/v1/responses": Route.GENERATE,
    "/v1/messages": Route.GENERATE,
    **dict.fromkeys(TOKENIZERS, Route.TOKENS),
    "/v1/models": Route.MODELS,
    "/health": Route.HEALTH,
    "/version": Route.VERSION,
}
_ALL = ", ".join(f"{_METHODS[route][0]} {path}" for path, route in _PATHS.items())
_ADMIN = frozenset({"/metrics", "/healthz", "/readyz"})
_SOCKETS = frozenset({"/v1/chat/completions", "/v1/completions"})
MODELS_PREFIX = "/v1/models/"


def find_socket(head: Head, cors: CorsPolicy = NO_CORS) -> None:
    """Whether a path takes WebSocket connections, and from this page. Raises RequestError."""
    if head.path not in _SOCKETS:
        message = f"{head.path[:128]} takes no WebSocket; /v1/chat/completions and /v1/completions do."
        raise RequestError(Code.ROUTE_NOT_FOUND, message)
    if is_cross_origin(head.headers) and not cors.allows(head.headers):
        message = "Pages of other sites may not connect; leave the header `origin` out."
        raise RequestError(Code.INVALID_REQUEST, message, param="origin")


def check_bodiless(head: Head) -> None:
    """Routes that are only read take no body: none is waited for and none kept. Raises RequestError."""
    if head.headers.get(b"content-length", b"0").strip(b"0") or b"transfer-encoding" in head.headers:
        raise RequestError(Code.INVALID_REQUEST, f"{head.method} {head.path[:128]} takes no body; leave it out.")


def writes(path: str) -> bool:
    """Whether this route's answers have output tokens."""
    return path not in WITHOUT_OUTPUT


def check_coding(headers: Headers) -> None:
    """Bodies are read as they come. Raises RequestError `invalid_request`."""
    coding = headers.get(b"content-encoding")
    if coding is not None and coding.lower() != b"identity":
        message = "Bodies with a content-encoding are not read here; send the JSON as it is."
        plain = {"accept-encoding": "identity"}
        raise RequestError(Code.INVALID_REQUEST, message, param="content-encoding", headers=plain)


def methods_of(path: str) -> tuple[str, ...]:
    """The methods that a path takes. Raises RequestError `route_not_found`."""
    return _METHODS[_of(path)]


def find_route(method: str, path: str) -> Route:
    """The route of a request. Raises RequestError `route_not_found` or `method_not_allowed`."""
    route = _of(path)
    methods = _METHODS[route]
    if method not in methods:
        message = f"{path[:128]} takes {methods[0]}, not {method}."
        raise RequestError(Code.METHOD_NOT_ALLOWED, message, headers={"allow": ", ".join(methods)})
    return route


def _of(path: str) -> Route:
    route = _PATHS.get(path)
    if route is None and path.startswith(MODELS_PREFIX) and path != MODELS_PREFIX:
        route = Route.MODELS
    if route is None:
        elsewhere = " (this one is on the admin port)" if path in _ADMIN else ""
        raise RequestError(Code.ROUTE_NOT_FOUND, f"There is no {path[:128]} here{elsewhere}; there are {_ALL}.")
    return route
