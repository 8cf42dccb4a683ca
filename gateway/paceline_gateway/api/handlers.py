"""The public port's application: who asks, what for, and on to the floor. Returns at once; answers come later.

`GET /v1/models` and `GET /v1/models/{name}`: what the caller may use, in OpenAI's form and vLLM's.
"""

import random
from collections.abc import Callable
from datetime import datetime
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
from paceline_gateway.api.admission import AdmittedRequest, admit, admit_tokens, authenticate, sent_key_id
from paceline_gateway.api.routes import (
    MODELS_PREFIX,
    Route,
    check_bodiless,
    check_coding,
    find_route,
    find_socket,
    methods_of,
    writes,
)
from paceline_gateway.http.cors import NO_CORS, CorsPolicy, preflight_fields
from paceline_gateway.http.message import Head, HttpRequest
from paceline_gateway.http.request_reader import RejectedRequest
from paceline_gateway.http.response import ResponseWriter, json_fields, request_id_field
from paceline_gateway.proxy.active_request import ActiveRequest
from paceline_gateway.proxy.request_manager import RETRY_S, RequestManager
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.quota.types import QuotaUsage, Reservation
from paceline_gateway.request import events as e
from paceline_gateway.routing.config_snapshot import NOTHING, ConfigSnapshot
from paceline_gateway.routing.model_lookup import Requester, resolve_model, usable_names
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.telemetry.access_log import AccessLog

Context = Callable[[str], int]
"""How many tokens the workers of a service take, by its key; 0 where none has said it yet."""


def listing(head: Head, picture: ConfigSnapshot, context: Context) -> bytes:
    """The body of either answer. Raises RequestError `model_not_found`."""
    if head.tenant is None:
        raise RequestError(Code.INTERNAL_ERROR, "The request came in without a tenant.")
    asker = Requester(head.tenant, head.headers)
    if head.path.startswith(MODELS_PREFIX):
        name = unquote(head.path.removeprefix(MODELS_PREFIX))
        found = resolve_model(name, asker, picture, 0.0)[0]
        return orjson.dumps(_model(name, found.service, picture, context))
    names = usable_names(asker, picture)
    models = [_model(name, service, picture, context) for name, service in names.items()]
    return orjson.dumps({"object": "list", "data": models})


def _model(name: str, service: ResolvedService, picture: ConfigSnapshot, context: Context) -> dict[str, Any]:
    created = picture.created.get(service.key, "")
    seconds = int(datetime.fromisoformat(created).timestamp()) if created else 0
    length = context(service.key) or service.engine.max_model_len
    own = {"id": name, "object": "model", "created": seconds, "owned_by": service.namespace}
    return own | {"max_model_len": length}


_log = get_logger(__name__)
_READ_ONLY = frozenset({Route.MODELS, Route.HEALTH, Route.VERSION})
CHEAP_BYTES = 16 << 10
"""A body up to this is parsed before its tenant's limits are looked at: that costs no more than to look."""
_VERSION = orjson.dumps({"version": __version__})
_ANSWERED_BY_WORKERS = frozenset({Route.GENERATE, Route.TOKENS})


