"""The public port's application. A request is authenticated, admitted, reserved, enqueued and dispatched.

Each step returns at once; the tenant's reservation and the answer may come later.
"""

import random
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import unquote

import orjson

from paceline_core import __version__
from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedService, ResolvedTenant
from paceline_core.registry.enums import FallbackReason
from paceline_core.telemetry import get_logger
from paceline_gateway.api import admission as admissions
from paceline_gateway.api.admission import AdmittedRequest, admit_tokens, sent_key_id
from paceline_gateway.http.cors import NO_CORS, CorsPolicy, preflight_fields
from paceline_gateway.http.message import Head, HttpRequest
from paceline_gateway.http.request_reader import RejectedRequest
from paceline_gateway.http.response import ResponseWriter, json_fields, request_id_field
from paceline_gateway.proxy.active_request import ActiveRequest
from paceline_gateway.proxy.request_manager import RequestManager
from paceline_gateway.quota.types import QuotaUsage, Reservation
from paceline_gateway.request import events as e
from paceline_gateway.request.prompt_size import EMBEDDINGS, RERANK, SCORE, TOKENIZERS, WITHOUT_OUTPUT
from paceline_gateway.routing.config_snapshot import NOTHING
from paceline_gateway.routing.model_lookup import Requester, resolve_model, usable_names
from paceline_gateway.services.registry import RETRY_S
from paceline_gateway.telemetry.access_log import AccessLog

_log = get_logger(__name__)
CHEAP_BYTES = 16 << 10
"""A body up to this size is parsed before its tenant's limits are checked: parsing costs no more than the check."""
_VERSION = orjson.dumps({"version": __version__})


class Route(StrEnum):
    """The subject of a path."""

    GENERATE = "generate"
    TOKENS = "tokens"
    """Texts to tokens, and tokens to text."""
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
_READ_ONLY = frozenset({Route.MODELS, Route.HEALTH, Route.VERSION})
_ANSWERED_BY_WORKERS = frozenset({Route.GENERATE, Route.TOKENS})


