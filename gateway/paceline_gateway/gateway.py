"""The public port's application: who asks, what for, and on to the floor. Returns at once; answers come later."""

import random
import secrets
from collections.abc import Callable
from itertools import count

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.telemetry import get_logger
from paceline_gateway import models
from paceline_gateway.admission import Admission, admit
from paceline_gateway.floor import RETRY_S, Floor
from paceline_gateway.http.message import Head, Request
from paceline_gateway.http.reader import Refusal
from paceline_gateway.http.reply import Reply, json_fields, request_id_field
from paceline_gateway.identity import authenticate
from paceline_gateway.proxy import Call
from paceline_gateway.queues.ticket import Ticket
from paceline_gateway.quota.quotas import Use
from paceline_gateway.requests import events as e
from paceline_gateway.routes import Route, find_route
from paceline_gateway.telemetry.access import AccessLog

_log = get_logger(__name__)


class Gateway:
    """`draw` in [0, 1) chooses among weighted backends."""

    def __init__(self, floor: Floor, access: AccessLog, draw: Callable[[], float] = random.random) -> None:
        self._floor = floor
        self._access = access
        self._draw = draw
        self._tickets = count()

    def gate(self, head: Head) -> RequestError | None:
        """Judge a request by its head: route, method, key."""
        try:
            if find_route(head.method, head.path) is not Route.HEALTH:
                head.tenant = authenticate(head.headers, self._floor.picture)
        except RequestError as error:
            return error
        return None

    def turn_away(self, _: Head) -> RequestError:
        """What a latecomer hears."""
        return RequestError(Code.DRAINING, "This gateway is shutting down; retry.", retry_after=RETRY_S)

    def handle(self, request: Request, reply: Reply) -> None:
        """Take a whole request."""
        request_id = _request_id(request.head)
        try:
            match find_route(request.head.method, request.head.path):
                case Route.GENERATE:
                    self._generate(request, reply, request_id)
                case Route.MODELS:
                    reply.whole(200, json_fields(request_id), models.listing(request.head, self._floor.picture))
                case Route.HEALTH:
                    reply.whole(200, json_fields(request_id), b'{"status":"ok"}')
        except RequestError as error:
            reply.fail(error, request_id_field(request_id))

    def refuse(self, refusal: Refusal, reply: Reply) -> None:
        """Answer a request that was refused while it was read."""
        head = refusal.head
        request_id = _new_id() if head is None else _request_id(head)
        self._floor.tenants.refused(refusal.error.row.outcome)
        self._access.refused(refusal.error, request_id, "" if head is None else head.path)
        reply.fail(refusal.error, request_id_field(request_id))

    def _generate(self, request: Request, reply: Reply, request_id: bytes) -> None:
        tenant = request.head.tenant
        if tenant is None:
            raise RequestError(Code.INVALID_API_KEY, "No API key was sent.")
        call = Call(self._floor, request, reply, request_id)
        call.on(e.Authenticated(tenant.name))
        try:
            admission = admit(request.body, request.head.headers, tenant, self._floor.picture, self._draw())
            self._queue(call, admission, tenant)
        except RequestError as error:
            call.on(e.Refused(error))
        except Exception:  # noqa: BLE001 - the last boundary: a fault of ours must still end with an answer
            _log.exception("a request failed", extra={"request_id": request_id.decode("latin-1")})
            call.on(e.Refused(RequestError(Code.INTERNAL_ERROR, "The gateway failed on this request.")))

    def _queue(self, call: Call, admission: Admission, tenant: ResolvedTenant) -> None:
        """Stand in line. Raises RequestError when the tenant's limits are used up or the line is full."""
        service, name, size = admission.destination.service, admission.request_class, len(admission.body)
        desk, now = self._floor.desks[service.key], self._floor.now()
        tokens, terms = desk.prompt_tokens(size), service.classes[name]
        deadline = now + terms.hold_timeout_s
        output = desk.expected_output(name, admission.max_tokens)
        ticket = Ticket(next(self._tickets), name, tokens, size, deadline, stream=admission.stream)
        ticket.tenant, ticket.weight, ticket.expected_output = tenant.name, tenant.weight, output
        if admission.prefix is not None:
            ticket.keys, ticket.prompt_bytes = admission.prefix.keys, admission.prefix.size
        call.admitted(desk, admission, ticket)
        expected = Use(1, tokens, output)
        self._floor.open_call(call, self._floor.quotas.reserve(tenant, expected, now))
        refusal = desk.dispatcher.refusal(name, size, terms.queue_limit, now)
        if refusal is not None:
            raise refusal
        call.on(e.Queued())


def _request_id(head: Head) -> bytes:
    """The client's own id if it is harmless, else a new one."""
    given = head.headers.get(b"x-request-id", b"")
    harmless = len(given) <= 64 and given.replace(b"-", b"a").replace(b"_", b"a").isalnum()
    return given if harmless else _new_id()


def _new_id() -> bytes:
    return secrets.token_hex(12).encode()