class PublicApi:
    """`draw` in [0, 1) chooses among weighted backends."""

    def __init__(
        self,
        floor: RequestManager,
        access: AccessLog,
        draw: Callable[[], float] = random.random,
        cors: CorsPolicy = NO_CORS,
    ) -> None:
        self._floor = floor
        self._access = access
        self._draw = draw
        self._cors = cors
        self._tickets = count()

    def gate(self, head: Head) -> RequestError | None:
        """Judge a request by its head: route, method, key. One that is like another is judged once a picture."""
        picture = self._floor.picture
        if head.judged == self._floor.pictures:
            return None
        try:
            if head.upgrade:
                find_socket(head, self._cors)
            preflight = self._cors.is_preflight(head)
            route = None if head.upgrade or preflight else find_route(head.method, head.path)
            if route in _READ_ONLY or preflight:
                check_bodiless(head)
            if route is not Route.HEALTH and not preflight:
                head.tenant = self._authenticate(head, picture)
            check_coding(head.headers)
            head.judged = self._floor.pictures
        except RequestError as error:
            return error
        return None

    def _authenticate(self, head: Head, picture: ConfigSnapshot) -> ResolvedTenant:
        if picture is NOTHING:
            message = "This gateway has just started and has not been told of keys and models yet; retry."
            raise RequestError(Code.NO_CAPACITY, message, retry_after=RETRY_S)
        return authenticate(head.headers, picture)

    def turn_away(self, _: Head) -> RequestError:
        """What a latecomer hears."""
        return RequestError(Code.DRAINING, "This gateway is shutting down; retry.", retry_after=RETRY_S)

    def standing(self, head: Head) -> bytes:
        """Header lines that say where its tenant stands, such as for a WebSocket's handshake."""
        return b"" if head.tenant is None else self._floor.quotas.fields(head.tenant, self._floor.now())

    def handle(self, request: HttpRequest, reply: ResponseWriter) -> None:
        """Take a whole request."""
        request_id = _request_id(request.head)
        try:
            if self._cors.is_preflight(request.head):
                methods = ", ".join(methods_of(request.head.path))
                reply.whole(200, request_id_field(request_id) + preflight_fields(request.head.headers, methods), b"")
                return
            route = find_route(request.head.method, request.head.path)
            if route in _ANSWERED_BY_WORKERS:
                self._generate(request, reply, request_id, counts=route is Route.TOKENS)
            elif route is Route.MODELS:
                reply.whole(200, json_fields(request_id), listing(request.head, self._floor.picture, self._context))
            elif route is Route.VERSION:
                reply.whole(200, json_fields(request_id), _VERSION)
            else:
                reply.whole(200, json_fields(request_id), b'{"status":"ok"}')
        except RequestError as error:
            reply.fail(error, request_id_field(request_id))

    def _context(self, service: str) -> int:
        """Tokens that a service's workers take; 0 until one has said it."""
        desk = self._floor.desks.get(service)
        return 0 if desk is None else desk.fleet.context

    def refuse(self, refusal: RejectedRequest, reply: ResponseWriter) -> None:
        """Answer a request that was refused while it was read."""
        head = refusal.head
        request_id = _new_id() if head is None else _request_id(head)
        self._floor.tenants.refused(refusal.error.row.outcome)
        if head is None:
            self._access.refused(refusal.error, request_id, "")
        else:
            self._access.refused(refusal.error, request_id, head.path, sent_key_id(head.headers))
        reply.fail(refusal.error, request_id_field(request_id))

    def _generate(self, request: HttpRequest, reply: ResponseWriter, request_id: bytes, *, counts: bool) -> None:
        tenant = request.head.tenant
        if tenant is None:
            raise RequestError(Code.INVALID_API_KEY, "No API key was sent.")
        call = ActiveRequest(self._floor, request, reply, request_id)
        call.on(e.Authenticated(tenant.name))
        _answering(call, self._admit, call, tenant, counts)

    def _admit(self, call: ActiveRequest, tenant: ResolvedTenant, counts: bool) -> None:
        """Learn what is asked for. Raises RequestError."""
        floor, head, body, draw = self._floor, call.request.head, call.request.body, self._draw()
        if len(body) > CHEAP_BYTES:
            self._check_left(call, tenant, counts)
        if counts:
            admission = admit_tokens(body, head.headers, tenant, floor.picture, draw, path=head.path)
        else:
            admission = admit(body, head.headers, tenant, floor.picture, draw, path=head.path, choose=floor.choose)
        if admission.body is not body:  # only one of the two is held
            call.request = call.request._replace(body=admission.body)
        self._reserve(call, admission, tenant)

    def _check_left(self, call: ActiveRequest, tenant: ResolvedTenant, counts: bool) -> None:
        """Whether a tenant may ask anything at all, before its body is parsed. Raises RequestError."""
        floor, tokens = self._floor, not counts
        least = QuotaUsage(1, tokens, tokens and writes(call.request.head.path))
        refusal = floor.billing.exhausted(tenant, least) or floor.quotas.exhausted(tenant, least, floor.now())
        if refusal is not None:
            call.quota_fields = self.standing(call.request.head)
            raise refusal

    def _reserve(self, call: ActiveRequest, admission: AdmittedRequest, tenant: ResolvedTenant) -> None:
        """Ask for the tenant's leave; it may come later."""
        service, name, floor = admission.destination.service, admission.request_class, self._floor
        desk, now, writing = floor.desks[service.key], floor.now(), writes(call.request.head.path)
        deadline = now + service.classes[name].hold_timeout_s
        ticket = desk.ticket(next(self._tickets), tenant, admission, deadline, writes=writing)
        call.admitted(desk, admission, ticket)
        floor.open_call(call)
        need, most = self._needs(desk, ticket, admission, tenant, writing)
        gateways = floor.quotas.gateways
        refusal = floor.billing.reserve(ticket.id, tenant, desk, need, most, floor.picture, gateways)
        if refusal is not None:
            self._reserved(call, refusal)
            return
        call.waiter = floor.quotas.reserve(tenant, need, now, partial(self._reserved, call))

    def _needs(
        self,
        desk: ServiceState,
        ticket: QueuedRequest,
        admission: AdmittedRequest,
        tenant: ResolvedTenant,
        writing: bool,
    ) -> tuple[QuotaUsage, QuotaUsage]:
        """The expected use of a request, and the most that it may use."""
        if admission.counts:
            return QuotaUsage(1), QuotaUsage(1)
        gateways, exposed = self._floor.quotas.gateways, self._floor.billing.exposure.of(tenant.name)
        prompt = ticket.prompt_tokens
        if _crowded(exposed.input_tokens * gateways, tenant.input_tokens_per_minute):
            prompt = max(prompt, desk.prompt_tokens(admission.prompt))
        most = max(prompt, desk.most_prompt_tokens(admission.prompt))
        if not writing:
            return QuotaUsage(1, prompt), QuotaUsage(1, most)
        output = desk.outputs[ticket.request_class].expected(
            tenant.name,
            admission.max_tokens,
            admission.choices,
            least=admission.min_tokens,
            crowded=_crowded(exposed.output_tokens * gateways, tenant.output_tokens_per_minute),
        )
        return QuotaUsage(1, prompt, output), QuotaUsage(1, most, admission.max_tokens * admission.choices)

    def _reserved(self, call: ActiveRequest, result: Reservation | RequestError) -> None:
        """The tenant's leave, or why there is none."""
        call.waiter = None
        if isinstance(result, Reservation):
            call.quota_fields = result.fields
            _answering(call, self._queue, call, result)
            return
        call.quota_fields = self.standing(call.request.head)
        call.on(e.Refused(result))

    def _queue(self, call: ActiveRequest, reservation: Reservation) -> None:
        """Stand in line. Raises RequestError when it is full."""
        self._floor.arrived(call, reservation)
        if call.desk is None or call.ticket is None:
            return
        while (shed := call.desk.shed(call.ticket, self._floor.now())) is not None:
            if shed.ticket is call.ticket:
                if self._floor.divert(call, FallbackReason.QUEUE_FULL):
                    return
                raise shed.error
            self._floor.displaced(shed)
        call.on(e.Queued())


def _crowded(exposed: float, limit: int | None) -> bool:
    """Whether open requests may pass what they have reserved by more than a minute's limit."""
    return limit is not None and exposed > limit


def _answering(call: ActiveRequest, step: Callable[..., None], *given: Any) -> None:
    """Take a step; whatever goes wrong in it, the call ends with an answer."""
    try:
        step(*given)
    except RequestError as error:
        call.on(e.Refused(error))
    except Exception:  # noqa: BLE001 - the last boundary: a fault of ours must still end with an answer
        _log.exception("a request failed", extra={"request_id": call.request_id.decode("latin-1")})
        call.on(e.Refused(RequestError(Code.INTERNAL_ERROR, "The gateway failed on this request.")))


def _request_id(head: Head) -> bytes:
    """The client's own id if it is harmless, else a new one."""
    given = head.headers.get(b"x-request-id", b"")
    harmless = len(given) <= 64 and given.replace(b"-", b"a").replace(b"_", b"a").isalnum()
    return given if harmless else _new_id()


def _new_id() -> bytes:
    return b"%024x" % random.getrandbits(96)