class PublicApi:
    """`draw` in [0, 1) chooses among weighted backends."""

    def __init__(
        self,
        requests: RequestManager,
        access: AccessLog,
        draw: Callable[[], float] = random.random,
        cors: CorsPolicy = NO_CORS,
    ) -> None:
        self._requests = requests
        self._registry = requests.registry
        self._access = access
        self._draw = draw
        self._cors = cors
        self._numbers = count()

    def gate(self, head: Head) -> RequestError | None:
        """Check a request by its head: route, method, key. A head that repeats is checked once for each snapshot."""
        if head.judged == self._registry.version:
            return None
        try:
            if head.upgrade:
                _check_socket(head, self._cors)
            preflight = head.method == "OPTIONS" and self._cors.is_preflight(head)
            route = None if head.upgrade or preflight else find_route(head.method, head.path)
            brings = head.headers.get(b"content-length", b"0").strip(b"0") or b"transfer-encoding" in head.headers
            if brings and (route in _READ_ONLY or preflight):  # such a request has no body
                message = f"{head.method} {head.path[:128]} takes no body; leave it out."
                return RequestError(Code.INVALID_REQUEST, message)
            if route is not Route.HEALTH and not preflight:
                head.tenant = self.authenticate(head)
            coding = head.headers.get(b"content-encoding")
            if coding is not None and coding.lower() != b"identity":  # compressed bodies are not supported
                message = "Bodies with a content-encoding are not read here; send the JSON as it is."
                plain = {"accept-encoding": "identity"}
                return RequestError(Code.INVALID_REQUEST, message, param="content-encoding", headers=plain)
            head.judged = self._registry.version
        except RequestError as error:
            return error
        return None

    def authenticate(self, head: Head) -> ResolvedTenant:
        """The tenant that owns the request's key. Raises RequestError."""
        if self._registry.snapshot is NOTHING:
            message = "This gateway has just started and has not been told of keys and models yet; retry."
            raise RequestError(Code.NO_CAPACITY, message, retry_after=RETRY_S)
        return admissions.authenticate(head.headers, self._registry.snapshot)

    def handle(self, request: HttpRequest, reply: ResponseWriter) -> None:
        """Handle a complete request."""
        head, request_id = request.head, _request_id(request.head)
        try:
            if head.method == "OPTIONS" and self._cors.is_preflight(head):
                fields = preflight_fields(head.headers, ", ".join(_METHODS[_route_of(head.path)]))
                reply.whole(200, request_id_field(request_id) + fields, b"")
                return
            route = find_route(head.method, head.path)
            if route in _ANSWERED_BY_WORKERS:
                if (tenant := head.tenant) is None:
                    reply.fail(RequestError(Code.INVALID_API_KEY, "No API key was sent."), request_id_field(request_id))
                    return
                counts = route is Route.TOKENS
                active = ActiveRequest(self._requests.context, request, reply, request_id, tenant.name)
                _answering(active, lambda: self.reserve(active, self.admit(active, tenant, counts=counts), tenant))
            elif route is Route.MODELS:
                reply.whole(200, json_fields(request_id), self._models(head))
            else:
                reply.whole(200, json_fields(request_id), _VERSION if route is Route.VERSION else b'{"status":"ok"}')
        except RequestError as error:
            reply.fail(error, request_id_field(request_id))

    def admit(self, request: ActiveRequest, tenant: ResolvedTenant, *, counts: bool) -> AdmittedRequest:
        """The terms of the request: model, destination, class, tokens. Raises RequestError."""
        head, body, draw, snapshot = request.http.head, request.http.body, self._draw(), self._registry.snapshot
        if len(body) > CHEAP_BYTES:  # refuse a tenant without anything left before parsing its body
            requests, tokens = self._requests, not counts
            least = QuotaUsage(1, tokens, tokens and head.path not in WITHOUT_OUTPUT)
            refusal = requests.billing.exhausted(tenant, least)
            if refusal := refusal or requests.quotas.exhausted(tenant, least, requests.now()):
                request.quota_fields = self.standing(head)
                raise refusal
        if counts:
            admission = admit_tokens(body, head.headers, tenant, snapshot, draw, path=head.path)
        else:
            choose = self._registry.choose
            admission = admissions.admit(body, head.headers, tenant, snapshot, draw, path=head.path, choose=choose)
        if admission.body is not body:  # hold only one of the two
            request.http = request.http._replace(body=admission.body)
        return admission

    def reserve(self, request: ActiveRequest, admission: AdmittedRequest, tenant: ResolvedTenant) -> None:
        """Reserve the expected use of the tenant's month and limits; `_reserved` gets the result, now or later."""
        spec, name, requests = admission.destination.service, admission.request_class, self._requests
        service, now = self._registry.services[spec.key], requests.now()
        writing = request.http.head.path not in WITHOUT_OUTPUT
        deadline = now + spec.classes[name].hold_timeout_s
        gateways, exposure = requests.quotas.gateways, requests.billing.exposure
        placement = service.place(next(self._numbers), tenant, admission, deadline, writes=writing)
        queued = placement.queued
        need, most = service.estimates.expected_usage(queued, admission, tenant, exposure, gateways, writes=writing)
        requests.add(request, placement)
        refusal = requests.billing.reserve(queued.id, tenant, service, need, most, self._registry.snapshot, gateways)
        if refusal is not None:
            self._reserved(request, refusal)
            return
        request.pending = requests.quotas.reserve(tenant, need, now, partial(self._reserved, request))

    def _reserved(self, request: ActiveRequest, result: Reservation | RequestError) -> None:
        request.pending = None
        if isinstance(result, Reservation):
            request.quota_fields = result.fields
            _answering(request, partial(self.enqueue, request, result))
            return
        request.quota_fields = self.standing(request.http.head)
        request.on(e.Refused(result))

    def enqueue(self, request: ActiveRequest, reservation: Reservation) -> None:
        """Make room in its service's queue and enqueue it (`Dispatcher.enqueue`).

        Raises RequestError if the queue is full and no other request is shed for it.
        """
        request.reservation = reservation
        service, queued = request.service, request.queued
        if service is None or queued is None:
            return
        service.arrived(queued.request_class, queued.prompt_tokens, queued.tenant)
        while (shed := service.shed(queued, self._requests.now())) is not None:
            if shed.queued is queued:
                if self._requests.fall_back(request, FallbackReason.QUEUE_FULL):
                    return
                raise shed.error
            self._requests.displace(shed)
        request.on(e.Queued())

    def turn_away(self, _: Head) -> RequestError:
        """The answer to new work while the gateway drains."""
        return RequestError(Code.DRAINING, "This gateway is shutting down; retry.", retry_after=RETRY_S)

    def standing(self, head: Head) -> bytes:
        """Header lines with a tenant's limits and what remains of them, such as for a WebSocket's handshake."""
        requests = self._requests
        return b"" if head.tenant is None else requests.quotas.fields(head.tenant, requests.now())

    def refuse(self, refusal: RejectedRequest, reply: ResponseWriter) -> None:
        """Answer a request that was refused while it was read."""
        head = refusal.head
        request_id = _request_id(head)
        self._requests.tenants.refused(refusal.error.row.outcome)
        path, key = ("", None) if head is None else (head.path, sent_key_id(head.headers))
        self._access.refused(refusal.error, request_id, path, key)
        reply.fail(refusal.error, request_id_field(request_id))

    def _models(self, head: Head) -> bytes:
        """The body of `GET /v1/models` and of `GET /v1/models/{name}`. Raises RequestError `model_not_found`."""
        if head.tenant is None:
            raise RequestError(Code.INTERNAL_ERROR, "The request came in without a tenant.")
        requester, snapshot = Requester(head.tenant, head.headers), self._registry.snapshot
        if head.path.startswith(MODELS_PREFIX):
            name = unquote(head.path.removeprefix(MODELS_PREFIX))
            return orjson.dumps(self._model(name, resolve_model(name, requester, snapshot, 0.0)[0].service))
        models = [self._model(name, service) for name, service in usable_names(requester, snapshot).items()]
        return orjson.dumps({"object": "list", "data": models})

    def _model(self, name: str, service: ResolvedService) -> dict[str, Any]:
        created = self._registry.snapshot.created.get(service.key, "")
        seconds = int(datetime.fromisoformat(created).timestamp()) if created else 0
        state = self._registry.services.get(service.key)
        length = (state is not None and state.pool.context) or service.engine.max_model_len
        own = {"id": name, "object": "model", "created": seconds, "owned_by": service.namespace}
        return own | {"max_model_len": length}


def find_route(method: str, path: str) -> Route:
    """The route of a request. Raises RequestError `route_not_found` or `method_not_allowed`."""
    route = _route_of(path)
    methods = _METHODS[route]
    if method not in methods:
        message = f"{path[:128]} takes {methods[0]}, not {method}."
        raise RequestError(Code.METHOD_NOT_ALLOWED, message, headers={"allow": ", ".join(methods)})
    return route


def _route_of(path: str) -> Route:
    route = _PATHS.get(path)
    if route is None and path.startswith(MODELS_PREFIX) and path != MODELS_PREFIX:
        route = Route.MODELS
    if route is None:
        elsewhere = " (this one is on the admin port)" if path in _ADMIN else ""
        raise RequestError(Code.ROUTE_NOT_FOUND, f"There is no {path[:128]} here{elsewhere}; there are {_ALL}.")
    return route


def _check_socket(head: Head, cors: CorsPolicy) -> None:
    """Check that the path takes WebSocket connections, and that the page's origin may. Raises RequestError."""
    if head.path not in _SOCKETS:
        message = f"{head.path[:128]} takes no WebSocket; /v1/chat/completions and /v1/completions do."
        raise RequestError(Code.ROUTE_NOT_FOUND, message)
    # a browser lets any page connect; only this header names the page's origin
    origin, host = head.headers.get(b"origin", b""), head.headers.get(b"host", b"")
    if origin and origin.partition(b"://")[2] != host and not cors.allows(head.headers):
        message = "Pages of other sites may not connect; leave the header `origin` out."
        raise RequestError(Code.INVALID_REQUEST, message, param="origin")


def _answering(request: ActiveRequest, step: Callable[[], None]) -> None:
    """Run a step; if it raises, the request still ends with an answer."""
    try:
        step()
    except RequestError as error:
        request.on(e.Refused(error))
    except Exception:  # noqa: BLE001 - the last boundary: a fault here must still end with an answer
        _log.exception("a request failed", extra={"request_id": request.request_id.decode("latin-1")})
        request.on(e.Refused(RequestError(Code.INTERNAL_ERROR, "The gateway failed on this request.")))


def _request_id(head: Head | None) -> bytes:
    """The client's own id if it is harmless, else a new one."""
    given = b"" if head is None else head.headers.get(b"x-request-id", b"")
    harmless = len(given) <= 64 and given.replace(b"-", b"a").replace(b"_", b"a").isalnum()
    return given if harmless else b"%024x" % random.getrandbits(96)
